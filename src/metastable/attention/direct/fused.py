"""Fused CPU kernel for small d: scores, exponentials and sums of a row in one pass, nothing of size n_q x n_k.

Scores are computed in base 2, t_ij = beta log2(e) <q_i, k_j>, so that no multiplication is lost on the base of the
exponential. A row with beta |q_i| max_j |k_j| below a limit is shifted by that bound (no score exceeds it and no
weight underflows). A longer row is shifted by its running maximum over blocks of keys: a first pass finds the true
maximum of the block, the sums so far are rescaled when it exceeds the shift, and a block that is too far below to
matter is skipped. The first pass is spared once the bound says that no later key can overflow above the shift.
Masses multiply values and weights; masses so different that a weight which is too small to matter could belong to
the only key that does are added to the scores as log2 m_j before anything is shifted, raised or skipped.
In float32 a block is summed in float32 and the blocks are summed in float64. In float64 `eight_rows` does the same
with queries in the places of a vector, from `_LEAST_OF_EIGHTS` rows on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit
from numba.cpython.unsafe.tuple import tuple_setitem
from numba.extending import intrinsic
from torch import Tensor

from metastable.attention.direct.eight_rows import rows_kernel
from metastable.attention.direct.exponents import DOUBLE, exponents
from metastable.attention.direct.maximum import numbers
from metastable.attention.exp2 import LN_2, LOG2_E, REDUCTION, exp2
from metastable.attention.lanes import LANES
from metastable.attention.lasting import lasting
from metastable.attention.operands import Operands
from metastable.errors import InvalidInput
from metastable.threads import over_rows

MAX_COLUMNS = 8
"""Largest d and d_v: LLVM unrolls the loops over columns up to here; beyond, matrix multiplication wins."""

_LEAST_OF_EIGHTS = 4 * LANES
"""Rows from which on float64 is computed for eight at a time, whatever the last of the eights lacks."""

_ROWS = 64
"""Rows that meet a block of keys one after the other, while it is in the second cache."""

_LANES = 4
"""float32 numbers of the least vector register that numba compiles for (128 bits): a block is summed in as many
sums at least, side by side."""

with_item: Any = lasting(intrinsic(tuple_setitem._defn), "with_item")
"""with_item(t, i, x): the tuple t with entry i replaced. numba keeps it private, and nothing public does the same:
tuples of registers are what lets LLVM hold one row in them for any number of columns."""


def attend_fused(operands: Operands) -> tuple[Tensor, Tensor]:
    """(mean, log Z) of `attend` for d, d_v <= MAX_COLUMNS on the CPU, in float32 or float64, on all cores."""
    operands.require_cpu("fused")
    q, keys, values, mass = operands.arrays
    (n, d), (n_k, d_v), dtype = q.shape, values.shape, operands.queries.dtype
    if max(d, d_v) > MAX_COLUMNS:
        raise InvalidInput(
            f'kernel="fused" takes d and d_v up to {MAX_COLUMNS}, got {d} and {d_v}; use kernel="blocks"'
        )
    if q.dtype == np.float64 and n >= _LEAST_OF_EIGHTS:
        return _by_eights(operands)
    single = q.dtype == np.float32
    block = _block(n_k, d + d_v)
    blocks = -(-n_k // block)
    k, weighted = aligned_zeros(q.dtype, (blocks, d, block), (blocks, d_v + 1, block))
    count, radius, largest, in_exponent = key_blocks(keys, values, mass, k, weighted, exponents(single).share)
    mean, log_partition = torch.empty((n, d_v), dtype=dtype), torch.empty(n, dtype=dtype)
    out, log_z = mean.numpy(), log_partition.numpy()
    kernel = fused_kernel(d, d_v, single, in_exponent)
    scale, log_mass = operands.beta * LOG2_E, math.log(largest)

    def attend_rows(start: int, stop: int) -> None:
        kernel(q[start:stop], k, weighted, count, scale, radius, log_mass, out[start:stop], log_z[start:stop])

    over_rows(attend_rows, n, cost=n * n_k * (0.35 if single else 0.9))
    return mean, log_partition


def _by_eights(operands: Operands) -> tuple[Tensor, Tensor]:
    """The same in float64 by `eight_rows`."""
    q, keys, values, mass = operands.arrays
    n, (n_k, d), d_v = len(q), keys.shape, values.shape[1]
    packed = np.empty((n_k, d + d_v + 1))
    one_block = packed[:, :d].T[None], packed[:, d:].T[None]
    count, radius, largest, in_exponent = key_blocks(keys, values, mass, *one_block, DOUBLE.share)
    # Rows whose weights are no numbers are left as they are.
    mean, log_partition = (torch.full(shape, math.nan, dtype=torch.float64) for shape in ((n, d_v), (n,)))
    out, log_z, log_mass = mean.numpy(), log_partition.numpy(), math.log(largest)
    kernel, scale = rows_kernel(d, d_v, in_exponent, False), operands.beta * LOG2_E

    def attend_rows(start: int, stop: int) -> None:
        kernel(q, packed, count, scale, radius, log_mass, 0, start, stop, out, log_z)

    over_rows(attend_rows, n, cost=n * n_k * 0.4, quantum=LANES)
    return mean, log_partition


def fused_additions(operands: Operands) -> float:
    """Float32 additions after one another in a sum: of one lane over a block, and of the lanes."""
    n_k, d = operands.keys.shape
    return _block(n_k, d + operands.values.size(1)) / _LANES + _LANES


def _block(n_k: int, columns: int) -> int:
    """Keys of a block, for d + d_v columns."""
    block = min(2064 if columns < 10 else 1040, -(-n_k // 16) * 16)  # within the second cache
    return block + (16 if block % 256 == 0 else 0)  # columns 2 kB apart would share few places of the cache


def fused_cost(operands: Operands, _rtol: float) -> float:
    """Nanoseconds of one Zen 5 core for all pairs in float64, as measured for d = 2 and 3."""
    return (0.35 if operands.queries.shape[1] == 2 else 0.4) * operands.pairs


def aligned_zeros(dtype: np.dtype, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Zeros that begin at a line of the cache: a vector of 64 bytes that crosses one costs two loads."""
    sizes = [-(-math.prod(shape) * dtype.itemsize // 64) * 64 for shape in shapes]
    raw = np.zeros(sum(sizes) + 64, dtype=np.uint8)
    start, out = -raw.ctypes.data % 64, []
    for shape, size in zip(shapes, sizes, strict=True):
        out.append(np.ndarray(shape, dtype, raw, start))
        start += size
    return out


@njit(nogil=True, cache=True, error_model="numpy")
def key_blocks(
    k: Any, v: Any, m: Any, keys: Any, weighted: Any, least_share: float
) -> tuple[int, float, float, bool]:
    """Keys as (blocks, d, block); [m v | m] as (blocks, d_v + 1, block), m scaled to at most 1, or [v | log2 m].

    Returns how many keys there are, the length of the longest, the largest mass, and whether it is the logarithm:
    where a share m_j / max m is below 2^least_share.

    Keys of mass zero are left out: their scores must not move the row maximum.
    """
    least, largest = np.inf, 0.0
    for j in range(m.shape[0]):
        largest = max(largest, m[j])
        least = min(least, m[j]) if m[j] > 0.0 else least
    log_largest = math.log2(largest)
    in_exponent = math.log2(least) - log_largest < least_share
    block = keys.shape[2]
    count = 0
    longest = 0.0
    for j in range(k.shape[0]):
        if m[j] > 0.0:
            b, place = divmod(count, block)
            square = 0.0
            for c in range(k.shape[1]):
                keys[b, c, place] = k[j, c]
                square += float(k[j, c]) * float(k[j, c])
            longest = max(longest, square)
            share = 1.0 if in_exponent else m[j] / largest
            for c in range(v.shape[1]):
                weighted[b, c, place] = share * v[j, c]
            weighted[b, v.shape[1], place] = math.log2(m[j]) - log_largest if in_exponent else share
            count += 1
    return count, math.sqrt(longest), largest, in_exponent


@cache
def largest_score_kernel(d: int, d_v: int, single: bool, in_exponent: bool) -> Callable[..., Any]:
    """Compiled largest(row, k, v, length): the largest score over some keys, with their masses if `in_exponent`.

    A function of its own, so that it becomes vector instructions (see `numbers`).
    """
    real: Any = np.float32 if single else np.float64

    @njit(fastmath=REDUCTION, nogil=True, error_model="numpy")
    def largest(row: Any, k: Any, v: Any, length: int) -> Any:
        numbers()
        top = real(-3e38)
        for j in range(length):
            t = v[d_v, j] if in_exponent else real(0.0)
            for c in range(d):
                t += row[c] * k[c, j]
            top = t if t > top else top
        return top

    return lasting(largest, f"largest_score {d} {d_v} {single} {in_exponent}")


@cache
def fused_kernel(d: int, d_v: int, single: bool, in_exponent: bool) -> Callable[..., None]:
    """The compiled loop for one pair of dimensions, one precision and one place of the masses; kept on disk."""
    real: Any = np.float32 if single else np.float64
    query_zero, sum_zero, total_zero = (real(0.0),) * d, (real(0.0),) * (d_v + 1), (0.0,) * (d_v + 1)
    limits = exponents(single)
    bound_limit = limits.bound_with_mass if in_exponent else limits.bound
    headroom, floor = limits.headroom, real(limits.floor)

    largest_score = largest_score_kernel(d, d_v, single, in_exponent)

    @njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
    def kernel(
        queries: Any,
        keys: Any,
        weighted: Any,
        count: int,
        scale: float,
        radius: float,
        log_mass: float,
        mean: Any,
        log_partition: Any,
    ) -> None:
        block = keys.shape[2]
        blocks = (count + block - 1) // block
        totals, shifts = np.empty((_ROWS, d_v + 1)), np.empty(_ROWS, dtype=real)
        for first in range(0, queries.shape[0], _ROWS):
            rows = min(_ROWS, queries.shape[0] - first)
            for b in range(blocks):
                k, v = keys[b], weighted[b]
                length = min(block, count - b * block)
                for i in range(rows):
                    row = query_zero
                    square = 0.0
                    for c in range(d):
                        entry = scale * queries[first + i, c]
                        square += entry * entry
                        row = with_item(row, c, real(entry))
                    bound = math.sqrt(square) * radius
                    running = bound > bound_limit
                    total = total_zero
                    if b == 0:
                        shift = real(-1e30) if running else real(bound)
                    else:
                        shift = shifts[i]
                        for c in range(d_v + 1):
                            total = with_item(total, c, totals[i, c])
                    skipped = False
                    if bound - shift > headroom:
                        top = largest_score(row, k, v, length)
                        if top > shift:
                            rescale = math.exp2(max(float(shift) - float(top), -2000.0))
                            for c in range(d_v + 1):
                                total = with_item(total, c, total[c] * rescale)
                            shift = top
                        else:
                            skipped = top < shift + floor
                    if not skipped:
                        part = sum_zero
                        if running or in_exponent:
                            for j in range(length):
                                t = v[d_v, j] - shift if in_exponent else -shift
                                for c in range(d):
                                    t += row[c] * k[c, j]
                                w = exp2(t if t > floor else floor)
                                for c in range(d_v):
                                    part = with_item(part, c, part[c] + w * v[c, j])
                                part = with_item(part, d_v, part[d_v] + (w if in_exponent else w * v[d_v, j]))
                        else:
                            for j in range(length):
                                t = -shift
                                for c in range(d):
                                    t += row[c] * k[c, j]
                                w = exp2(t)
                                for c in range(d_v + 1):
                                    part = with_item(part, c, part[c] + w * v[c, j])
                        for c in range(d_v + 1):
                            total = with_item(total, c, total[c] + part[c])
                    shifts[i] = shift
                    for c in range(d_v + 1):
                        totals[i, c] = total[c]
            for i in range(rows):
                inverse = 1.0 / totals[i, d_v]
                for c in range(d_v):
                    mean[first + i, c] = real(totals[i, c] * inverse)
                log_partition[first + i] = real((float(shifts[i]) + math.log2(totals[i, d_v])) * LN_2 + log_mass)

    return kernel
