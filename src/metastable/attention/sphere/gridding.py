"""Masses spread from tokens to a fine grid of (theta, phi), and fields interpolated back (`sphere.grid`).

Coordinates are in steps of the fine grid, theta in [0, M/2], phi in [0, M]. The grid of `width` more rows and
columns needs no wrapping: its node (i, j) is the torus node (i - width/2, j - width/2). A token with coordinate x
touches the `width` nodes from ceil(x - width/2) on. Tokens are sorted by the first node they touch, so that those
of one bin share their nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.exp2 import REDUCTION


def rows_of(fine: int, width: int) -> int:
    """Rows of the padded grid: theta up to pi."""
    return fine // 2 + width + 1


def columns_of(fine: int, width: int) -> int:
    """Columns of the padded grid: phi once around."""
    return fine + width + 1


@njit(cache=True, nogil=True)
def sort_tokens(
    theta: Any, phi: Any, fine: int, order: Any, sorted_theta: Any, sorted_phi: Any, row_start: Any
) -> None:
    """Fills the order of the tokens by bin, their coordinates in that order, and where each row of bins begins."""
    columns = fine + 2
    rows = fine // 2 + 2
    start = np.zeros(rows * columns + 1, dtype=np.int64)
    bins = np.empty(len(theta), dtype=np.int32)
    for i in range(len(theta)):
        b = math.ceil(theta[i]) * columns + math.ceil(phi[i])
        bins[i] = b
        start[b + 1] += 1
    for b in range(rows * columns):
        start[b + 1] += start[b]
    for row in range(rows + 1):
        row_start[row] = start[row * columns]
    for i in range(len(theta)):
        at = start[bins[i]]
        start[bins[i]] += 1
        order[at] = i
        sorted_theta[at], sorted_phi[at] = theta[i], phi[i]


@cache
def spreader(width: int, degree: int) -> Callable[..., None]:
    """Compiled spread for one width."""

    @njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
    def spread(theta: Any, phi: Any, order: Any, mass: Any, first: int, last: int, table: Any, grid: Any) -> None:
        """Adds the masses of the sorted tokens first, ..., last - 1 to the padded grid."""
        left, right = np.empty(width), np.empty(width)
        flat = grid.reshape(-1)
        columns = np.uintp(grid.shape[1])  # unsigned indices are not checked for being negative
        for s in range(first, last):
            x, y = theta[s], phi[s]
            i, j = math.ceil(x), math.ceil(y)
            u, v = 2.0 * (i - x) - 1.0, 2.0 * (j - y) - 1.0
            m = mass[order[s]]
            for a in range(width):
                value, other = table[0, a], table[0, a]
                for k in range(1, degree + 1):
                    value = value * u + table[k, a]
                    other = other * v + table[k, a]
                left[a], right[a] = value * m, other
            at = np.uintp(i) * columns + np.uintp(j)
            for a in range(width):
                factor = left[a]
                for b in range(width):
                    flat[at + np.uintp(b)] += factor * right[b]
                at += columns

    return spread


@cache
def interpolator(width: int, degree: int) -> Callable[..., None]:
    """Compiled interpolation of four fields for one width."""

    @njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
    def interpolate(
        theta: Any, phi: Any, order: Any, first: int, last: int, table: Any, fields: Any, mean: Any, total: Any
    ) -> None:  # fmt: skip
        """mean[order] = fields[:, :3]/fields[:, 3], total[order] = fields[:, 3] at the sorted tokens."""
        left, right = np.empty(width), np.empty(width)
        flat = fields.reshape(-1)
        columns = np.uintp(fields.shape[2])
        for s in range(first, last):
            x, y = theta[s], phi[s]
            i, j = math.ceil(x), math.ceil(y)
            u, v = 2.0 * (i - x) - 1.0, 2.0 * (j - y) - 1.0
            for a in range(width):
                value, other = table[0, a], table[0, a]
                for k in range(1, degree + 1):
                    value = value * u + table[k, a]
                    other = other * v + table[k, a]
                left[a], right[a] = value, other
            base = np.uintp(4 * i) * columns + np.uintp(j)
            s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
            for b in range(width):
                t0, t1, t2, t3 = 0.0, 0.0, 0.0, 0.0
                at = base + np.uintp(b)
                for a in range(width):
                    factor = left[a]
                    t0 += factor * flat[at]
                    t1 += factor * flat[at + columns]
                    t2 += factor * flat[at + columns + columns]
                    t3 += factor * flat[at + columns + columns + columns]
                    at += columns * np.uintp(4)
                s0 += t0 * right[b]
                s1 += t1 * right[b]
                s2 += t2 * right[b]
                s3 += t3 * right[b]
            row = order[s]
            inverse = 1.0 / s3
            mean[row, 0], mean[row, 1], mean[row, 2] = s0 * inverse, s1 * inverse, s2 * inverse
            total[row] = s3

    return interpolate
