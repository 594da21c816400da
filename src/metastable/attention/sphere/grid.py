"""Attention on S^2 by a Fourier grid of (theta, phi): a fixed cost per token, and a bound of the error of each
row.

For keys k, queries z = beta q on a sphere or an ellipsoid with the coordinates v on S^2 (`sphere.ellipsoid`),
and mass one in total,
    T(v) = e^{-h(z)} sum_j m_j e^{<z, k_j>} (k_j, 1),   h = |z| or a little more (`sphere.plan`),
is a smooth function of the angles of v, and so is e^{<z, k> - h} as a function of the angles of k. On the torus
that covers the sphere twice (theta once around), both are known from N x N nodes, N about sqrt(8 |z|
log(1/eps)):
1. masses are spread to a fine grid (`sphere.gridding`), and Fourier transforms make weights of coarse nodes of them
   (`sphere.transforms`), fewer nodes for shorter queries;
2. T is summed at the coarse nodes of v over nodes near z (`sphere.nodes`);
3. Fourier transforms bring T to the fine grid, and every query interpolates it there.
All this errs by at most eps relative to e^{h}, where eps is known before any token is seen: along the circles
of theta and of phi, e^{<z, k> - |z|} has the Fourier coefficients e^{-r} I_l(r), r <= |z|, and the window errs
by a known E_l on each (`sphere.window`). Hence the error of a row is at most 2 eps/T_4(v), known once T_4 is.
It is small for queries that look at keys, and useless for those that look away from all keys (clusters with B
!= I): rows with too large an error are handed to the cells of `sphere.cells`, which hold there, too, but cost
more per token.

Cost: about 0.55 us of CPU time per token, at any rtol, and O(beta log(1/rtol)) for the grids when A is a
multiple of a rotation; otherwise O(beta log(1/rtol)^2) pairs of nodes. Limits as for the cells, and queries as
above.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.direct import FUSED
from metastable.attention.operands import Operands
from metastable.attention.sphere.cells import attend_sphere_cells, checked_keys, other_values
from metastable.attention.sphere.ellipsoid import Ellipsoid
from metastable.attention.sphere.gridding import columns_of, interpolator, rows_of
from metastable.attention.sphere.layout import along_rings, chart_nodes, depth, level_nodes, levels, sum_of_sizes
from metastable.attention.sphere.nodes import NOBODY, attend_rings, node_attention, ring_nodes, with_sizes
from metastable.attention.sphere.plan import Plan, Surface, plan, surface
from metastable.attention.sphere.transforms import fine_field, node_weights, placed, spectra
from metastable.attention.sphere.window import Window
from metastable.errors import InvalidInput
from metastable.threads import over_rows

_FEW_ROWS = 600
"""So many rows over all keys cost less than the trees of the cells."""
_FEW_PAIRS = 12_000_000
"""Pairs, 3500 squared, up to which the search for a plan, some 10 ms, takes as long as all of them."""
SEARCH = 1e7
"""Nanoseconds of the search for a plan, rtol 1e-6 to 1e-10, beta 1 to 1000."""
_MOST_LOST = 0.02
"""Share of the sampled rows that the grid may leave to the cells before these are taken for all rows."""


def attend_sphere_grid(operands: Operands, rtol: float) -> tuple[Float[Tensor, "q v"], Float[Tensor, "q"], float]:
    """m_i = sum_j m_j e^{beta <q_i, k_j>} v_j/Z_i,   Z_i = sum_j m_j e^{beta <q_i, k_j>},   keys on S^2.

    Returns (mean, log Z, error) as `attend_sphere_cells`, for queries that are a matrix times the keys or of one
    length; rows whose bound exceeds rtol come from the cells.

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
    grids = operands.once(plan, rtol)
    mean, log_partition = torch.empty((n, d_v), dtype=torch.float64), torch.empty(n, dtype=torch.float64)
    errors = np.full(n, np.inf)
    rounding = 8.0 * np.finfo(np.float64).eps * (64.0 + where.longest)
    if grids is not None:
        total_mass = float(m.sum())
        total = log_partition.numpy()
        error = _attend_grid(operands, where, k, m / total_mass, grids, mean.numpy(), total)
        with np.errstate(divide="ignore"):
            errors = np.where(total > error, 2.0 * error / (total - error), np.inf)
        squares = np.einsum("ic,ic->i", queries.numpy(), queries.numpy()) * operands.beta**2
        depths = np.log(np.maximum(total, 1e-300))
        # Queries longer by 1 + miss have their x = |z| - <z, k> times that: weights e^-x differ by miss x e^-x,
        # which is at most L (e^-x + e^-L) miss for every L >= 1.
        errors += rounding + 2.0 * where.longest * off_sphere + 4.0 * where.miss * (1.0 - depths)
        total[:] = depths + np.sqrt(squares + grids.soft**2) + math.log(total_mass)
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


