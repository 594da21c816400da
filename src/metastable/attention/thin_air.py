"""`attend_in_thin_air`: attention on S^2 whose error is relative to the most that a token could attend to.

T_i = Z_i e^{-beta |q_i|} <= 1 is about the mass near where a token looks. Who follows a density needs error_i T_i
below a bound: in thin air little mass moves wrongly, however wrong it is. One relative error for all would be too
small there, where tokens are summed one by one for it, or too large in a crowd.
"""

from __future__ import annotations

from metastable.attention.attend import attend_operands
from metastable.attention.kernel import Attended
from metastable.attention.operands import Operands
from metastable.attention.sphere import SPHERE_GRID, attend_sphere_grid, is_laid_out

LEAST_ASKED, LARGEST_RTOL = 1e-10, 1e-2
"""Range of the relative error of a row: where hardly any mass is, it need not be small."""
_EMPTY = 1e-300
"""T_i that rounds to zero."""


def attend_in_thin_air(
    operands: Operands, error: float, thinnest: float, largest: float = LARGEST_RTOL
) -> Attended:
    """Attention with error_i T_i <= error where a grid can be laid out, and with error_i <= error elsewhere.

    thinnest: about the least T_i, for whose rows error/thinnest is enough, up to `largest`. No error is asked to be
    below `LEAST_ASKED`.
    """
    rtol = min(max(error / max(thinnest, _EMPTY), LEAST_ASKED), largest)
    if operands.device != "cpu":
        return attend_operands(operands, "auto", rtol)
    seen = operands.seen
    if rtol > LEAST_ASKED and SPHERE_GRID.fits(seen, rtol) and is_laid_out(seen, error):
        mean, log_partition, stated = attend_sphere_grid(seen, rtol, error)
        return Attended(mean, log_partition, kernel=SPHERE_GRID.name, error=stated)
    return attend_operands(operands, "auto", max(error, LEAST_ASKED))
