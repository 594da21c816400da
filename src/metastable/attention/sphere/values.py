"""Means of values other than the keys, of what a box of queries sees (`sphere.groups`).

Keys and proxies carry, beside the weight w of their mass, one weight for each column of the values, divided by the
length of the longest: rows 4, 5, ... of what is seen. Their sums are those of the partition with these weights,
    m(z) = sum_a w_ac e^{<z, k_a>}/sum_a w_a e^{<z, k_a>},
over the same cells and in the same expansions; whatever these leave out or misjudge is bounded by mass times the
longest value, as for the partition itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.exp2 import LOG2_E, REDUCTION, exp2
from metastable.attention.sphere.expansion import basis, expand
from metastable.attention.sphere.walk import row_top


@njit(cache=True, nogil=True)
def largest_weights(seen: Any) -> Any:
    """What is seen with the larger of the weights of mass and values, as lengths, in place of the former."""
    sized = seen[:4].copy()
    for a in range(seen.shape[1]):
        square = 0.0
        for row in range(4, seen.shape[0]):
            square += seen[row, a] ** 2
        sized[3, a] = max(abs(seen[3, a]), math.sqrt(square))
    return sized


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def value_sums(seen: Any, z0: float, z1: float, z2: float, log_floor: float, weights: Any, out: Any) -> None:
    """out[c] = sum_a w_ac e^{<z, k_a> - log_floor}/sum_a w_a e^{...}; `weights` is scratch."""
    z0, z1, z2, shift = z0 * LOG2_E, z1 * LOG2_E, z2 * LOG2_E, -log_floor * LOG2_E
    total = 0.0
    for a in range(seen.shape[1]):
        t = shift + z0 * seen[0, a] + z1 * seen[1, a] + z2 * seen[2, a]
        t = t if t > -1000.0 else -1000.0
        weights[a] = exp2(t if t < 1000.0 else 1000.0)
        total += weights[a] * seen[3, a]
    for c in range(len(out)):
        column = 0.0
        for a in range(seen.shape[1]):
            column += weights[a] * seen[4 + c, a]
        out[c] = column / total


@njit(cache=True, nogil=True)
def value_rows(seen: Any, points: Any, first: int, last: int, log_floor: float, far: bool, others: Any) -> None:
    """Means of the values of the rows first, ..., last - 1, one by one; far: e^{<z, k>}/G may overflow."""
    weights = np.empty(seen.shape[1])
    for i in range(first, last):
        floor = max(log_floor, row_top(seen, points[:, i]) - 300.0) if far else log_floor
        value_sums(seen, points[0, i], points[1, i], points[2, i], floor, weights, others[i])


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def expand_values(
    seen: Any, partition: Any, orders: Any, points: Any, first: int, last: int, centre: Any, frame: Any,
    widths: Any, log_floor: float, others: Any,
) -> None:  # fmt: skip
    """Means of the values of the rows of a box, from its expansion of the partition and one of each column."""
    p, q, levels = orders[0], orders[1], orders[2]
    coefficients = np.empty((others.shape[1] + 1, levels * p, q))
    for c in range(others.shape[1]):
        coefficients[c] = expand(seen, 4 + c, centre, frame, widths, log_floor, orders)
    coefficients[-1] = partition
    t_u, t_v, unused_u, unused_v = np.empty(p), np.empty(q), np.empty(p), np.empty(q)
    factors = np.empty(levels * p)
    for n in range(first, last):
        d0, d1, d2 = points[0, n] - centre[0], points[1, n] - centre[1], points[2, n] - centre[2]
        w = frame[2, 0] * d0 + frame[2, 1] * d1 + frame[2, 2] * d2
        basis((frame[0, 0] * d0 + frame[0, 1] * d1 + frame[0, 2] * d2) / widths[0], t_u, unused_u)
        basis((frame[1, 0] * d0 + frame[1, 1] * d1 + frame[1, 2] * d2) / widths[1], t_v, unused_v)
        here = 1.0  # d_3^l/l!
        for l in range(levels):
            for i in range(p):
                factors[l * p + i] = here * t_u[i]
            here *= w / (l + 1.0)
        total = 0.0
        for c in range(others.shape[1], -1, -1):
            value = 0.0
            for i in range(levels * p):
                inner = 0.0
                for j in range(q):
                    inner += coefficients[c, i, j] * t_v[j]
                value += factors[i] * inner
            if c == others.shape[1]:
                total = value
            else:
                others[n, c] = value / total
