"""Compiled passes over tokens in the order of a curve, in columns: stages of `SortedTrial`, there and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_FLAGS: Any = dict.fromkeys(("contract", "nsz"), True)
"""In an order that is the same in every process: numba finds on disk what it has compiled by them."""
_compiled: Any = njit(nogil=True, cache=True, error_model="numpy", fastmath=_FLAGS)
_BLOCK = 512
"""Tokens that stay in the first cache while stages are added up."""


@_compiled
def sorted_columns(rows: Any, order: Any, out: Any) -> None:
    """out[c, i] = rows[order[i], c]."""
    for i in range(len(order)):
        for c in range(rows.shape[1]):
            out[c, i] = rows[order[i], c]


@_compiled
def unsorted_rows(columns: Any, order: Any, out: Any) -> None:
    """out[order[i], c] = columns[c, i]."""
    for i in range(len(order)):
        for c in range(out.shape[1]):
            out[order[i], c] = columns[c, i]


@_compiled
def sorted_mass(share: Any, order: Any, keys: Any) -> None:
    """Masses of the keys, none for those that fill up the last group."""
    keys[-1] = 0.0
    for i in range(len(order)):
        keys[-1, i] = share[order[i]]


@_compiled
def moved(x: Any, slopes: Any, weights: Any, B: Any, keys: Any, z: Any, lengths: Any) -> None:
    """y = (x + sum_j w_j k_j)/|...| into the keys, whose last group is filled up, and z = B^T y."""
    d, n = x.shape
    for first in range(0, n, _BLOCK):
        last = min(first + _BLOCK, n)
        length = lengths[first:last]
        for c in range(d):
            y = keys[c, first:last]
            for i in range(last - first):
                y[i] = x[c, first + i]
            for j in range(len(weights)):
                weight, slope = weights[j], slopes[j, c, first:last]
                if weight != 0.0:
                    for i in range(last - first):
                        y[i] += weight * slope[i]
        for i in range(last - first):
            length[i] = 0.0
        for c in range(d):
            y = keys[c, first:last]
            for i in range(last - first):
                length[i] += y[i] * y[i]
        for i in range(last - first):
            length[i] = np.sqrt(length[i])
        for c in range(d):
            y = keys[c, first:last]
            for i in range(last - first):
                y[i] /= length[i]
        for c in range(d):
            to = z[c, first:last]
            for i in range(last - first):
                to[i] = 0.0
            for a in range(d):
                factor, y = B[a, c], keys[a, first:last]
                for i in range(last - first):
                    to[i] += factor * y[i]
    for c in range(d):
        for i in range(n, keys.shape[1]):
            keys[c, i] = keys[c, n - 1]


@_compiled
def keep(
    keys: Any, lengths: Any, means: Any, log_zs: Any, log_mass: float, y: Any, length: Any, mean: Any, log_z: Any
) -> None:
    """What a stage found, in columns."""
    d, n = y.shape
    for c in range(d):
        for i in range(n):
            y[c, i] = keys[c, i]
        for i in range(n):
            mean[c, i] = means[i, c]
    for i in range(n):
        length[i] = lengths[i]
        log_z[i] = log_zs[i] + log_mass


@_compiled
def velocities(mean: Any, V: Any, keys: Any, out: Any) -> None:
    """out = P_y V m, of means (n, d) and y (d, n) in the rows of the keys."""
    d, n = out.shape
    for i in range(n):
        inner = 0.0
        for c in range(d):
            value = 0.0
            for a in range(d):
                value += V[c, a] * mean[i, a]
            out[c, i] = value
            inner += value * keys[c, i]
        for c in range(d):
            out[c, i] -= inner * keys[c, i]


@_compiled
def largest_error(keys: Any, slopes: Any, weights: Any, damping: float) -> float:
    """max_i e_i^2 / sqrt(e_i^2 + D f_i^2), e = P_y sum_j w_0j k_j, f likewise (`rowwise.largest_damped`)."""
    d, n = slopes.shape[1:]
    error, inner, squares = np.empty(_BLOCK), np.empty(_BLOCK), np.empty((2, _BLOCK))
    worst = 0.0
    for first in range(0, n, _BLOCK):
        last = min(first + _BLOCK, n)
        squares[:] = 0.0
        for which in range(2):
            inner[:] = 0.0
            square = squares[which]
            for c in range(d):
                error[:] = 0.0
                for j in range(weights.shape[1]):
                    weight, slope = weights[which, j], slopes[j, c, first:last]
                    if weight != 0.0:
                        for i in range(last - first):
                            error[i] += weight * slope[i]
                y = keys[c, first:last]
                for i in range(last - first):
                    inner[i] += error[i] * y[i]
                    square[i] += error[i] * error[i]
            for i in range(last - first):
                square[i] -= inner[i] * inner[i]
        for i in range(last - first):
            size, other = squares[0, i], squares[1, i]
            if not np.isfinite(size + other):
                return np.inf
            if size > 0.0:
                worst = max(worst, size / np.sqrt(size + damping * max(other, 0.0)))
    return worst
