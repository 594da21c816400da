"""The transpose of the derivative of attention, and which way to compute it: over all pairs, or by series."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.backwards import Backwards
from metastable.attention.circle import circle_adjoint, circle_adjoint_cost, modes
from metastable.attention.direct import adjoint_cost, adjoint_over_pairs
from metastable.attention.kernel import LEAST_RTOL
from metastable.attention.lengths import squared_lengths

FEWEST = 128
"""Tokens from which series are considered: all pairs of fewer take less than the tenth of a millisecond that series
begin with."""


def attention_adjoint(
    given: Backwards, ahead: int | None = None, *, rtol: float | None = None
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
    """(by_query, by_key) of `direct.adjoint`, in float64.

    rtol: the error that may be, for keys on a sphere, of which only movements along it count: then by_key may lack
    its part along the key. None: all pairs, all digits.
    """
    if rtol is not None and ahead is None:
        count = _modes(given, rtol)
        if count is not None:
            return circle_adjoint(given, count)
    return adjoint_over_pairs(given, ahead)


def _modes(given: Backwards, rtol: float) -> int | None:
    """Modes of the series on the circle; None where all pairs are faster, or needed."""
    keys = given.keys
    n, d = keys.shape
    if d != 2 or n < FEWEST or rtol < LEAST_RTOL or not keys.is_cpu or keys.dtype != torch.float64:
        return None
    least, largest = squared_lengths(keys)
    if max(1.0 - least, largest - 1.0) > 1e-13:
        return None
    count = modes(given.queries, given.log_mass, given.log_partition, rtol)
    return count if count is not None and circle_adjoint_cost(n, count) < adjoint_cost(n, d) else None
