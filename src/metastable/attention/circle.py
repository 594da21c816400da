"""Sub-quadratic attention on the circle (d = 2, keys of unit length, any queries, any masses), with a stated error.

With z = beta q, the sum F(z) = sum_j m_j e^{<z, k_j>} and its gradient are smooth on both sides. Keys become
proxies, p per cell (`circle_keys`). Queries are collected in patches (an angular cell and the range of |z| in it);
F e^{-<z, u>} is computed at the Chebyshev nodes of a patch from the proxies that matter there (`circle_patch`) and
interpolated.
Patches with few queries are not worth their nodes: these queries sum over the proxies themselves. All sums are
positive cell by cell and shifted by <z, u>, so errors are relative and survive clusters, gaps and large beta.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from metastable.attention.circle_keys import COARSEST, KeyCells, chebyshev_nodes, circle_cells, diamond, gather_keys
from metastable.attention.circle_patch import MOST, direct, solve_patch, steepest_key_error
from metastable.attention.fused import contiguous
from metastable.errors import InvalidInput
from metastable.threads import over_rows

FINEST = 17
"""Level of the finest cells that are made; a sharper softmax than they resolve is flagged by the error."""


def attend_circle(
    queries: Float[Tensor, "q 2"],
    keys: Float[Tensor, "k 2"],
    values: Float[Tensor, "k 2"],
    mass: Float[Tensor, "k"],
    beta: float,
    rtol: float,
) -> tuple[Float[Tensor, "q 2"], Float[Tensor, "q"], float]:
    """(mean, log Z, error) of `attend` in O(n_q + n_k) for unit keys in the plane that are their own values.

    `error` bounds the relative error of Z and the error of the mean (whose values have length one); it exceeds
    `rtol` when the tolerance was not reached, for instance because the keys are not on the circle.
    """
    if keys.shape[1] != 2 or (values is not keys and not torch.equal(values, keys)):
        raise InvalidInput('kernel="circle" needs keys in the plane (d = 2) that are their own values')
    k, m, z = (contiguous(x.double()) for x in (keys, mass, queries))
    if m.min() <= 0.0:
        k, m = k[m > 0.0], m[m > 0.0]
    z = beta * z
    scale = float(m.max())
    sharpest = math.sqrt(float(np.einsum("ij,ij->i", z, z).max(initial=0.0)))
    off_circle = float(np.abs(np.einsum("ij,ij->i", k, k) - 1.0).max())
    p = next((p for p, least in ((8, 1e-6), (12, 1e-8), (16, 1e-11)) if rtol >= least), 20)
    found = gather_keys(k, m / scale, finest_level(sharpest, p, rtol), p)
    mean, log_partition, error = _attend_patches(found, z, sharpest, rtol)
    log_partition += math.log(scale)
    error += sharpest * off_circle + 4e-16 * (4.0 + sharpest)
    out = torch.from_numpy(mean).to(queries.dtype), torch.from_numpy(log_partition).to(queries.dtype)
    if queries.dtype == torch.float32:
        error += 1.2e-7 * (1.0 + sharpest)
    return *out, error


def finest_level(sharpest: float, p: int, rtol: float) -> int:
    """Level whose cells are interpolated by p nodes to a fifth of rtol even where the score is steepest."""
    level = COARSEST + 1
    while level < FINEST and steepest_key_error(1.08 * 4.0 / 2**level, sharpest, p) > 0.2 * rtol:
        level += 1
    return level


def _attend_patches(found: KeyCells, z: np.ndarray, sharpest: float, rtol: float) -> tuple[Any, Any, float]:
    n = len(z)
    width = math.sqrt(2.0 * (10.0 - math.log(rtol)) / max(sharpest, 1e-3))
    level = math.ceil(math.log2(max(sharpest * min(width, 1.0), 8.0 * math.sqrt(sharpest), 1.0)))
    level = min(max(level, COARSEST), found.finest, 10)
    # Narrower patches than scanned key cells need lower orders, which pays when there are many queries.
    finer = min(level + 2, max(level, int(math.log2(max(n, 1) / 1000.0)) if n > 1000 else 0), 10)
    count, first = 2**finer, 2**finer - 2**COARSEST
    cells = circle_cells(max(found.finest, finer))
    patch = np.empty(n, dtype=np.int32)
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def sort(start: int, stop: int) -> None:
        low, high, many = np.full(count, np.inf), np.zeros(count), np.zeros(count, dtype=np.int64)
        _patches(z[start:stop], patch[start:stop], low, high, many)
        parts.append((low, high, many))

    over_rows(sort, n, cost=10.0 * n)
    low = np.minimum.reduce([part[0] for part in parts])
    high = np.maximum.reduce([part[1] for part in parts])
    many = np.sum([part[2] for part in parts], axis=0)
    orders = np.zeros((count, 2), dtype=np.int64)
    one_length = not (high - low > 1e-13 * high).any()
    coefficients = np.empty((count, 3, 1 if one_length else MOST, MOST))
    towards, errors = np.empty((count, 2)), np.zeros(count)
    nodes = np.zeros((MOST + 1, MOST))
    for order in range(1, MOST + 1):
        nodes[order, :order] = chebyshev_nodes(order)
    p_nodes = chebyshev_nodes(found.weight.shape[1])
    keys_side = cells.centre, cells.half, found.weight, found.log_mass, found.finest, p_nodes
    occupied = np.flatnonzero(many)

    def solve(start: int, stop: int) -> None:
        for c in occupied[start:stop]:
            errors[c] = solve_patch(
                *keys_side,
                level,
                first + c,
                low[c],
                high[c],
                many[c],
                rtol,
                nodes,
                coefficients[c],
                towards[c],
                orders[c],
            )

    over_rows(solve, len(occupied), cost=3e4 * len(occupied))
    mean, log_partition = np.empty((n, 2)), np.empty(n)
    worst: list[float] = [float(errors.max(initial=0.0))]

    def evaluate(start: int, stop: int) -> None:
        patches = (
            cells.centre[first:],
            1.0 / np.sin(cells.half[first : first + count]),
            low,
            high,
            orders,
            coefficients,
            towards,
        )
        error = _evaluate(
            z[start:stop],
            patch[start:stop],
            *patches,
            *keys_side,
            level,
            rtol,
            mean[start:stop],
            log_partition[start:stop],
        )
        worst.append(error)

    alone = int(many[orders[:, 0] == 0].sum())
    over_rows(evaluate, n, cost=40.0 * n + 3000.0 * alone)
    return mean, log_partition, max(worst)


@njit(nogil=True, cache=True, error_model="numpy")
def _patches(z: Any, patch: Any, low: Any, high: Any, many: Any) -> None:
    """The angular cell of every query, and per cell the least and largest |z| and the number of queries."""
    count = low.shape[0]
    scale = count / 4.0
    for i in range(z.shape[0]):
        x, y = z[i, 0], z[i, 1]
        c = min(int(diamond(x, y) * scale), count - 1)
        size = math.sqrt(x * x + y * y)
        patch[i] = c
        low[c] = min(low[c], size)
        high[c] = max(high[c], size)
        many[c] += 1


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _evaluate(
    z: Any,
    patch: Any,
    patch_centre: Any,
    patch_inverse_sine: Any,
    low: Any,
    high: Any,
    orders: Any,
    coefficients: Any,
    towards: Any,
    centre: Any,
    half: Any,
    weight: Any,
    log_mass: Any,
    finest: int,
    p_nodes: Any,
    level: int,
    rtol: float,
    mean: Any,
    log_partition: Any,
) -> float:
    """Clenshaw's sums of the patches, and sums over proxies for queries of patches that were left alone."""
    worst = 0.0
    found = np.empty(4)
    for i in range(z.shape[0]):
        c = patch[i]
        x, y = z[i, 0], z[i, 1]
        rows, columns = orders[c, 0], orders[c, 1]
        if rows == 0:
            worst = max(worst, direct(centre, half, weight, log_mass, finest, p_nodes, level, x, y, rtol, found))
            mean[i, 0], mean[i, 1], log_partition[i] = found[0], found[1], found[2]
            continue
        size = math.sqrt(x * x + y * y)
        s = 0.0
        if size > 0.0:
            s = (patch_centre[c, 0] * y - patch_centre[c, 1] * x) * patch_inverse_sine[c] / size
        r = 0.0
        if rows > 1:
            r = (2.0 * size - low[c] - high[c]) / (high[c] - low[c])
        a0 = a1 = b0 = b1 = d0 = d1 = 0.0
        for row in range(rows - 1, -1, -1):
            u0 = u1 = v0 = v1 = w0 = w1 = 0.0
            for k in range(columns - 1, 0, -1):
                u0, u1 = coefficients[c, 0, row, k] + 2.0 * s * u0 - u1, u0
                v0, v1 = coefficients[c, 1, row, k] + 2.0 * s * v0 - v1, v0
                w0, w1 = coefficients[c, 2, row, k] + 2.0 * s * w0 - w1, w0
            u = coefficients[c, 0, row, 0] + s * u0 - u1
            v = coefficients[c, 1, row, 0] + s * v0 - v1
            w = coefficients[c, 2, row, 0] + s * w0 - w1
            if row > 0:
                a0, a1 = u + 2.0 * r * a0 - a1, a0
                b0, b1 = v + 2.0 * r * b0 - b1, b0
                d0, d1 = w + 2.0 * r * d0 - d1, d0
            else:
                a0, b0, d0 = u + r * a0 - a1, v + r * b0 - b1, w + r * d0 - d1
        mean[i, 0] = towards[c, 0] + b0 / a0
        mean[i, 1] = towards[c, 1] + d0 / a0
        log_partition[i] = math.log(a0) + x * towards[c, 0] + y * towards[c, 1]
    return worst
