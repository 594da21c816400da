"""Attention on S^2 by a Fourier grid of (theta, phi): a fixed cost per token, and a bound of the error of each row.

For keys k and queries z = A y, y on S^2 (A = beta B^T with y = k, or queries of one length), and mass one in total,
    T(y) = e^{-h(z)} sum_j m_j e^{<z, k_j>} (k_j, 1),   h = |z| or a little more (`sphere.plan`),
is a smooth function of the angles of y, and so is e^{<z, k> - h} as a function of the angles of k. On the torus
that covers the sphere twice (theta once around), both are known from N x N nodes, N about sqrt(8 |z| log(1/eps)):
1. masses are spread to a fine grid, and Fourier transforms make weights of the coarse nodes of them, so that
   sum_b w_b f(k_b) = sum_j m_j f(k_j) for all smooth f (`sphere.window`, `sphere.gridding`);
2. T is summed at the coarse nodes of y over nodes near Ay (`sphere.nodes`);
3. Fourier transforms bring T to the fine grid, and every query interpolates it there.
All this errs by at most eps relative to e^{h}, where eps is known before any token is seen: along the circles of
theta and of phi, e^{<z, k> - |z|} has the Fourier coefficients e^{-r} I_l(r), r <= |z|, and the window errs by a
known E_l on each. Hence the error of a row is at most 2 eps/T_4(y), known once T_4 is. It is small for queries that
look at keys, and useless for those that look away from all keys (clusters with B != I): rows with too large an
error are handed to the cells of `sphere.cells`, which hold there, too, but cost more per token.

Cost: about 0.55 us of CPU time per token, at any rtol, and O(beta log(1/rtol)) for the grids when A is a multiple
of a rotation; pairs of nodes, more of them for a matrix further from one, otherwise. Limits as for the cells, and
queries as above.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from scipy import fft
from torch import Tensor

from metastable.attention.direct import FUSED
from metastable.attention.operands import Operands
from metastable.attention.sphere.cells import attend_sphere_cells, checked_keys
from metastable.attention.sphere.gridding import columns_of, interpolator, rows_of, sort_tokens, spreader
from metastable.attention.sphere.nodes import attend_nodes, attend_rings
from metastable.attention.sphere.plan import Plan, Surface, plan, surface, thinned
from metastable.attention.sphere.window import Window, ellipsoid, lebesgue, von_mises
from metastable.errors import InvalidInput
from metastable.threads import over_rows

_FEW_ROWS = 600
"""So many rows over all keys cost less than the trees of the cells."""
_FEW_PAIRS = 12_000_000
"""Pairs, 3500 squared, up to which the search for a plan, some 10 ms, takes as long as all of them."""
_MOST_LOST = 0.02
"""Share of the sampled rows that the grid may leave to the cells before these are taken for all rows."""


def attend_sphere_grid(operands: Operands, rtol: float) -> tuple[Float[Tensor, "q 3"], Float[Tensor, "q"], float]:
    """m_i = sum_j m_j e^{beta <q_i, k_j>} k_j/Z_i,   Z_i = sum_j m_j e^{beta <q_i, k_j>},   keys on S^2.

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
    n = queries.shape[0]
    if n == 0:
        return queries.new_empty((0, 3)), queries.new_empty(0), 0.0
    where = operands.once(surface)
    if where is None:
        raise InvalidInput(
            "the grid on S^2 needs queries that are a matrix times the keys, or of one length; use kernel='sphere'"
        )
    grids = operands.once(plan, rtol)
    mean, log_partition = torch.empty((n, 3), dtype=torch.float64), torch.empty(n, dtype=torch.float64)
    errors = np.full(n, np.inf)
    rounding = 8.0 * np.finfo(np.float64).eps * (64.0 + where.longest)
    if grids is not None:
        total_mass = float(m.sum())
        total = log_partition.numpy()
        error = _attend_grid(where, k, m / total_mass, grids, mean.numpy(), total)
        with np.errstate(divide="ignore"):
            errors = np.where(total > error, 2.0 * error / (total - error), np.inf)
        squares = np.einsum("ic,ic->i", queries.numpy(), queries.numpy()) * operands.beta**2
        total[:] = np.log(np.maximum(total, 1e-300)) + np.sqrt(squares + grids.soft**2) + math.log(total_mass)
        errors += rounding + 2.0 * (where.longest * off_sphere + where.miss)
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
    return 350.0 * len(operands.keys) + 250.0 * len(operands.queries) + grids.nanoseconds


