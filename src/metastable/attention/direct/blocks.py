"""Tiled CPU kernel for larger d: two matrix products per tile of scores, the exponentials in place between them.

A tile holds t_ij = beta log2(e) <q_i, k_j> for a block of rows and a block of keys, becomes 2^(t_ij - shift_i), and
meets [m v | m] in the second product, which yields sum and partition together. shift_i is the running maximum of
the row as in the fused kernel: rows whose bound beta |q_i| max_j |k_j| is small keep that bound, the others
take the true maximum of each tile until no later key can overflow. Masses too different to multiply weights (see
`exponents`) are one more column instead, <[q, 1], [k, log2 m]>. In float32 the second product runs over a part of
the keys of a tile at a time, and the parts are added in float64. Memory: O(n d) and one tile per thread.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from metastable.attention.direct.exponents import exponents
from metastable.attention.direct.maximum import largest_of
from metastable.attention.exp2 import LN_2, LOG2_E, REDUCTION, exp2
from metastable.attention.operands import Operands
from metastable.threads import blas_can_be_held, over_rows

_KEYS = 1024
"""Keys of a tile of 256 or 512 rows: 2 or 4 MB in float64, still in a cache when the second product reads it."""

_SINGLE_KEYS = 512
"""Keys of one product of weights and values in float32: its rounding grows with them, in whatever order it adds."""


def blocks_additions(operands: Operands) -> float:
    """Float32 additions after one another in a sum."""
    return float(min(operands.keys.size(0), _SINGLE_KEYS))


def attend_blocks(operands: Operands) -> tuple[Tensor, Tensor]:
    """(mean, log Z) of `attend` on the CPU for any d and d_v, in float32 or float64."""
    operands.require_cpu("blocks")
    # numpy, not torch, outside the products: torch starts its threads for these few operations, and on a busy
    # machine waiting for them costs more than the operations.
    operands = operands.seen
    q, k, v, m = (x.numpy() for x in (operands.queries, operands.keys, operands.values, operands.mass))
    n, n_k, d_v = q.shape[0], k.shape[0], v.shape[1]
    single, dtype = q.dtype == np.float32, operands.queries.dtype
    limits = exponents(single)
    scaled = q * q.dtype.type(operands.beta * LOG2_E)
    least, largest = float(m.min()), float(m.max())
    radius = math.sqrt(float(np.einsum("jc,jc->j", k, k, dtype=np.float64).max()))
    bound = np.sqrt(np.einsum("ic,ic->i", scaled, scaled, dtype=np.float64)) * radius
    if math.log2(least) - math.log2(largest) < limits.share:
        shift = np.where(bound > limits.bound_with_mass, -1e30, bound)
        share, one = np.ones((n_k, 1), dtype=q.dtype), np.ones((n, 1), dtype=q.dtype)
        log_share = operands.log_shares.numpy()[:, None] * q.dtype.type(LOG2_E)
        k, scaled = np.concatenate([k, log_share], axis=1), np.concatenate([scaled, one], axis=1)
    else:
        shift = np.where(bound > limits.bound, -1e30, bound)
        share = (m / m.dtype.type(largest))[:, None]
    keys, queries = torch.from_numpy(np.ascontiguousarray(k)), torch.from_numpy(scaled)
    weighted = torch.from_numpy(np.concatenate([v * share, share], axis=1))
    total = torch.from_numpy(np.zeros((n, d_v + 1)))
    rows = 256 if n < 4096 else 512

    def block_of_rows(start: int, stop: int) -> None:
        buffer = torch.empty(rows * min(_KEYS, n_k), dtype=dtype)
        for first in range(start, stop, rows):
            here = slice(first, min(first + rows, stop))
            rows_q, top, limit, sums = queries[here], shift[here], bound[here], total[here]
            for key in range(0, n_k, _KEYS):
                some, w = keys[key : key + _KEYS], weighted[key : key + _KEYS]
                tile = buffer[: rows_q.shape[0] * some.shape[0]].view(rows_q.shape[0], some.shape[0])
                torch.mm(rows_q, some.T, out=tile)
                weights_in_place(tile.numpy(), top, limit, sums.numpy(), limits.headroom, limits.floor)
                if single:
                    for part in range(0, some.shape[0], _SINGLE_KEYS):
                        last = part + _SINGLE_KEYS
                        sums.numpy()[...] += (tile[:, part:last] @ w[part:last]).numpy()
                else:
                    sums.addmm_(tile, w)

    if blas_can_be_held():
        over_rows(block_of_rows, n, cost=n * n_k * (0.5 + 0.05 * (q.shape[1] + d_v)), quantum=rows)
    else:
        block_of_rows(0, n)
    sums_of_rows = total.numpy()
    partition = sums_of_rows[:, -1]
    log_partition = (shift + np.log2(partition)) * LN_2 + math.log(largest)
    mean = sums_of_rows[:, :-1] / partition[:, None]
    return torch.from_numpy(mean.astype(q.dtype, copy=False)), torch.from_numpy(
        log_partition.astype(q.dtype, copy=False)
    )


@njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
def weights_in_place(tile: Any, shift: Any, bound: Any, total: Any, headroom: float, least: float) -> None:
    """tile_ij <- 2^(tile_ij - shift_i), raising shift_i to the row's maximum where a later key could overflow."""
    floor = tile.dtype.type(least)
    for i in range(tile.shape[0]):
        row = tile[i]
        if bound[i] - shift[i] > headroom:
            top = largest_of(row, len(row))
            if top > shift[i]:
                rescale = math.exp2(max(shift[i] - top, -2000.0))
                for c in range(total.shape[1]):
                    total[i, c] *= rescale
                shift[i] = top
        minus = tile.dtype.type(-shift[i])
        for j in range(row.shape[0]):
            t = row[j] + minus
            row[j] = exp2(t if t > floor else floor)
