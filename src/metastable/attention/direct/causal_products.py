"""Causal attention on the CPU for any number of columns: two matrix products with the exponentials between them.

As in `products`, for the keys that the last row of a block sees; rows raise only what they see themselves, and the
rest of a block, half of its square on the diagonal, is zero. Blocks are taken in pairs from both ends, so that
every thread gets as many pairs as any other; they are the same for any number of threads, and so are the digits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from metastable.attention.direct.exponents import DOUBLE
from metastable.attention.direct.matrix_product import multiply, product_address, room
from metastable.attention.exp2 import LN_2, LOG2_E, REDUCTION, exp2, wide
from metastable.attention.lengths import squared_lengths
from metastable.threads import blas_can_be_held, over_rows

LEAST_SHARE = -200.0
"""log2 of the least mass over the largest for which masses multiply weights. A weight of a row that is not shifted
by its maximum is 2^-720 or more, and a row may see only the least masses: 2^-920 is still a normal number."""
ABSENT = -1e300
"""log2 of a mass of zero, below every shift."""
_LANES = 32
"""Keys that a row raises at a time: those that it does not see get the weight zero."""
_ROWS = 64
"""Rows of a block: products of fewer are slower by a fifth, and of more rows more lies beyond the diagonal."""


def attend_causal_products(
    queries: Tensor, keys: Tensor, values: Tensor, log_mass: Tensor, beta: float, include_self: bool
) -> tuple[Tensor, Tensor]:
    """`attend_causal` in float64 on the CPU."""
    q, k, v, m = (np.ascontiguousarray(a.numpy()) for a in (queries, keys, values, log_mass))
    (n, d), d_v, offset = k.shape, v.shape[1], int(include_self)
    padded = -(-n // _LANES) * _LANES
    mean = torch.zeros((n, d_v), dtype=torch.float64)
    log_partition = torch.full((n,), -math.inf, dtype=torch.float64)
    largest = float(m.max())
    if largest == -math.inf:
        return mean, log_partition
    scale = beta * LOG2_E
    exponent = np.where(m > -math.inf, (m - largest) * LOG2_E, ABSENT)
    longest = math.sqrt(squared_lengths(queries)[1] * squared_lengths(keys)[1])
    shifted = scale * longest > DOUBLE.bound or float(exponent.min(where=m > -math.inf, initial=0.0)) < LEAST_SHARE
    of_keys, weighted = np.zeros(padded), np.zeros((padded, d_v))
    of_keys[:n] = exponent if shifted else np.where(m > -math.inf, np.exp2(np.maximum(exponent, LEAST_SHARE)), 0.0)
    np.multiply(v, 1.0 if shifted else of_keys[:n, None], out=weighted[:n])
    out, z, address = mean.numpy(), log_partition.numpy(), product_address()
    blocks = -(-n // _ROWS)
    half = (blocks + 1) // 2

    def some_blocks(start: int, stop: int) -> None:
        scaled, scores = room(_ROWS, d), room(_ROWS * padded)
        for low, high in ((start, stop), (max(blocks - stop, half), blocks - start)):
            for b in range(low, high):
                causal_rows(
                    address, b * _ROWS, min((b + 1) * _ROWS, n), q, k, weighted, of_keys, scale, offset, shifted,
                    scaled, scores, out, z, largest,
                )  # fmt: skip

    cost = n * n * (0.25 + 0.015 * (d + d_v))
    over_rows(some_blocks, half, cost=cost if blas_can_be_held() else 0.0)
    return mean, log_partition


@njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
def causal_rows(
    address: int, start: int, stop: int, queries: Any, keys: Any, weighted: Any, of_keys: Any, scale: float,
    offset: int, shifted: bool, scaled: Any, scores: Any, mean: Any, log_partition: Any, log_mass: float,
) -> None:  # fmt: skip
    """Rows start to stop of mean and log Z; of_keys: log2 of the masses where rows are shifted, else the masses."""
    wide()
    floor, height = DOUBLE.floor, stop - start
    last = stop - 1 + offset
    seen = (last + _LANES - 1) // _LANES * _LANES
    if last == 0:
        return
    d, d_v = keys.shape[1], weighted.shape[1]
    for i in range(height):
        for c in range(d):
            scaled[i, c] = scale * queries[start + i, c]
    multiply(address, True, height, last, d, scaled.ctypes.data, keys.ctypes.data, scores.ctypes.data, seen)
    for i in range(height):
        row, length = scores[i * seen : (i + 1) * seen], start + i + offset
        padded = (length + _LANES - 1) // _LANES * _LANES
        top, total = 0.0, 0.0
        if shifted:
            top = -3e300
            for j in range(padded):
                t = row[j] + of_keys[j]
                t = t if j < length else -3e300
                row[j] = t
                top = t if t > top else top
            for j in range(padded):
                t = row[j] - top
                w = exp2(t if t > floor else floor)
                w = w if j < length else 0.0
                row[j] = w
                total += w
        else:
            for j in range(padded):
                w = exp2(row[j])
                w = w if j < length else 0.0
                row[j] = w
                total += w * of_keys[j]
        row[padded:] = 0.0
        empty = total == 0.0 or top < 0.5 * ABSENT
        log_partition[start + i] = -np.inf if empty else (top + math.log2(total)) * LN_2 + log_mass
        scaled[i, 0] = 0.0 if empty else 1.0 / total
    means = mean[start:stop]
    multiply(address, False, height, d_v, seen, scores.ctypes.data, weighted.ctypes.data, means.ctypes.data, d_v)
    for i in range(height):
        inverse = scaled[i, 0]
        for c in range(d_v):
            means[i, c] *= inverse