def _attend_grid(
    where: Surface, keys: np.ndarray, mass: np.ndarray, grids: Plan, mean: np.ndarray, total: np.ndarray
) -> float:  # fmt: skip
    """Fills the means and T_4 of all queries; returns the bound of their error relative to e^{h}."""
    kept = grids.window
    tokens = _sorted(keys, kept.fine)
    weights = _weights(tokens, mass, grids)
    fields, rounding = _fields(where, weights, grids)
    if where.points is not None:
        tokens = _sorted(where.points, kept.fine)
    order, theta, phi, _ = tokens
    interpolate = interpolator(kept.width, len(kept.table) - 1)

    def work(first: int, last: int) -> None:
        interpolate(theta, phi, order, first, last, kept.table, fields, mean, total)

    over_rows(work, len(order), cost=200.0 * len(order))
    return grids.error + rounding


def _sorted(points: np.ndarray, fine: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(order, theta, phi, where rows of bins begin) of points on the sphere, in steps of the fine grid."""
    n, scale = len(points), 0.5 * fine / math.pi
    theta = np.arctan2(np.hypot(points[:, 0], points[:, 1]), points[:, 2]) * scale
    phi = np.arctan2(points[:, 1], points[:, 0]) * scale
    phi[phi < 0.0] += fine
    order, row_start = np.empty(n, dtype=np.int64), np.empty(fine // 2 + 3, dtype=np.int64)
    sorted_theta, sorted_phi = np.empty(n), np.empty(n)
    sort_tokens(theta, phi, fine, order, sorted_theta, sorted_phi, row_start)
    return order, sorted_theta, sorted_phi, row_start


def _weights(
    tokens: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], mass: np.ndarray, grids: Plan
) -> np.ndarray:  # fmt: skip
    """(N/2, N): weights of the coarse nodes that stand for all keys."""
    kept, n = grids.window, grids.coarse_keys
    fine, width = kept.fine, kept.width
    order, theta, phi, row_start = tokens
    grid = np.zeros((rows_of(fine, width), columns_of(fine, width)))
    spread = spreader(width, len(kept.table) - 1)
    height = max(width, -(-(fine // 2 + 2) // 32))
    starts = np.append(row_start[:-1:height], row_start[-1])
    for parity in range(2):  # strips that touch the same nodes never run at once
        strips = range(parity, len(starts) - 1, 2)

        def work(first: int, last: int, strips: range = strips) -> None:
            for strip in strips[first:last]:
                spread(theta, phi, order, mass, starts[strip], starts[strip + 1], kept.table, grid)

        over_rows(work, len(strips), cost=100.0 * len(order))
    half = width // 2
    around = grid[:, half : half + fine].copy()
    around[:, fine - half :] += grid[:, :half]
    around[:, : half + 1] += grid[:, half + fine :]
    kept_modes = fft.rfft(around)[:, : n // 2]
    torus = np.zeros((fine, n // 2), dtype=np.complex128)
    torus[: len(grid) - half] = kept_modes[half:]
    torus[fine - half :] += kept_modes[:half]
    modes = _resized(fft.fft(torus, axis=0), n)
    modes /= np.conj(_symbol(kept, n))
    weights = fft.irfft(fft.ifft(modes, axis=0), n=n)
    return weights[: n // 2] + np.roll(weights[: n // 2 - 1 : -1], n // 2, axis=1)


def _fields(where: Surface, weights: np.ndarray, grids: Plan) -> tuple[np.ndarray, float]:
    """(rows, 4, columns): T on the padded fine grid; what it costs relative to e^{h}, aliases aside."""
    kept, n = grids.window, grids.coarse_queries
    fine, width, norm = kept.fine, kept.width, lebesgue(n)
    depth = math.log(norm**2 * float(np.abs(weights).sum()) / grids.pruned)
    if where.map is None:
        along, largest = attend_rings(where.longest, weights, depth)
    else:
        along, largest = _attend_ellipsoid(where, where.map, weights, grids, depth)
    symbol = _symbol(kept, n) * n**2
    rows_at = (np.arange(rows_of(fine, width)) - width // 2) % fine
    half = width // 2
    fields = np.empty((len(rows_at), 4, columns_of(fine, width)))
    rough = np.empty(4)
    for c in range(4):
        field = along[:, c, : n // 2]
        # On the other side of a pole, phi is turned by pi.
        torus = np.concatenate((field, field[::-1] * (1.0 - 2.0 * (np.arange(n // 2) % 2))))
        modes = fft.fft(torus, axis=0)
        # sum |T_lm| (E_l + E_m), both signs of m
        size = np.abs(modes) * (2.0 / n**2)
        rough[c] = size.sum(axis=1) @ kept.error[_frequencies(n)] + size.sum(axis=0) @ kept.error[: n // 2]
        modes = fft.ifft(_resized(modes / symbol, fine), axis=0, norm="forward")
        fields[:, c, half : half + fine] = fft.irfft(modes[rows_at], n=fine, norm="forward")
    fields[:, :, :half] = fields[:, :, fine : fine + half]
    fields[:, :, fine + half :] = fields[:, :, half : 2 * half + 1]
    interpolated = min(1.02 * max(float(np.linalg.norm(rough[:3])), rough[3]), grids.interpolated)
    return fields, interpolated + 1.1 * grids.pruned + _rounding(where, weights, largest, kept)


def _attend_ellipsoid(
    where: Surface, matrix: np.ndarray, weights: np.ndarray, grids: Plan, depth: float
) -> tuple[np.ndarray, float]:  # fmt: skip
    """As `attend_rings`: `attend_nodes` at A y for the nodes y of N/2 rings. Costs a tenth of `grids.pruned` more.

    Rings near the poles are known from fewer nodes, of keys and of queries.
    """
    n, norm, total = grids.coarse_queries, lebesgue(grids.coarse_queries), max(float(np.abs(weights).sum()), 1.0)
    rest = grids.pruned / (50.0 * norm**2 * total)
    source, counts = thinned(weights.shape[1], lambda high: von_mises(where.longest * high, n), rest)
    few = np.zeros_like(weights)
    modes = fft.rfft(weights)
    for ring, count in enumerate(counts):
        few[ring, :count] = (
            fft.irfft(modes[ring, : count // 2], n=count) if count < weights.shape[1] else weights[ring]
        )

    def bound(high: float) -> np.ndarray:
        return ellipsoid(where.longest * high, where.shortest, grids.soft, n)

    theta, on_ring = thinned(n, bound, rest)
    ends = np.cumsum(on_ring)
    phi = np.concatenate([np.arange(count) * (2.0 * math.pi / count) for count in on_ring])
    high, low = np.repeat(np.sin(theta), on_ring), np.repeat(np.cos(theta), on_ring)
    targets = np.stack((high * np.cos(phi), high * np.sin(phi), low), axis=1) @ matrix.T
    sums = np.empty((len(targets), 5))

    def work(first: int, last: int) -> None:
        attend_nodes(targets[first:last], source, counts, few, grids.soft, depth, sums[first:last])

    over_rows(work, len(targets), cost=1e3 * len(targets), quantum=512)
    along = np.zeros((n // 2, 4, n // 2 + 1), dtype=np.complex128)
    for ring, count in enumerate(on_ring):
        half = count // 2
        values = sums[ends[ring] - count : ends[ring], :4]
        along[ring, :, :half] = fft.rfft(values, axis=0)[:half].T * (n / count)
    return along, float(sums[:, 4].max())


def _symbol(kept: Window, n: int) -> np.ndarray:
    """(N, N/2): e^{il pi/N} psi_l psi_m, for nodes theta that begin half a step from the pole."""
    along = kept.transform[_frequencies(n)] * np.exp(1j * math.pi / n * np.fft.fftfreq(n, 1.0 / n))
    return along[:, None] * kept.transform[: n // 2]


def _frequencies(n: int) -> np.ndarray:
    """|l| of the rows of a transform: 0, 1, ..., n/2, ..., 1."""
    return np.minimum(np.arange(n), n - np.arange(n))


def _resized(modes: np.ndarray, n: int) -> np.ndarray:
    """Rows of a transform cut off or filled with zeros to n; the mode N/2 of the smaller is left out."""
    half = min(n, len(modes)) // 2
    out = np.zeros((n, modes.shape[1]), dtype=np.complex128)
    out[:half] = modes[:half]
    out[1 - half :] = modes[1 - half :]
    return out


def _rounding(where: Surface, weights: np.ndarray, largest: float, kept: Window) -> float:
    """Rounding relative to e^{h}: of the scores at the nodes, and of the transforms before and after."""
    eps = np.finfo(np.float64).eps
    stages = 8.0 * eps * 2.0 * math.log2(kept.fine)
    # The nodes within reach of a target, counted with the squares of their weights; most of them near a pole.
    reached = math.sqrt(weights.size / (1.0 + math.sqrt(where.shortest)))
    before = stages * float(np.linalg.norm(weights)) * reached
    return eps * (16.0 + 4.0 * where.longest) * largest + before + stages * largest
