"""Attention of tokens in an order: row i sees the keys before it, and itself where asked; half of all pairs.

Up to `MAX_COLUMNS` columns on the CPU a fused loop as in `fused`: scores in base 2, exponentials and sums of a row
in one pass, nothing of size n x n. Rows are taken in pairs of ranges from both ends, so that every thread gets as
many pairs as any other. In its last block of keys a row takes `_LANES` of them at a time, and those that it does
not see get the weight zero: a remainder of any length would be computed one by one, and a loop of its own for the
last keys would be summed up twice. Of more columns blocks of rows are matrix products (`causal_products`).

Masses come as logarithms, because those of early keys may be far below the others (a row may see none but these):
where a mass is below 2^LEAST_SHARE of the largest, or a row is too sharp to be shifted by its bound, the logarithms
stay in the exponents, and rows are shifted by their running maximum. All is computed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from metastable.attention.direct.causal_products import ABSENT, LEAST_SHARE, attend_causal_products
from metastable.attention.direct.exponents import DOUBLE
from metastable.attention.direct.fused import MAX_COLUMNS, aligned_zeros, largest_score_kernel, with_item
from metastable.attention.exp2 import LN_2, LOG2_E, REDUCTION, exp2, wide
from metastable.threads import over_rows

_ROWS = 64
"""Rows that meet a block of keys one after the other, as in `fused`."""
_BLOCK = 1056
"""Keys of a block at most, as in `fused` for its widest rows; a multiple of `_LANES`."""
_LANES = 32
"""Keys that a row takes at a time. Of 16, 32 and 64 the fastest for d = 2 and 3 and 1000 tokens: a loop over
vectors of 8, four at a time, leaves no remainder."""
_SCORES = 1 << 21
"""Scores that a block of rows holds at once, 16 MB."""


def attend_causal(
    queries: Float[Tensor, "n c"],
    keys: Float[Tensor, "n c"],
    values: Float[Tensor, "n v"],
    log_mass: Float[Tensor, "n"],
    beta: float,
    include_self: bool,
) -> tuple[Float[Tensor, "n v"], Float[Tensor, "n"]]:
    """m_i = sum_{k<=i} m_k e^{beta <q_i, k_k>} v_k / Z_i and log Z_i, or the sums over k < i.

    log_mass: log m_k, -infinity for none. A row that sees no mass has the mean zero and log Z = -infinity.
    """
    many = max(keys.shape[1], values.shape[1]) > MAX_COLUMNS
    on_cpu = attend_causal_products if many else _fused
    method = on_cpu if queries.is_cpu else _blocks
    mean, log_partition = method(
        queries.double(), keys.double(), values.double(), log_mass.double(), beta, include_self
    )
    return mean.to(queries.dtype), log_partition.to(queries.dtype)


def causal_cost(n: int) -> float:
    """Nanoseconds of one core for all pairs, as `benchmarks/causal.py` measures them for d = 2 and 3."""
    return 0.4 * n**2


def _blocks(
    queries: Tensor, keys: Tensor, values: Tensor, log_mass: Tensor, beta: float, include_self: bool
) -> tuple[Tensor, Tensor]:
    """The same by blocks of rows, on any device."""
    n, offset = len(keys), int(include_self)
    mean, log_partition = torch.zeros_like(values), torch.full_like(log_mass, -math.inf)
    step = max(1, min(512, _SCORES // n))
    number = torch.arange(n, device=keys.device)
    for start in range(0, n, step):
        stop = min(start + step, n)
        seen = stop - 1 + offset
        if seen == 0:
            continue
        scores = torch.addmm(log_mass[:seen], queries[start:stop], keys[:seen].T, alpha=beta)
        scores.masked_fill_(number[:seen] >= number[start:stop, None] + offset, -math.inf)
        top = scores.amax(1, keepdim=True)
        empty = top[:, 0] == -math.inf
        weights = torch.exp(scores - torch.where(empty[:, None], 0.0, top))
        total = weights.sum(1)
        mean[start:stop] = (weights @ values[:seen]) / torch.where(empty, 1.0, total)[:, None]
        log_partition[start:stop] = top[:, 0] + torch.log(total)
    return mean, torch.where(torch.isnan(log_partition), -math.inf, log_partition)


def _fused(
    queries: Tensor, keys: Tensor, values: Tensor, log_mass: Tensor, beta: float, include_self: bool
) -> tuple[Tensor, Tensor]:
    """The same by the compiled loop."""
    q, k, v, m = (np.ascontiguousarray(a.numpy()) for a in (queries, keys, values, log_mass))
    (n, d), d_v, offset = k.shape, v.shape[1], int(include_self)
    mean, log_partition = (
        torch.zeros((n, d_v), dtype=torch.float64),
        torch.full((n,), -math.inf, dtype=torch.float64),
    )
    largest = float(m.max())
    if largest == -math.inf:
        return mean, log_partition
    block = min(_BLOCK, -(-n // _LANES) * _LANES)
    blocks = -(-n // block)
    packed, weighted = aligned_zeros(q.dtype, (blocks, d, block), (blocks, d_v + 1, block))
    scale = beta * LOG2_E
    longest_query, radius, least = lengths(q, k, m)
    in_exponent = scale * longest_query * radius > DOUBLE.bound or (least - largest) * LOG2_E < LEAST_SHARE
    pack(k, v, m, largest, in_exponent, packed, weighted)
    kernel, out, log_z = causal_kernel(d, d_v, in_exponent), mean.numpy(), log_partition.numpy()
    half = (n + 1) // 2

    def attend_rows(start: int, stop: int) -> None:
        for low, high in ((start, stop), (max(n - stop, half), n - start)):
            kernel(q, packed, weighted, scale, radius, largest, offset, low, high, out, log_z)

    over_rows(attend_rows, half, cost=causal_cost(n))
    return mean, log_partition


@njit(nogil=True, cache=True, error_model="numpy")
def lengths(q: Any, k: Any, m: Any) -> tuple[float, float, float]:
    """max |q_i|, max |k_j| and the least logarithm of a mass that is not zero."""
    longest, radius, least = 0.0, 0.0, np.inf
    for i in range(q.shape[0]):
        square, other = 0.0, 0.0
        for c in range(q.shape[1]):
            square += q[i, c] * q[i, c]
            other += k[i, c] * k[i, c]
        longest, radius = max(longest, square), max(radius, other)
        if m[i] > -np.inf:
            least = min(least, m[i])
    return math.sqrt(longest), math.sqrt(radius), least


@njit(nogil=True, cache=True, error_model="numpy")
def pack(k: Any, v: Any, m: Any, largest: float, in_exponent: bool, keys: Any, weighted: Any) -> None:
    """Keys as (blocks, d, block); [m v | m] as (blocks, d_v + 1, block), m at most 1, or [v | log2 m]."""
    block, d_v = keys.shape[2], v.shape[1]
    for j in range(k.shape[0]):
        b, place = divmod(j, block)
        for c in range(k.shape[1]):
            keys[b, c, place] = k[j, c]
        seen = m[j] > -np.inf
        exponent = (m[j] - largest) * LOG2_E if seen else ABSENT
        share = 1.0 if in_exponent else (2.0**exponent if seen else 0.0)
        for c in range(d_v):
            weighted[b, c, place] = share * v[j, c]
        weighted[b, d_v, place] = exponent if in_exponent else share


@cache
def causal_kernel(d: int, d_v: int, in_exponent: bool) -> Callable[..., None]:
    """The compiled loop for one pair of dimensions and one place of the masses; kept on disk."""
    query_zero, sum_zero = (0.0,) * d, (0.0,) * (d_v + 1)
    headroom, floor = DOUBLE.headroom, DOUBLE.floor
    largest_score = largest_score_kernel(d, d_v, False, True)

    @njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
    def kernel(
        queries: Any,
        keys: Any,
        weighted: Any,
        scale: float,
        radius: float,
        log_mass: float,
        offset: int,
        start: int,
        stop: int,
        mean: Any,
        log_partition: Any,
    ) -> None:
        wide()
        block = keys.shape[2]
        totals, shifts = np.empty((_ROWS, d_v + 1)), np.empty(_ROWS)
        for first in range(start, stop, _ROWS):
            last = min(first + _ROWS, stop)
            totals[:] = 0.0
            for b in range((last - 1 + offset + block - 1) // block):
                k, v = keys[b], weighted[b]
                for i in range(first, last):
                    length = min(block, i + offset - b * block)
                    if length <= 0:
                        continue
                    row = query_zero
                    square = 0.0
                    for c in range(d):
                        entry = scale * queries[i, c]
                        square += entry * entry
                        row = with_item(row, c, entry)
                    bound = math.sqrt(square) * radius
                    total = sum_zero
                    for c in range(d_v + 1):
                        total = with_item(total, c, totals[i - first, c])
                    shift = bound
                    skipped = False
                    if in_exponent:
                        shift = -1e30 if b == 0 else shifts[i - first]
                        if bound - shift > headroom:
                            top = largest_score(row, k, v, length)
                            if top > shift:
                                rescale = math.exp2(max(shift - top, -2000.0))
                                for c in range(d_v + 1):
                                    total = with_item(total, c, total[c] * rescale)
                                shift = top
                            else:
                                skipped = top < shift + floor
                    if not skipped:
                        part = sum_zero
                        padded = (length + _LANES - 1) // _LANES * _LANES
                        if in_exponent:
                            for j in range(padded):
                                t = v[d_v, j] - shift
                                for c in range(d):
                                    t += row[c] * k[c, j]
                                w = exp2(t if t > floor else floor)
                                w = w if j < length else 0.0
                                for c in range(d_v):
                                    part = with_item(part, c, part[c] + w * v[c, j])
                                part = with_item(part, d_v, part[d_v] + w)
                        elif length == block:
                            for j in range(block):
                                t = -shift
                                for c in range(d):
                                    t += row[c] * k[c, j]
                                w = exp2(t)
                                for c in range(d_v + 1):
                                    part = with_item(part, c, part[c] + w * v[c, j])
                        else:  # the row ends here
                            for j in range(padded):
                                t = -shift
                                for c in range(d):
                                    t += row[c] * k[c, j]
                                w = exp2(t)
                                w = w if j < length else 0.0
                                for c in range(d_v + 1):
                                    part = with_item(part, c, part[c] + w * v[c, j])
                        for c in range(d_v + 1):
                            total = with_item(total, c, total[c] + part[c])
                    shifts[i - first] = shift
                    for c in range(d_v + 1):
                        totals[i - first, c] = total[c]
            for i in range(first, last):
                weight = totals[i - first, d_v]
                if weight > 0.0:
                    for c in range(d_v):
                        mean[i, c] = totals[i - first, c] / weight
                    log_partition[i] = (shifts[i - first] + math.log2(weight)) * LN_2 + log_mass

    return kernel