def grid_cost(operands: Operands, rtol: float) -> float:
    """Forecast of the nanoseconds of `attend_sphere_grid`; infinite where it would leave many rows to the cells."""
    if operands.pairs <= _FEW_PAIRS:
        return math.inf
    grids = operands.once(plan, rtol)
    if grids is None or grids.lost > _MOST_LOST:
        return math.inf
    d_v = operands.values.size(1)
    spread, read = (1, 1) if operands.values_are_keys else (d_v + 1, -(-d_v // 3))
    per_key, per_query = 150.0 + 200.0 * spread, 50.0 + 200.0 * read
    tokens = per_key * len(operands.keys) + per_query * len(operands.queries)
    return tokens + (0.8 + 0.2 * spread) * grids.nanoseconds


def _attend_grid(
    operands: Operands, where: Surface, keys: np.ndarray, mass: np.ndarray, grids: Plan, mean: np.ndarray,
    total: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Fills the means and the total T of all queries; returns bounds of their errors relative to e^{h}."""
    kept = grids.window
    tokens = placed(keys, kept.fine)
    values, longest_value = other_values(operands)
    columns = [mass] if values is None else [*(values.T * mass), mass]
    modes = [spectra(tokens, column[:, None], kept, grids.coarse_keys)[0] for column in columns]
    fields, errors = _fields(where, modes, grids)
    if where.ellipsoid is not None:
        tokens = placed(where.ellipsoid.chart(grids.power, operands.queries.numpy()), kept.fine)
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
    if len(errors) > 1:
        lengths = np.sqrt(np.einsum("ic,ic->i", operands.queries.numpy(), operands.queries.numpy())) * operands.beta
        # A row near the shortest queries of a level interpolates between nodes of the next one, too.
        level = np.log2(where.longest / np.maximum(0.8 * lengths, 1e-300)).astype(np.int64)
        errors = errors[np.clip(level, 0, len(errors) - 1)]
    return grids.error + errors


def _fields(where: Surface, modes: list[np.ndarray], grids: Plan) -> tuple[np.ndarray, np.ndarray]:
    """(rows, c, columns): T on the padded fine grid; its error relative to e^{h} at each level, aliases aside."""
    kept, n = grids.window, grids.coarse_queries
    if where.ellipsoid is None:
        weights = np.stack([node_weights(part, kept, n) for part in modes], axis=1)
        rings = np.arange(len(weights))
        nodes = ring_nodes((rings + 0.5) * (math.pi / len(rings)), np.full(len(rings), n), n)
        along, largest = attend_rings(
            where.longest, with_sizes(weights, nodes), depth(sum_of_sizes(weights), grids)
        )
        rounding = [_rounding(where.longest, where.shortest, weights, largest, kept)]
    else:
        along, rounding = _attend_ellipsoid(where.ellipsoid, modes, grids)
    fields = np.empty((rows_of(kept.fine, kept.width), along.shape[1], columns_of(kept.fine, kept.width)))
    rough = np.array([fine_field(along[:, c, : n // 2], kept, fields[:, c]) for c in range(along.shape[1])])
    interpolated = min(1.02 * max(float(np.linalg.norm(rough[:-1])), rough[-1]), grids.interpolated)
    return fields, interpolated + 1.1 * grids.pruned + np.array(rounding)


def _attend_ellipsoid(
    where: Ellipsoid, modes: list[np.ndarray], grids: Plan
) -> tuple[np.ndarray, list[float]]:  # fmt: skip
    """Sums as those of `attend_rings`, at z(v) for the nodes v of N/2 rings, and their rounding at each level."""
    kept, chart = grids.window, chart_nodes(where, grids)
    columns = 4 if len(modes) == 1 else len(modes)
    sums, rounding = np.empty((len(chart.targets), columns)), []
    for rows, above, (longest, count) in levels(chart, grids):
        weights = np.stack([node_weights(part, kept, count) for part in modes], axis=1)
        found = _attend_level(chart.targets[rows], weights, longest, grids)
        sums[rows] = found[:, :-1]
        largest = float(found[:, -1].max(initial=0.0))
        rounding.append(_rounding(longest, max(above, float(where.axes.min())), weights, largest, kept))
    return along_rings(sums, chart.counts, grids.coarse_queries), rounding


def _attend_level(targets: np.ndarray, weights: np.ndarray, longest: float, grids: Plan) -> np.ndarray:
    """(n, c + 1): sums at targets that are no longer than `longest` over the nodes with weights (rings, c, N)."""
    rings, few = level_nodes(weights, longest, grids)
    columns = with_sizes(few, rings.nodes)
    attend, reach = node_attention(columns.shape[1]), depth(sum_of_sizes(weights), grids)
    sums = np.empty((len(targets), columns.shape[1]))

    def work(first: int, last: int) -> None:
        attend(targets[first:last], *rings, columns, grids.soft, reach, sums[first:last], NOBODY, NOBODY)

    over_rows(work, len(targets), cost=1e3 * len(targets), quantum=512)
    return sums


def _rounding(longest: float, shortest: float, weights: np.ndarray, largest: float, kept: Window) -> float:
    """Rounding relative to e^{h}: of the scores at the nodes, and of the transforms before and after."""
    eps = np.finfo(np.float64).eps
    stages = 8.0 * eps * 2.0 * math.log2(kept.fine)
    # The nodes within reach of a target, counted with the squares of their weights; most of them near a pole.
    reached = math.sqrt(weights[:, 0].size / (1.0 + math.sqrt(shortest)))
    before = stages * float(np.linalg.norm(weights)) * reached
    return eps * (16.0 + 4.0 * longest) * largest + before + stages * largest
