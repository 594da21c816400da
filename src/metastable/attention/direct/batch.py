"""Many small systems on the CPU, d and d_v <= MAX_COLUMNS: every system in the first cache, all cores.

Scores are in base 2, t_ij = beta log2(e) <q_i, k_j>. A row whose bound beta |q_i| max_j |k_j| is below a limit is
shifted by that bound; a longer one, and one with masses so different that their logarithms go into the exponents,
by its true maximum, which a first pass finds. See `fused` for the same over many keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from metastable.attention.direct.exponents import exponents
from metastable.attention.direct.fused import with_item
from metastable.attention.exp2 import LN_2, LOG2_E, REDUCTION, exp2
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


@cache
def systems_kernel(d: int, d_v: int, single: bool) -> Callable[..., None]:
    """The compiled loop over systems for one pair of dimensions and one precision; kept on disk."""
    real: Any = np.float32 if single else np.float64
    query_zero, sum_zero = (real(0.0),) * d, (real(0.0),) * (d_v + 1)
    limits = exponents(single)
    bound_limit, floor, least_share = limits.bound, real(limits.floor), limits.share

    @njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
    def kernel(queries: Any, keys: Any, values: Any, mass: Any, beta: Any, mean: Any, log_partition: Any) -> None:
        n_k = keys.shape[1]
        k, v = np.empty((d, n_k), dtype=real), np.empty((d_v + 1, n_k), dtype=real)
        log_share = np.empty(n_k, dtype=real)
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
            for i in range(queries.shape[1]):
                row, square = query_zero, 0.0
                for c in range(d):
                    entry = scale * float(queries[s, i, c])
                    square += entry * entry
                    row = with_item(row, c, real(entry))
                shift = real(math.sqrt(square) * radius)
                part = sum_zero
                if shift <= bound_limit and not in_exponent:
                    for j in range(count):
                        t = -shift
                        for c in range(d):
                            t += row[c] * k[c, j]
                        w = exp2(t)
                        for c in range(d_v + 1):
                            part = with_item(part, c, part[c] + w * v[c, j])
                else:
                    shift = real(-3e38)
                    for j in range(count):
                        t = log_share[j]
                        for c in range(d):
                            t += row[c] * k[c, j]
                        shift = t if t > shift else shift
                    for j in range(count):
                        t = log_share[j] - shift
                        for c in range(d):
                            t += row[c] * k[c, j]
                        w = exp2(t if t > floor else floor)
                        for c in range(d_v + 1):
                            part = with_item(part, c, part[c] + w * v[c, j])
                inverse = 1.0 / float(part[d_v])
                for c in range(d_v):
                    mean[s, i, c] = real(float(part[c]) * inverse)
                log_partition[s, i] = real((float(shift) + math.log2(float(part[d_v])) + log_largest) * LN_2)

    return kernel
