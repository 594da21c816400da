"""Queries anywhere in the plane against keys on the circle: patches in angle and |z|, z = beta q.

F e^{-<z, u>} and its gradient are computed at the rows x columns Chebyshev nodes of a patch, an angular cell and an
octave of |z|, from the proxies that matter there, and interpolated. Patches with fewer queries than nodes are
summed over the proxies themselves.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit

from metastable.attention.circle.bounds import least_order
from metastable.attention.circle.chebyshev import MOST, chebyshev_tables
from metastable.attention.circle.keys import COARSEST, KeyCells, circle_cells
from metastable.attention.circle.patch import Interpolants, Patches, fresh, patch_level, scan, scanned_level
from metastable.attention.circle.proxy_sums import proxy_sums, shifted_proxies, sum_alone
from metastable.attention.diamond import diamond
from metastable.threads import over_rows

OCTAVES = 6
"""Most octaves of |z|; the last one holds all shorter queries, whose scores vary by a few units over it."""


def attend_plane(
    keys: KeyCells, queries: np.ndarray, beta: float, sharpest: float, rtol: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """(mean, log F, error) of any queries; sharpest is the largest beta |q|."""
    n = len(queries)
    level = min(patch_level(sharpest), 10)
    octaves = min(max(math.ceil(math.log2(max(sharpest, 1.0))), 1), OCTAVES)
    count, first = 2**level * octaves, 2**level - 2**COARSEST
    centre, half, sine = (np.repeat(part[first:], octaves, axis=0) for part in circle_cells(level))
    patch = fresh(n, dtype=torch.int32)
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def sort(start: int, stop: int) -> None:
        low, high, counts = np.full(count, np.inf), np.zeros(count), np.zeros(count, dtype=np.int64)
        _find_patches(queries[start:stop], beta, sharpest, octaves, patch[start:stop], low, high, counts)
        parts.append((low, high, counts))

    over_rows(sort, n, cost=10.0 * n)
    low = np.minimum.reduce([part[0] for part in parts])
    high = np.maximum.reduce([part[1] for part in parts])
    counts = np.sum([part[2] for part in parts], axis=0)
    low = np.where(counts > 0, low, 0.0)
    patches = Patches(centre, 1.001 * half, low, high, counts, scanned_level(sharpest, keys.finest, rtol))
    one_length = not (high - low > 1e-13 * high).any()
    found = Interpolants(
        np.empty((count, 3, 1 if one_length else MOST, MOST)),
        np.zeros((count, 2)),
        np.zeros((count, 2), dtype=np.int64),
        np.zeros(count),
    )
    occupied = np.flatnonzero(counts)

    def solve(start: int, stop: int) -> None:
        _solve(occupied[start:stop], keys, patches, sine, rtol, chebyshev_tables(), found)

    over_rows(solve, len(occupied), cost=3e4 * len(occupied))
    mean, log_partition = fresh(n, 2), fresh(n)

    def evaluate(start: int, stop: int) -> None:
        here = slice(start, stop)
        _evaluate(queries[here], beta, patch[here], patches, 1.0 / sine, found, mean[here], log_partition[here])

    over_rows(evaluate, n, cost=60.0 * n)
    alone = sum_alone(keys, patches, queries, beta, patch, found.orders[:, 0] == 0, rtol, mean, log_partition)
    return mean, log_partition, max(float(found.errors.max()), alone)


@njit(nogil=True, cache=True, error_model="numpy")
def _find_patches(
    queries: Any, beta: float, sharpest: float, octaves: int, patch: Any, low: Any, high: Any, counts: Any
) -> None:
    """The patch of every query, and per patch the least and largest |z| and the number of queries."""
    count = low.shape[0] // octaves
    scale = count / 4.0
    for i in range(queries.shape[0]):
        x, y = beta * queries[i, 0], beta * queries[i, 1]
        size = math.sqrt(x * x + y * y)
        octave, longer = 0, 2.0 * size
        while longer < sharpest and octave < octaves - 1:
            longer *= 2.0
            octave += 1
        c = min(int(diamond(x, y) * scale), count - 1) * octaves + octave
        patch[i] = c
        low[c] = min(low[c], size)
        high[c] = max(high[c], size)
        counts[c] += 1


@njit(nogil=True, cache=True, error_model="numpy")
def _solve(occupied: Any, keys: Any, patches: Any, sine: Any, rtol: float, tables: Any, found: Any) -> None:
    """Chebyshev coefficients of F e^{-<z,u>} and of its gradient, and the errors, of the patches worth their nodes.

    orders = (rows in |z|, columns in angle), or (0, 0) where the queries are better summed one by one.
    """
    centre, half, nodes = keys.cells.centre, keys.cells.half, tables.nodes
    for patch in occupied:
        x, y, wide = patches.direction[patch, 0], patches.direction[patch, 1], patches.spread[patch]
        least, most = patches.low[patch], patches.high[patch]
        best, cells, log_share = scan(keys, patches, patch, rtol)
        u = centre[best]
        found.towards[patch] = u
        angular, bends, radial = np.empty(cells.shape[0]), np.empty(cells.shape[0]), np.empty(cells.shape[0])
        reach, toward_u = np.empty(cells.shape[0]), u[0] * x + u[1] * y
        for i in range(cells.shape[0]):
            c = cells[i]
            away = math.hypot(centre[c, 0] - u[0], centre[c, 1] - u[1]) + half[c]
            bends[i] = most * away
            angular[i] = most * away * wide
            radial[i] = abs(centre[c, 0] * x + centre[c, 1] * y - toward_u) + wide * away + half[c]
            radial[i] *= 0.5 * (most - least)
            reach[i] = log_share[i] + 2.0 * (angular[i] + radial[i])
        columns = least_order(reach, angular, bends, wide, rtol)
        rows = least_order(reach, radial, bends, 0.0, rtol) if most > least else 1
        if columns > MOST or rows > found.coefficients.shape[2] or rows * columns > patches.queries[patch]:
            continue
        dx, dy, w, error = shifted_proxies(keys, patches, patch, cells, log_share, u, rtol)
        at_nodes = np.empty((3, rows, columns))
        least_sum = np.inf
        for r in range(rows):
            size = 0.5 * (least + most) + 0.5 * (most - least) * nodes[rows, r] * (rows > 1)
            for a in range(columns):
                along = nodes[columns, a] * sine[patch]
                up = math.sqrt(1.0 - along * along)
                sums = proxy_sums(size * (x * up - y * along), size * (y * up + x * along), dx, dy, w)
                at_nodes[0, r, a], at_nodes[1, r, a], at_nodes[2, r, a] = sums
                least_sum = min(least_sum, sums[0])
        in_size, in_angle = tables.transform[rows], tables.transform[columns]
        tail = _interpolate(at_nodes, in_size, in_angle, found.coefficients[patch]) / least_sum
        if tail > 0.4 * rtol:
            continue
        found.orders[patch, 0], found.orders[patch, 1] = rows, columns
        found.errors[patch] = error + 0.3 * rtol + tail


@njit(nogil=True, cache=True, error_model="numpy")
def _interpolate(at_nodes: Any, in_size: Any, in_angle: Any, coefficients: Any) -> float:
    """Coefficients of rows x columns Chebyshev polynomials; returns the sum of the last ones."""
    rows, columns = at_nodes.shape[1], at_nodes.shape[2]
    inner = np.empty((rows, columns))
    tail = 0.0
    for f in range(3):
        for r in range(rows):
            for k in range(columns):
                value = 0.0
                for a in range(columns):
                    value += in_angle[k, a] * at_nodes[f, r, a]
                inner[r, k] = value
        for l in range(rows):
            for k in range(columns):
                value = 0.0
                for r in range(rows):
                    value += in_size[l, r] * inner[r, k]
                coefficients[f, l, k] = value
                if (columns > 2 and k == columns - 1) or (rows > 2 and l == rows - 1):
                    tail += abs(value)
    return tail


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _evaluate(
    queries: Any,
    beta: float,
    patch: Any,
    patches: Any,
    inverse_sine: Any,
    found: Any,
    mean: Any,
    log_partition: Any,
) -> None:
    """Clenshaw's sums of the patches that have them."""
    centre, low, high = patches.direction, patches.low, patches.high
    orders, coefficients, towards = found.orders, found.coefficients, found.towards
    for i in range(queries.shape[0]):
        c = patch[i]
        x, y = beta * queries[i, 0], beta * queries[i, 1]
        rows, columns = orders[c, 0], orders[c, 1]
        if rows == 0:
            continue
        size = math.sqrt(x * x + y * y)
        s = 0.0
        if size > 0.0:
            s = (centre[c, 0] * y - centre[c, 1] * x) * inverse_sine[c] / size
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
