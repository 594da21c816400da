"""Attention of tokens in an order: row i sees the keys before it, and itself where asked; half of all pairs.

Up to `MAX_COLUMNS` columns on the CPU by the loop of `eight_rows`: scores in base 2, exponentials and sums in one
pass, nothing of size n x n. Rows are taken in pairs of ranges from both ends, so that every thread gets as many
pairs as any other. Of more columns blocks of rows are matrix products (`causal_products`).

Masses come as logarithms, because those of early keys may be far below the others (a row may see none but these):
where a mass is below 2^LEAST_SHARE of the largest, or a row is too sharp to be shifted by its bound, the logarithms
stay in the exponents, and rows are shifted by their running maximum. All is computed in float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from metastable.attention.direct.causal_products import ABSENT, LEAST_SHARE, attend_causal_products
from metastable.attention.direct.eight_rows import rows_kernel
from metastable.attention.direct.exponents import DOUBLE
from metastable.attention.direct.fused import MAX_COLUMNS
from metastable.attention.exp2 import LOG2_E
from metastable.attention.lanes import LANES
from metastable.threads import over_rows

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
    scale = beta * LOG2_E
    longest_query, radius, least = lengths(q, k, m)
    in_exponent = scale * longest_query * radius > DOUBLE.bound or (least - largest) * LOG2_E < LEAST_SHARE
    packed = np.empty((n, d + d_v + 1))
    pack(k, v, m, largest, in_exponent, packed)
    kernel, out, log_z = rows_kernel(d, d_v, in_exponent, True), mean.numpy(), log_partition.numpy()
    half = (n + 1) // 2

    def attend_rows(start: int, stop: int) -> None:
        for low, high in ((start, stop), (max(n - stop, half), n - start)):
            kernel(q, packed, n, scale, radius, largest, offset, low, high, out, log_z)

    over_rows(attend_rows, half, cost=causal_cost(n), quantum=LANES)
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
def pack(k: Any, v: Any, m: Any, largest: float, in_exponent: bool, packed: Any) -> None:
    """Rows [k | m v | m], m at most 1, or [k | v | log2 m]; m: logarithms, the largest of which is given."""
    d, d_v = k.shape[1], v.shape[1]
    for j in range(k.shape[0]):
        for c in range(d):
            packed[j, c] = k[j, c]
        seen = m[j] > -np.inf
        exponent = (m[j] - largest) * LOG2_E if seen else ABSENT
        share = 1.0 if in_exponent else (2.0**exponent if seen else 0.0)
        for c in range(d_v):
            packed[j, d + c] = share * v[j, c]
        packed[j, d + d_v] = exponent if in_exponent else share
