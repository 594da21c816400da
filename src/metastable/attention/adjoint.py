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
from metastable.attention.sphere import laid_cost, lay_out, sphere_adjoint

FEWEST = {2: 128, 3: 3000}
"""Tokens from which series are considered, by dimension: all pairs of fewer take less than the tenth of a
millisecond that series on the circle begin with, and about as long as the search for a grid on S^2."""


def attention_adjoint(
    given: Backwards, ahead: int | None = None, *, rtol: float | None = None
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
    """(by_query, by_key) of `direct.adjoint`, in float64.

    rtol: the error that may be, for keys on a sphere, of which only movements along it count: then by_key may lack
    its part along the key. None: all pairs, all digits.
    """
    if rtol is not None and ahead is None and _has_series(given, rtol):
        if given.keys.shape[1] == 3:
            laid = lay_out(given, rtol)
            if laid is not None and laid_cost(laid) < adjoint_cost(len(given.keys), 3):
                return sphere_adjoint(given, laid)
        else:
            count = _modes(given, rtol)
            if count is not None:
                return circle_adjoint(given, count)
    return adjoint_over_pairs(given, ahead)


def _has_series(given: Backwards, rtol: float) -> bool:
    """Whether keys are on a sphere that has series, and so many that these are worth a look."""
    keys = given.keys
    n, d = keys.shape
    if d not in FEWEST or n < FEWEST[d] or rtol < LEAST_RTOL or not keys.is_cpu or keys.dtype != torch.float64:
        return False
    least, largest = squared_lengths(keys)
    return max(1.0 - least, largest - 1.0) <= 1e-13


def _modes(given: Backwards, rtol: float) -> int | None:
    """Modes of the series on the circle; None where all pairs are faster, or needed."""
    n, d = given.keys.shape
    count = modes(given.queries, given.log_mass, given.log_partition, rtol)
    return count if count is not None and circle_adjoint_cost(n, count) < adjoint_cost(n, d) else None
