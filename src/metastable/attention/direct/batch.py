"""Many small systems on the CPU, d and d_v <= MAX_COLUMNS: every system in the first cache, all cores.

Scores are in base 2, t_ij = beta log2(e) <q_i, k_j>. A row whose bound beta |q_i| max_j |k_j| is below a limit is
shifted by that bound; a longer one, and one with masses so different that their logarithms go into the exponents,
by its true maximum, which a first pass finds. See `fused` for the same over many keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from metastable.attention.direct.exponents import exponents
from metastable.attention.direct.fused import with_item
from metastable.attention.exp2 import LN_2, LOG2_E, REDUCTION, exp2, wide
from metastable.attention.lasting import lasting
from metastable.threads import over_rows

NANOSECONDS = 1.0
"""Rough cost of one pair of tokens, for the choice of threads."""


def attend_systems(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """(mean (b, n_q, d_v), log Z (b, n_q)) of b systems of float32 or float64, on all cores; beta (b,)."""
    (b, n_q, d), (n_k, d_v), dtype = queries.shape, values.shape[1:], queries.dtype
    mean, log_partition = torch.empty((b, n_q, d_v), dtype=dtype), torch.empty((b, n_q), dtype=dtype)
    arrays = [x.contiguous().numpy() for x in (queries, keys, values, mass, beta)]
    arrays += [mean.numpy(), log_partition.numpy()]
    kernel = systems_kernel(d, d_v, dtype == torch.float32)

    def attend_some(start: int, stop: int) -> None:
        kernel(*(x[start:stop] for x in arrays))

    over_rows(attend_some, b, cost=NANOSECONDS * b * n_q * n_k)
    return mean, log_partition


class RowSums(NamedTuple):
    """The compiled sums of one row, s = sum_j 2^(t_j - shift) v_j, with t_j = <q, k_j> + l_j.

    k (d, n), v (d_v + 1, n); q (d,) times beta log2(e). They are inlined where they are called: only so LLVM sees a
    loop that it can turn into vector instructions, and only if a caller does not choose between the two row by row.
    """

    one_pass: Callable[..., Any]
    """(q, shift, k, v, n) -> s for l = 0, where the shift |q| max_j |k_j| is below the bound of `Exponents`."""
    two_passes: Callable[..., Any]
    """(q, k, v, l, n) -> (s, shift), shifted by the maximum of t; l are logarithms of masses, or zero."""


@cache
def row_sums(d: int, d_v: int, single: bool) -> RowSums:
    """The sums for one pair of dimensions and one precision."""
    real: Any = np.float32 if single else np.float64
    sum_zero, floor = (real(0.0),) * (d_v + 1), real(exponents(single).floor)

    @njit(fastmath=REDUCTION, nogil=True, inline="always", error_model="numpy")
    def two_passes(q: Any, k: Any, v: Any, log_share: Any, count: int) -> Any:
        part, shift = sum_zero, real(-3e38)
        for j in range(count):
            t = log_share[j]
            for c in range(d):
                t += q[c] * k[c, j]
            shift = t if t > shift else shift
        for j in range(count):
            t = log_share[j] - shift
            for c in range(d):
                t += q[c] * k[c, j]
            w = exp2(t if t > floor else floor)
            for c in range(d_v + 1):
                part = with_item(part, c, part[c] + w * v[c, j])
        return part, shift

    one_pass = _ONE_PASS.get((d, d_v)) or lasting(_one_pass(d, d_v, single), f"one_pass {d} {d_v} {single}")
    return RowSums(one_pass, lasting(two_passes, f"two_passes {d} {d_v} {single}"))


# In two and three dimensions the loops over coordinates are written out: LLVM turns these into vector instructions.


@njit(fastmath=REDUCTION, nogil=True, inline="always", error_model="numpy")
def _one_pass_2(q: Any, shift: Any, k: Any, v: Any, count: int) -> Any:
    q0, q1 = q[0], q[1]
    zero = shift * 0
    s0, s1, total = zero, zero, zero
    for j in range(count):
        w = exp2(q0 * k[0, j] + q1 * k[1, j] - shift)
        s0 += w * v[0, j]
        s1 += w * v[1, j]
        total += w * v[2, j]
    return s0, s1, total


@njit(fastmath=REDUCTION, nogil=True, inline="always", error_model="numpy")
def _one_pass_3(q: Any, shift: Any, k: Any, v: Any, count: int) -> Any:
    q0, q1, q2 = q[0], q[1], q[2]
    zero = shift * 0
    s0, s1, s2, total = zero, zero, zero, zero
    for j in range(count):
        w = exp2(q0 * k[0, j] + q1 * k[1, j] + q2 * k[2, j] - shift)
        s0 += w * v[0, j]
        s1 += w * v[1, j]
        s2 += w * v[2, j]
        total += w * v[3, j]
    return s0, s1, s2, total


_ONE_PASS: dict[tuple[int, int], Callable[..., Any]] = {
    (2, 2): lasting(_one_pass_2, "one_pass 2"),
    (3, 3): lasting(_one_pass_3, "one_pass 3"),
}


def _one_pass(d: int, d_v: int, single: bool) -> Callable[..., Any]:
    real: Any = np.float32 if single else np.float64
    query_zero, sum_zero = (real(0.0),) * d, (real(0.0),) * (d_v + 1)

    @njit(fastmath=REDUCTION, nogil=True, inline="always", error_model="numpy")
    def one_pass(q: Any, shift: Any, k: Any, v: Any, count: int) -> Any:
        row, part = query_zero, sum_zero
        for c in range(d):
            row = with_item(row, c, q[c])
        for j in range(count):
            t = -shift
            for c in range(d):
                t += row[c] * k[c, j]
            w = exp2(t)
            for c in range(d_v + 1):
                part = with_item(part, c, part[c] + w * v[c, j])
        return part

    return one_pass


@cache
def systems_kernel(d: int, d_v: int, single: bool) -> Callable[..., None]:
    """The compiled loop over systems for one pair of dimensions and one precision; kept on disk."""
    real: Any = np.float32 if single else np.float64
    (one_pass, two_passes), limits = row_sums(d, d_v, single), exponents(single)
    bound_limit, least_share = limits.bound, limits.share

    @njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
    def kernel(queries: Any, keys: Any, values: Any, mass: Any, beta: Any, mean: Any, log_partition: Any) -> None:
        wide()
        n_q, n_k = queries.shape[1], keys.shape[1]
        bound, shift, total = np.empty(n_q), np.empty(n_q, dtype=real), np.empty((d_v + 1, n_q), dtype=real)
        k, v = np.empty((d, n_k), dtype=real), np.empty((d_v + 1, n_k), dtype=real)
        log_share, q = np.empty(n_k, dtype=real), np.empty(d, dtype=real)
        for s in range(queries.shape[0]):
            least, largest = np.inf, 0.0
            for j in range(n_k):
                m = float(mass[s, j])
                largest = max(largest, m)
                least = min(least, m) if m > 0.0 else least
            log_largest = math.log2(largest)
            in_exponent = math.log2(least) - log_largest < least_share
            count, longest = 0, 0.0
            for j in range(n_k):
                m = float(mass[s, j])
                if m > 0.0:
                    square = 0.0
                    for c in range(d):
                        k[c, count] = keys[s, j, c]
                        square += float(keys[s, j, c]) * float(keys[s, j, c])
                    longest = max(longest, square)
                    share = 1.0 if in_exponent else m / largest
                    for c in range(d_v):
                        v[c, count] = real(share * float(values[s, j, c]))
                    v[d_v, count] = real(share)
                    log_share[count] = real(math.log2(m) - log_largest if in_exponent else 0.0)
                    count += 1
            scale, radius = float(beta[s]) * LOG2_E, math.sqrt(longest)
            plain = not in_exponent
            for i in range(n_q):
                square = 0.0
                for c in range(d):
                    square += float(queries[s, i, c]) * float(queries[s, i, c])
                bound[i] = scale * math.sqrt(square) * radius
                plain = plain and bound[i] <= bound_limit
            if plain:
                for i in range(n_q):
                    for c in range(d):
                        q[c] = real(scale * float(queries[s, i, c]))
                    shift[i] = real(bound[i])
                    part = one_pass(q, shift[i], k, v, count)
                    for c in range(d_v + 1):
                        total[c, i] = part[c]
            else:
                for i in range(n_q):
                    for c in range(d):
                        q[c] = real(scale * float(queries[s, i, c]))
                    part, shift[i] = two_passes(q, k, v, log_share, count)
                    for c in range(d_v + 1):
                        total[c, i] = part[c]
            for i in range(n_q):
                inverse = 1.0 / float(total[d_v, i])
                for c in range(d_v):
                    mean[s, i, c] = real(float(total[c, i]) * inverse)
                log_z = float(shift[i]) + math.log2(float(total[d_v, i])) + log_largest
                log_partition[s, i] = real(log_z * LN_2)

    return kernel
