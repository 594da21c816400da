"""Sums over the proxies that matter to a patch of queries: at its nodes, or for its queries one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.circle.bounds import key_level
from metastable.attention.circle.keys import COARSEST, EMPTY, KeyCells
from metastable.attention.circle.patch import Patches, scan
from metastable.attention.exp2 import LOG2_E, REDUCTION, exp2


@njit(nogil=True, cache=True, error_model="numpy")
def shifted_proxies(
    keys: Any, patches: Any, patch: int, cells: Any, log_share: Any, u: Any, rtol: float
) -> tuple[Any, Any, Any, float]:
    """(k - u as two columns, W, error) of the proxies in the cells that matter, at the least level that will do."""
    centre, sine, nodes, level = keys.cells.centre, keys.cells.sine, keys.nodes, patches.level
    fine, error = key_level(keys, patches, patch, cells, log_share, rtol)
    p, ratio = nodes.shape[0], 2 ** (fine - level)
    first, above = 2**fine - 2**COARSEST, 2**level - 2**COARSEST
    count = p * ratio * cells.shape[0]
    dx, dy, w = np.empty(count), np.empty(count), np.empty(count)
    count = 0
    for c in cells:
        for child in range(first + (c - above) * ratio, first + (c - above + 1) * ratio):
            if keys.log_mass[child] > EMPTY:
                x, y, s = centre[child, 0], centre[child, 1], sine[child]
                for a in range(p):
                    along = nodes[a] * s
                    up = math.sqrt(1.0 - along * along)
                    dx[count + a] = x * up - y * along - u[0]
                    dy[count + a] = y * up + x * along - u[1]
                    w[count + a] = keys.weight[child, a]
                count += p
    return dx[:count], dy[:count], w[:count], error


@njit(nogil=True, cache=True, fastmath=REDUCTION, error_model="numpy")
def proxy_sums(x: float, y: float, dx: Any, dy: Any, w: Any) -> tuple[float, float, float]:
    """sum W e^{<z, k - u>} (1, k - u)."""
    x, y = x * LOG2_E, y * LOG2_E
    total = first = second = 0.0
    for j in range(w.shape[0]):
        t = x * dx[j] + y * dy[j]
        e = exp2(t if t > -1000.0 else -1000.0) * w[j]
        total += e
        first += e * dx[j]
        second += e * dy[j]
    return total, first, second


def sum_alone(
    keys: KeyCells,
    patches: Patches,
    queries: np.ndarray,
    beta: float,
    patch: np.ndarray,
    alone: np.ndarray,
    rtol: float,
    mean: np.ndarray,
    log_partition: np.ndarray,
) -> float:
    """(mean, log F) of the queries in the patches marked `alone`, over the proxies themselves; returns the error.

    Patch by patch: the cells that matter to one are found once for all its queries.
    """
    if not patches.queries[alone].any():
        return 0.0
    rows = np.flatnonzero(alone[patch])
    rows = rows[np.argsort(patch[rows], kind="stable")]
    return float(_sum_alone(keys, patches, queries, beta, patch, rows, rtol, mean, log_partition))


@njit(nogil=True, cache=True, error_model="numpy")
def _sum_alone(
    keys: Any,
    patches: Any,
    queries: Any,
    beta: float,
    patch: Any,
    rows: Any,
    rtol: float,
    mean: Any,
    log_partition: Any,
) -> float:
    worst, place = 0.0, 0
    while place < rows.shape[0]:
        c = patch[rows[place]]
        best, cells, log_share = scan(keys, patches, c, rtol)
        u = keys.cells.centre[best]
        dx, dy, w, error = shifted_proxies(keys, patches, c, cells, log_share, u, rtol)
        worst = max(worst, error + 0.1 * rtol)
        while place < rows.shape[0] and patch[rows[place]] == c:
            i = rows[place]
            zx, zy = beta * queries[i, 0], beta * queries[i, 1]
            shift, total, first, second = _shifted_sums(zx, zy, dx, dy, w)
            mean[i, 0], mean[i, 1] = u[0] + first / total, u[1] + second / total
            log_partition[i] = math.log(total) + zx * u[0] + zy * u[1] + shift
            place += 1
    return worst


@njit(nogil=True, cache=True, fastmath=REDUCTION, error_model="numpy")
def _shifted_sums(x: float, y: float, dx: Any, dy: Any, w: Any) -> tuple[float, float, float, float]:
    """`proxy_sums` divided by e^shift, shift being their largest exponent: u may be far from best for one query."""
    x, y = x * LOG2_E, y * LOG2_E
    top = -1e300
    for j in range(w.shape[0]):
        t = x * dx[j] + y * dy[j]
        top = t if t > top else top
    total = first = second = 0.0
    for j in range(w.shape[0]):
        t = x * dx[j] + y * dy[j] - top
        e = exp2(t if t > -1000.0 else -1000.0) * w[j]
        total += e
        first += e * dx[j]
        second += e * dy[j]
    return top / LOG2_E, total, first, second
