"""How far exponents (to base 2) of softmax weights may be from a row's shift, in each precision.

A float64 lies between 2^-1022 and 2^1024, a float32 between 2^-126 and 2^128; `exp2` takes |t| up to 1000 and 120.
Smaller exponents than `floor` are raised to it, which must not show beside the sum of the row. Where masses
multiply the weights, that sum is at least the least share m_j / max m; where their logarithms are in the exponents,
it is at least one, or 2^(-2 bound) where the row is shifted by its bound.
"""

from __future__ import annotations

from typing import NamedTuple


class Exponents(NamedTuple):
    """Limits for a row whose scores are at most `bound`, by the inequality of Cauchy and Schwarz."""

    bound: float
    """Rows with a smaller bound are shifted by it: the least weight is 2^(-2 bound), which does not underflow."""
    headroom: float
    """A shift may lie so far below the bound that no weight, nor the sum of 2^30 of them, overflows."""
    floor: float
    """Smaller exponents are raised to this: what they add to a sum that has a weight of one is below rounding."""
    share: float
    """log2 of the least share m_j / max m for which masses may multiply weights: `floor` is below the rounding of
    2^30 such keys. With smaller ones the logarithms of the masses go into the exponents."""
    bound_with_mass: float
    """`bound` where the exponents hold the logarithms of masses: there is no least weight, and 2^30 keys at `floor`
    are below the rounding of 2^(-2 bound)."""


DOUBLE = Exponents(360.0, 700.0, -1000.0, -500.0, 360.0)
SINGLE = Exponents(40.0, 90.0, -90.0, -30.0, 15.0)


def exponents(single: bool) -> Exponents:
    """The limits of float32 or of float64."""
    return SINGLE if single else DOUBLE
