"""The transpose of the derivative of attention by matrix products, for more than a few coordinates, on the CPU.

In the letters of `direct.adjoint`, for a block of rows i and a tile of keys j, with log2 m_j and log2 Z_i as
columns of the factors:

    [t; u] = [q log2(e), 1, -log2 Z; g, 0, -s] [y, log2 m, 1]^T,      w = 2^t,   c = w u,
    by_query += c y,      by_key += [w; c]^T [g; q]:

three products, and one pass over the tile between them while it is in the second cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from metastable.attention.backwards import Backwards
from metastable.attention.direct.exponents import DOUBLE
from metastable.attention.direct.matrix_product import (
    kept_room,
    multiply,
    multiply_part,
    multiply_turned,
    product_address,
    room,
)
from metastable.attention.exp2 import LOG2_E, REDUCTION, exp2, wide
from metastable.threads import blas_can_be_held, over_rows

PIECES = 8
"""Ranges of rows whose sums over keys are kept apart until the end, whatever the number of threads, so that the
digits do not depend on it: 8 n d numbers of memory."""
ABSENT = 1e300
"""Minus the logarithm of a mass of zero, or the partition of a row that sees no mass: beyond every score."""
LEAST_SHARED = 512
"""Rows below which they are one range."""
_ROWS, _KEYS = 128, 256
"""Rows and keys of a tile, of which there are two: half a megabyte. Of five sizes the fastest, by a few percent,
for 200 to 2000 tokens in 4 to 64 dimensions."""


def adjoint_by_products(given: Backwards, ahead: int) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
    """(by_query, by_key) of `adjoint_over_pairs`, for float64 on the CPU."""
    q, y, log_mass, log_z, g, shift = (part.contiguous().numpy() for part in given[:6])
    rows, (n, d) = len(q), y.shape
    pieces = max(1, min(PIECES, rows // (LEAST_SHARED // 2)))
    by_query, sums = np.empty((rows, d)), np.zeros((pieces, n, d))
    packed, top = room(n, d + 2), np.empty(rows)
    pack(y, log_mass, log_z, packed, top)
    edges = [rows * piece // pieces for piece in range(pieces + 1)]
    factors = q, y, g, shift, packed, top, ahead

    def some_pieces(start: int, stop: int) -> None:
        memory = tile_memory(rows, n, d)
        for piece in range(start, stop):
            part = edges[piece], edges[piece + 1]
            transposed_rows(product_address(), *part, *factors, *memory, by_query, sums[piece])

    if blas_can_be_held():
        over_rows(some_pieces, pieces, cost=(1.0 + 0.08 * d) * rows * n)
    else:
        some_pieces(0, pieces)
    by_key = sums[0] if pieces == 1 else sums.sum(0)
    return torch.from_numpy(by_query), torch.from_numpy(by_key)


def tile_memory(rows: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Memory of `transposed_rows`: for both factors on the left, those on the right, and the tile."""
    block = min(_ROWS, rows)
    return room(2 * block, d + 2), room(2 * block, d), kept_room(2 * block * min(_KEYS, n))


_compiled: Any = njit(nogil=True, cache=True, error_model="numpy")
_summing: Any = njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")


@_compiled
def pack(keys: Any, log_mass: Any, log_partition: Any, packed: Any, top: Any) -> None:
    """[y, log2 m, 1] of every key and log2 Z of every row, of which none is infinite."""
    d = keys.shape[1]
    for j in range(len(keys)):
        for c in range(d):
            packed[j, c] = keys[j, c]
        packed[j, d] = max(log_mass[j] * LOG2_E, -ABSENT)
        packed[j, d + 1] = 1.0
    for i in range(len(top)):
        top[i] = log_partition[i] * LOG2_E if log_partition[i] > -np.inf else ABSENT


@_summing
def transposed_rows(
    address: int, start: int, stop: int, queries: Any, keys: Any, cotangent: Any, shift: Any, packed: Any, top: Any,
    ahead: int, left: Any, right: Any, memory: Any, by_query: Any, by_key: Any,
) -> None:  # fmt: skip
    """Rows start to stop of by_query, and what they add to by_key."""
    wide()
    (n, d), block, floor = keys.shape, len(left) // 2, DOUBLE.floor
    for first in range(start, stop, block):
        last = min(first + block, stop)
        height = last - first
        for i in range(height):
            for c in range(d):
                left[i, c] = queries[first + i, c] * LOG2_E
                left[height + i, c] = right[i, c] = cotangent[first + i, c]
                right[height + i, c] = queries[first + i, c]
            left[i, d], left[i, d + 1] = 1.0, -top[first + i]
            left[height + i, d], left[height + i, d + 1] = 0.0, -shift[first + i]
        some, seen = by_query[first:last], min(n, last - 1 + ahead)
        if seen <= 0:
            some[:] = 0.0
        for begin in range(0, seen, _KEYS):
            width = min(_KEYS, seen - begin)
            tile = memory[: 2 * height * width].reshape(2 * height, width)
            multiply(
                address, True, 2 * height, width, d + 2, left.ctypes.data, packed[begin:].ctypes.data,
                tile.ctypes.data, width,
            )  # fmt: skip
            for i in range(height):
                weight, change = tile[i], tile[height + i]
                for j in range(width):
                    t = weight[j]
                    w = exp2(t if t > floor else floor)
                    weight[j] = w
                    change[j] *= w
                for j in range(max(first + i + ahead - begin, 0), width):
                    weight[j], change[j] = 0.0, 0.0
            lower = tile[height:]
            multiply_part(
                address, begin > 0, height, d, width, lower.ctypes.data, width, keys[begin:].ctypes.data,
                some.ctypes.data,
            )  # fmt: skip
            multiply_turned(
                address,
                width,
                d,
                2 * height,
                tile.ctypes.data,
                width,
                right.ctypes.data,
                by_key[begin:].ctypes.data,
            )
