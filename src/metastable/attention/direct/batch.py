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
from metastable.attention.direct.maximum import largest_of
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
    kernel = systems_kernel(written_out(d, d_v), dtype == torch.float32)

    def attend_some(start: int, stop: int) -> None:
        kernel(*(x[start:stop] for x in arrays))

    over_rows(attend_some, b, cost=NANOSECONDS * b * n_q * n_k)
    return mean, log_partition


class RowSums(NamedTuple):
    """The compiled sums of row i, s_c = sum_j 2^(t_j - shift) v_cj, with t_j = <q, k_j> + l_j, put into out[:, i].

    k (d, n), v (d_v + 1, n); q (d,) times beta log2(e); w has room for n numbers. They are inlined where they are
    called: only so LLVM sees loops that it can turn into vector instructions, and only if a caller does not choose
    between the two row by row.
    """

    one_pass: Callable[..., None]
    """(q, shift, k, v, n, w, out, i) for l = 0; the shift |q| max_j |k_j| is below the bound of `Exponents`."""
    two_passes: Callable[..., Any]
    """(q, k, v, l, n, w, out, i) -> shift, the maximum of t; l are logarithms of masses, or zero."""


def written_out(d: int, d_v: int) -> int:
    """The number of columns where loops over them are written out, two or three; 0 for all others together.

    A kernel takes seconds to compile, and the same loops over one column after the other serve every number.
    """
    return d if d == d_v and d in _ONE_PASS else 0


@cache
def row_sums(columns: int, single: bool) -> RowSums:
    """The sums for `written_out` columns and one precision."""
    real: Any = np.float32 if single else np.float64
    floor = real(exponents(single).floor)

    @njit(fastmath=REDUCTION, nogil=True, inline="always", error_model="numpy")
    def two_passes(q: Any, k: Any, v: Any, log_share: Any, count: int, w: Any, out: Any, i: int) -> Any:
        for j in range(count):
            w[j] = log_share[j]
        for c in range(k.shape[0]):
            qc = q[c]
            for j in range(count):
                w[j] += qc * k[c, j]
        shift = largest_of(w, count)
        for j in range(count):
            t = w[j] - shift
            w[j] = exp2(t if t > floor else floor)
        for c in range(v.shape[0]):
            part = real(0.0)
            for j in range(count):
                part += w[j] * v[c, j]
            out[c, i] = part
        return shift

    return RowSums(_ONE_PASS.get(columns, _ANY), lasting(two_passes, f"two_passes {single}"))


@njit(fastmath=REDUCTION, nogil=True, inline="always", error_model="numpy")
def _one_pass(q: Any, shift: Any, k: Any, v: Any, count: int, w: Any, out: Any, i: int) -> None:
    for j in range(count):
        w[j] = -shift
    for c in range(k.shape[0]):
        qc = q[c]
        for j in range(count):
            w[j] += qc * k[c, j]
    for j in range(count):
        w[j] = exp2(w[j])
    for c in range(v.shape[0]):
        part = shift * 0
        for j in range(count):
            part += w[j] * v[c, j]
        out[c, i] = part


# In two and three dimensions nothing is put aside between the score of a pair and its sums.


@njit(fastmath=REDUCTION, nogil=True, inline="always", error_model="numpy")
def _one_pass_2(q: Any, shift: Any, k: Any, v: Any, count: int, w: Any, out: Any, i: int) -> None:
    q0, q1 = q[0], q[1]
    zero = shift * 0
    s0, s1, total = zero, zero, zero
    for j in range(count):
        e = exp2(q0 * k[0, j] + q1 * k[1, j] - shift)
        s0 += e * v[0, j]
        s1 += e * v[1, j]
        total += e * v[2, j]
    out[0, i], out[1, i], out[2, i] = s0, s1, total


@njit(fastmath=REDUCTION, nogil=True, inline="always", error_model="numpy")
def _one_pass_3(q: Any, shift: Any, k: Any, v: Any, count: int, w: Any, out: Any, i: int) -> None:
    q0, q1, q2 = q[0], q[1], q[2]
    zero = shift * 0
    s0, s1, s2, total = zero, zero, zero, zero
    for j in range(count):
        e = exp2(q0 * k[0, j] + q1 * k[1, j] + q2 * k[2, j] - shift)
        s0 += e * v[0, j]
        s1 += e * v[1, j]
        s2 += e * v[2, j]
        total += e * v[3, j]
    out[0, i], out[1, i], out[2, i], out[3, i] = s0, s1, s2, total


_ANY = lasting(_one_pass, "one_pass")
_ONE_PASS: dict[int, Callable[..., None]] = {
    2: lasting(_one_pass_2, "one_pass 2"),
    3: lasting(_one_pass_3, "one_pass 3"),
}


@cache
def systems_kernel(columns: int, single: bool) -> Callable[..., None]:
    """The compiled loop over systems for `written_out` columns and one precision; kept on disk."""
    real: Any = np.float32 if single else np.float64
    (one_pass, two_passes), limits = row_sums(columns, single), exponents(single)
    bound_limit, least_share = limits.bound, limits.share

    @njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
    def kernel(queries: Any, keys: Any, values: Any, mass: Any, beta: Any, mean: Any, log_partition: Any) -> None:
        wide()
        n_q, n_k = queries.shape[1], keys.shape[1]
        d, d_v = columns or keys.shape[2], columns or values.shape[2]
        bound, shift, total = np.empty(n_q), np.empty(n_q, dtype=real), np.empty((d_v + 1, n_q), dtype=real)
        k, v = np.empty((d, n_k), dtype=real), np.empty((d_v + 1, n_k), dtype=real)
        log_share, w, q = np.empty(n_k, dtype=real), np.empty(n_k, dtype=real), np.empty(d, dtype=real)
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
                    one_pass(q, shift[i], k, v, count, w, total, i)
            else:
                for i in range(n_q):
                    for c in range(d):
                        q[c] = real(scale * float(queries[s, i, c]))
                    shift[i] = two_passes(q, k, v, log_share, count, w, total, i)
            for i in range(n_q):
                inverse = 1.0 / float(total[d_v, i])
                for c in range(d_v):
                    mean[s, i, c] = real(float(total[c, i]) * inverse)
                log_z = float(shift[i]) + math.log2(float(total[d_v, i])) + log_largest
                log_partition[s, i] = real(log_z * LN_2)

    return kernel
