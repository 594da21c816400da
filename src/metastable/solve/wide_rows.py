"""Compiled passes over rows of tokens in many dimensions: stages of `WideTrial`, and a whole step in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from metastable.attention.direct import LARGEST_SCORE, attended_rows, multiply
from metastable.attention.exp2 import LN_2, LOG2_E

LARGEST_SQUARE = (LARGEST_SCORE * LOG2_E) ** 2
"""|q|^2 up to which scores, of keys on the sphere, are not shifted."""


def factor(matrix: Float[Tensor, "d d"]) -> tuple[np.ndarray, bool]:
    """The matrix, and whether it is diagonal: then its diagonal as one row."""
    diagonal = torch.diagonal(matrix)
    if bool((matrix == torch.diag(diagonal)).all()):
        return diagonal.clone()[None].numpy(), True
    return matrix.clone(memory_format=torch.contiguous_format).numpy(), False


_FLAGS: Any = dict.fromkeys(("contract", "nsz", "reassoc"), True)
"""In an order that is the same in every process: numba finds on disk what it has compiled by them."""
compiled: Any = njit(nogil=True, cache=True, error_model="numpy", fastmath=_FLAGS)
"""For passes over rows, here and on the way back."""


@compiled
def times(address: int, rows: Any, matrix: Any, diagonal: bool, turned: bool, out: Any) -> None:
    """X A, or X A^T if `turned`; A may be the row of its diagonal."""
    n, d = rows.shape
    if diagonal:
        for i in range(n):
            for a in range(d):
                out[i, a] = rows[i, a] * matrix[0, a]
    else:
        multiply(address, turned, n, d, d, rows.ctypes.data, matrix.ctypes.data, out.ctypes.data, d)


@compiled
def moved_rows(
    address: int, start: int, stop: int, x: Any, stages: Any, weights: Any, B: Any, diagonal: bool, share: Any,
    equal: bool, block: int, y: Any, weighted: Any, queries: Any, longest: Any, lengths: Any,
) -> None:  # fmt: skip
    """Rows start to stop of y = (x + sum_j w_j k_j)/|...|, of s y and of q = y B, and |q|^2."""
    d = x.shape[1]
    for first in range(start, stop, block):
        last = min(first + block, stop)
        for i in range(first, last):
            row = y[i]
            for c in range(d):
                row[c] = x[i, c]
            for j in range(len(weights)):
                weight, stage = weights[j], stages[j, i]
                if weight != 0.0:
                    for c in range(d):
                        row[c] += weight * stage[c]
            square = 0.0
            for c in range(d):
                square += row[c] * row[c]
            inverse = 1.0 / np.sqrt(square)
            if len(lengths) > 0:
                lengths[i] = np.sqrt(square)
            for c in range(d):
                row[c] *= inverse
            if not equal:
                for c in range(d):
                    weighted[i, c] = share[i] * row[c]
        times(address, y[first:last], B, diagonal, False, queries[first:last])
        for i in range(first, last):
            square = 0.0
            for c in range(d):
                square += queries[i, c] * queries[i, c]
            longest[i] = square


@compiled
def velocity_rows(
    address: int, start: int, stop: int, y: Any, weighted: Any, share: Any, queries: Any, shifted: bool, V: Any,
    diagonal: bool, log_mass: float, scores: Any, means: Any, log_partition: Any, out: Any,
) -> None:  # fmt: skip
    """Rows start to stop of P_y V m; m and log Z of all rows, or of those at hand where there is no more room."""
    d, whole = y.shape[1], len(means) == len(y)
    for first in range(start, stop, len(scores)):
        last = min(first + len(scores), stop)
        mean = means[first:last] if whole else means[: last - first]
        log_z = log_partition[first:last] if whole else log_partition
        attended_rows(address, queries[first:last], y, weighted, share, shifted, scores, mean, log_z)
        for i in range(last - first):
            log_z[i] = log_z[i] * LN_2 + log_mass
        times(address, mean, V, diagonal, False, out[first:last])
        for i in range(first, last):
            inner = 0.0
            for c in range(d):
                inner += y[i, c] * out[i, c]
            for c in range(d):
                out[i, c] -= inner * y[i, c]


@compiled
def step_rows(
    address: int, x: Any, stages: Any, table: Any, B: Any, B_diagonal: bool, V: Any, V_diagonal: bool, share: Any,
    equal: bool, log_mass: float, block: int, y: Any, weighted: Any, queries: Any, longest: Any, lengths: Any,
    scores: Any, means: Any, log_partition: Any,
) -> bool:  # fmt: skip
    """All stages of a step, and y, s y and q at its end; whether scores there are shifted."""
    n, shifted = len(x), False
    for stage in range(1, len(table)):
        weights = table[stage]
        moved_rows(
            address, 0, n, x, stages, weights, B, B_diagonal, share, equal, block, y, weighted, queries, longest,
            lengths,
        )  # fmt: skip
        shifted = longest.max() > LARGEST_SQUARE
        if stage < len(table) - 1:
            velocity_rows(
                address, 0, n, y, weighted, share, queries, shifted, V, V_diagonal, log_mass, scores, means,
                log_partition, stages[stage],
            )  # fmt: skip
    return shifted


@compiled
def error_rows(start: int, stop: int, y: Any, stages: Any, weights: Any, damping: float, out: Any) -> None:
    """Rows start to stop of e^2 / sqrt(e^2 + D f^2), the lengths of e = P_y sum_j w_0j k_j and f likewise."""
    d = y.shape[1]
    error, squares = np.empty(d), np.empty(2)
    for i in range(start, stop):
        for which in range(2):
            inner, square = 0.0, 0.0
            for c in range(d):
                error[c] = 0.0
            for j in range(weights.shape[1]):
                weight, stage = weights[which, j], stages[j, i]
                if weight != 0.0:
                    for c in range(d):
                        error[c] += weight * stage[c]
            for c in range(d):
                inner += error[c] * y[i, c]
                square += error[c] * error[c]
            squares[which] = max(square - inner * inner, 0.0) if np.isfinite(square) else np.inf
        first, second = squares
        out[i] = np.inf if not np.isfinite(first + second) else 0.0
        if 0.0 < first < np.inf and second < np.inf:
            out[i] = first / np.sqrt(first + damping * second)
