"""Attention on S^2 by a Fourier grid of (theta, phi): a fixed cost per token, and a bound of the error of each
row.

For keys k, queries z = beta q on a sphere or an ellipsoid with the coordinates v on S^2 (`sphere.ellipsoid`),
and mass one in total,
    T(v) = e^{-h(z)} sum_j m_j e^{<z, k_j>} (k_j, 1),   h = |z| or a little more (`sphere.plan`),
is a smooth function of the angles of v, and so is e^{<z, k> - h} as a function of the angles of k. On the torus
that covers the sphere twice (theta once around), both are known from N x N nodes, N about sqrt(8 |z|
log(1/eps)):
1. masses are spread to a fine grid (`sphere.gridding`), and Fourier transforms make weights of coarse nodes of them
   (`sphere.transforms`);
2. T is summed at the coarse nodes of v, whose rings meet those of the keys mode by mode
   (`sphere.ring_sums`);
3. Fourier transforms bring T to the fine grid, and every query interpolates it there.
All this errs by at most eps relative to e^{h}, where eps is known before any token is seen: along the circles
of theta and of phi, e^{<z, k> - |z|} has the Fourier coefficients e^{-r} I_l(r), r <= |z|, and the window errs
by a known E_l on each (`sphere.window`). Hence the error of a row is at most 2 eps/T_4(v), known once T_4 is.
It is small for queries that look at keys, and useless for those that look away from all keys (clusters with B
!= I): rows with too large an error are handed to the cells of `sphere.cells`, which hold there, too, but cost
more per token.

Cost: about 0.3 us of CPU time per token on a Zen 5 core, at any rtol, and O(beta log(1/rtol)^2) for the grids, up
to a few times as much when A is no multiple of a rotation. Limits as for the cells, and queries as above.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from metastable.attention.direct import FUSED
from metastable.attention.exp2 import log, wide
from metastable.attention.operands import Operands
from metastable.attention.sphere.cells import attend_sphere_cells, checked_keys, other_values
from metastable.attention.sphere.gridding import columns_of, interpolator, rows_of
from metastable.attention.sphere.kept import kept_array
from metastable.attention.sphere.layout import laid_out, largest_sums, meet, sum_of_sizes
from metastable.attention.sphere.nodes import with_sizes
from metastable.attention.sphere.plan import plan, planned, surface
from metastable.attention.sphere.transforms import fine_field, node_weights, placed, spectra
from metastable.errors import InvalidInput
from metastable.threads import over_rows

_FEW_ROWS = 600
"""So many rows over all keys cost less than the trees of the cells."""
_FEW_PAIRS = 12_000_000
"""Pairs, 3500 squared, up to which the search for a plan, some 4 ms, takes as long as all of them."""
SEARCH = 4e6
"""Nanoseconds of the search for a plan, rtol 1e-7 to 1e-10, beta 64."""
_BLOCK = 512
"""Rows that are judged together."""
_STEP = 1.25
"""Sizes of weights are rounded up to a power of it: for all tokens along a step they are then the same."""
_MOST_LOST = 0.02
"""Share of the sampled rows that the grid may leave to the cells before these are taken for all rows."""


def attend_sphere_grid(
    operands: Operands, rtol: float, dense: float | None = None
) -> tuple[Float[Tensor, "q v"], Float[Tensor, "q"], float]:
    """m_i = sum_j m_j e^{beta <q_i, k_j>} v_j/Z_i,   Z_i = sum_j m_j e^{beta <q_i, k_j>},   keys on S^2.

    Returns (mean, log Z, error) as `attend_sphere_cells`, for queries that are a matrix times the keys or of one
    length; rows whose bound exceeds rtol come from the cells. dense: what the grid errs by at most relative to the
    most that a row could attend to, which rows in a crowd do; rtol is for those in thin air then.

    >>> x = torch.eye(3, dtype=torch.float64)
    >>> equal = torch.full((3,), 1 / 3, dtype=torch.float64)
    >>> mean, log_z, error = attend_sphere_grid(Operands(x, x, x, equal, 2.0), 1e-8)
    >>> round(mean[0, 0].item(), 8), round(math.exp(2) / (math.exp(2) + 2), 8), error < 1e-8
    (0.78698604, 0.78698604, True)
    """
    k, m, off_sphere = checked_keys(operands, rtol)
    queries = operands.queries
    n, d_v = queries.shape[0], operands.values.shape[1]
    if n == 0:
        return queries.new_empty((0, d_v)), queries.new_empty(0), 0.0
    where = operands.once(surface)
    if where is None:
        raise InvalidInput(
            "the grid on S^2 needs queries that are a matrix times the keys, or of one length; use kernel='sphere'"
        )
    asked = (rtol,) if dense is None else (dense, False, False)
    grids = planned(operands, *asked).once(plan, *asked)
    mean, log_partition = torch.empty((n, d_v), dtype=torch.float64), torch.empty(n, dtype=torch.float64)
    errors = np.full(n, np.inf)
    rounding = 8.0 * np.finfo(np.float64).eps * (64.0 + where.longest)
    if grids is not None:
        total_mass = float(m.sum())
        total = log_partition.numpy()
        error, shared = _attend_grid(operands, asked, k, m / total_mass, mean.numpy(), total)
        along, log_mass = operands.queries.numpy(), math.log(total_mass)
        constant = rounding + 2.0 * where.longest * off_sphere

        def work(first: int, last: int) -> None:
            _judge(
                along[first:last], operands.beta, grids.soft, error, shared, constant, 4.0 * where.miss, log_mass,
                total[first:last], errors[first:last],
            )  # fmt: skip

        over_rows(work, n, cost=10.0 * n, quantum=_BLOCK)
    failed = np.flatnonzero(~(errors <= rtol))
    bound = float(errors.max(initial=rounding, where=errors <= rtol))
    if len(failed):
        rows = torch.from_numpy(failed)
        left = operands.of_queries(rows)
        if len(failed) <= _FEW_ROWS:
            found = FUSED(left)
            mean[rows], log_partition[rows] = found.mean, found.log_partition
        else:
            part = attend_sphere_cells(left, rtol)
            mean[rows], log_partition[rows], bound = part[0], part[1], max(bound, part[2])
    return mean, log_partition, bound


def is_laid_out(operands: Operands, dense: float) -> bool:
    """Whether there are grids with that error relative to the most that a row could attend to, and many tokens."""
    asked = dense, False, False
    return operands.pairs > _FEW_PAIRS and planned(operands, *asked).once(plan, *asked) is not None


@njit(cache=True, nogil=True, error_model="numpy")
def _judge(
    queries: Any, beta: float, soft: float, error: float, shared: float, constant: float, missed: float,
    log_mass: float, total: Any, errors: Any,
) -> None:  # fmt: skip
    """From T to log Z, in place, and bounds of the errors of all rows, infinite where T is less than its own."""
    wide()
    squares = np.empty(_BLOCK)
    for first in range(0, len(queries), _BLOCK):
        count = min(_BLOCK, len(queries) - first)
        for i in range(count):
            x, y, z = queries[first + i, 0], queries[first + i, 1], queries[first + i, 2]
            squares[i] = (x * x + y * y + z * z) * (beta * beta)
        sums, found = total[first : first + count], errors[first : first + count]
        for i in range(count):
            # Of all nodes, a share within reach of a target of that length; most of them near a pole.
            relative = error + shared / np.sqrt(1.0 + np.sqrt(0.8 * np.sqrt(squares[i])))
            left = sums[i] - relative
            depth = log(max(sums[i], 1e-300))
            # Queries longer by 1 + miss have their x = |z| - <z, k> times that: weights e^-x differ by miss x e^-x,
            # which is at most L (e^-x + e^-L) miss for every L >= 1.
            bound = 2.0 * relative / left + constant + missed * (1.0 - depth)
            found[i] = bound if left > 0.0 else np.inf
            sums[i] = depth + np.sqrt(squares[i] + soft * soft) + log_mass


def grid_cost(operands: Operands, rtol: float) -> float:
    """Forecast of the nanoseconds of `attend_sphere_grid`; infinite where it would leave many rows to the cells."""
    if operands.pairs <= _FEW_PAIRS:
        return math.inf
    grids = operands.once(plan, rtol)
    if grids is None or grids.lost > _MOST_LOST:
        return math.inf
    d_v = operands.values.size(1)
    spread, read = (1, 1) if operands.values_are_keys else (d_v + 1, -(-d_v // 3))
    per_key, per_query = 50.0 + 66.0 * spread, 16.0 + 66.0 * read
    tokens = per_key * len(operands.keys) + per_query * len(operands.queries)
    return tokens + (0.8 + 0.2 * spread) * grids.nanoseconds


def _attend_grid(
    operands: Operands,
    asked: tuple[Any, ...],
    keys: np.ndarray,
    mass: np.ndarray,
    mean: np.ndarray,
    total: np.ndarray,
) -> tuple[float, float]:
    """Fills the means and the total T of all queries by the `plan` that is asked for; returns a bound of their
    errors relative to e^{h}, and what rounding of all nodes adds to it.
    """
    leading = planned(operands, *asked)
    where, grids = operands.once(surface), leading.once(plan, *asked)
    assert where is not None and grids is not None
    kept = grids.window
    tokens = placed(keys, kept.fine, where.turn)
    values, longest_value = other_values(operands)
    columns = [mass] if values is None else [*(values.T * mass), mass]
    modes = [spectra(tokens, column[:, None], kept, grids.coarse_keys)[0] for column in columns]
    fields, error, before = _fields(leading, asked, modes)
    if where.ellipsoid is not None:
        tokens = placed(operands.queries.numpy(), kept.fine, where.ellipsoid.chart(grids.stretch))
    elif where.points is not None:
        tokens = placed(where.points, kept.fine)
    interpolate = interpolator(kept.width, len(kept.table) - 1)
    for column in range(0, mean.shape[1], 3):
        part = [min(c, mean.shape[1] - 1) for c in range(column, column + 3)]
        at_once = fields if fields.shape[1] == 4 else np.ascontiguousarray(fields[:, [*part, -1]])
        three = mean if mean.shape[1] == 3 else np.empty((len(mean), 3))

        def work(first: int, last: int, fields: np.ndarray = at_once, three: np.ndarray = three) -> None:
            interpolate(tokens.theta, tokens.phi, tokens.order, first, last, kept.table, fields, three, total)

        over_rows(work, len(tokens.order), cost=200.0 * len(tokens.order))
        mean[:, part] = three
    if longest_value != 1.0:
        mean *= longest_value
    return grids.error + error, before


def _fields(leading: Operands, asked: tuple[Any, ...], modes: list[np.ndarray]) -> tuple[np.ndarray, float, float]:
    """(rows, c, columns): T on the padded fine grid; its error relative to e^{h}, aliases aside; and what rounding
    of the weights of all nodes adds up to.
    """
    grids = leading.once(plan, *asked)
    assert grids is not None
    kept, n = grids.window, grids.coarse_queries
    weights = np.stack([node_weights(part, kept, grids.coarse_keys) for part in modes], axis=1)
    nothing = np.empty((n // 2, 0, n))
    size = sum_of_sizes(weights)
    size = _STEP ** math.ceil(math.log(size) / math.log(_STEP))
    nodes, targets, lines = leading.once(laid_out, size, *asked)
    columns = with_sizes(weights, nodes)
    along, _ = meet(lines, columns[:, :-1], nothing, size, grids)
    largest, steepest = largest_sums(targets, columns[:, -1], grids)
    shape = rows_of(kept.fine, kept.width), along.shape[2], columns_of(kept.fine, kept.width)
    fields = kept_array("fields", shape)
    rough = np.empty(along.shape[2])

    def work(first: int, last: int) -> None:
        for c in range(first, last):
            rough[c] = fine_field(along[:, : n // 2, c], kept, fields[:, c])

    over_rows(work, len(rough), cost=20.0 * kept.fine**2 * len(rough))
    interpolated = min(1.02 * max(float(np.linalg.norm(rough[:-1])), rough[-1]), grids.interpolated)
    # Rounding of the scores at the nodes, and of the transforms before and after.
    eps = np.finfo(np.float64).eps
    stages = 8.0 * eps * 2.0 * math.log2(kept.fine)
    rounding = eps * (16.0 * largest + 4.0 * steepest) + stages * largest
    before = stages * float(np.linalg.norm(weights)) * math.sqrt(weights[:, 0].size)
    return fields, interpolated + 1.1 * grids.pruned + rounding, before
