"""Transport on the line: quantiles in order, W_p^p = int_0^1 |F^{-1}(s) - G^{-1}(s)|^p ds, O(n log n)."""

from __future__ import annotations

import numba
import numpy as np
from jaxtyping import Float

from metastable.errors import InvalidInput
from metastable.transport.distance import Distance
from metastable.transport.pair import Pair


def line(pair: Pair, metric: str, p: float) -> Distance:
    """Exact W_p between Euclidean tokens with d = 1."""
    if pair.d != 1:
        raise InvalidInput(f"method 'line' needs Euclidean tokens with d = 1, got d = {pair.d}")
    value = line_cost(pair.x[:, 0], pair.a, pair.y[:, 0], pair.b, p)
    return Distance(value ** (1 / p), method="line", exact=True, metric=metric, p=p)


def line_cost(
    x: Float[np.ndarray, "n"],
    a: Float[np.ndarray, "n"],
    y: Float[np.ndarray, "m"],
    b: Float[np.ndarray, "m"],
    p: float,
) -> float:
    """W_p^p of two weighted sets of numbers; the masses sum to one.

    >>> line_cost(np.array([1.0, 0.0]), np.array([0.5, 0.5]), np.array([2.0]), np.array([1.0]), 1)
    1.5
    """
    i, j, mass = monotone_coupling(a[by_x := np.argsort(x)], b[by_y := np.argsort(y)])
    return float(mass @ np.abs(x[by_x[i]] - y[by_y[j]]) ** p)


@numba.njit(cache=True, nogil=True)
def monotone_coupling(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The coupling (i, j, mass) of two lists of masses in the given order, at most n + m - 1 entries."""
    n, m = len(a), len(b)
    rows = np.empty(n + m, np.int64)
    columns = np.empty(n + m, np.int64)
    mass = np.empty(n + m)
    i = j = count = 0
    left, right = a[0], b[0]
    while True:
        amount = min(left, right)
        last = (i == n - 1 and left <= right) or (j == m - 1 and right <= left)
        rows[count], columns[count], mass[count] = i, j, amount
        count += 1
        left -= amount
        right -= amount
        if last:
            break
        if left <= 0.0:
            i += 1
            left = a[i]
        if right <= 0.0 and j < m - 1:
            j += 1
            right = b[j]
    return rows[:count], columns[:count], mass[:count]
