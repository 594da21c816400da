"""Many small systems at once on the GPU, d and d_v <= 8: how the rows of all systems are shared out to threads."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from metastable.attention.gpu.batch_kernels import batch_kernel
from metastable.attention.gpu.launch import blocks, multiprocessors
from metastable.attention.operands import same_tensor

THREADS = 64
"""Threads of a program."""
REGISTERS = 32
"""Coordinates of keys that a thread holds at once."""
BUSY = 512
"""Threads, 16 warps of them, that keep a multiprocessor busy; more rows per thread only where these remain."""
TRUSTED = 2.0**60
"""Largest float32 sum to trust, and one over the least: beside it, terms flushed at 2^-126 do not show."""


def attend_batch_small(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor | None, beta: float | Tensor
) -> tuple[Tensor, Tensor]:
    """(mean (b, n_q, d_v), log Z (b, n_q)) for b systems in the dtype of the queries; beta a number or (b,)."""
    (b, n_q, d), n_k, d_v = queries.shape, keys.shape[1], values.shape[2]
    double = queries.dtype == torch.float64
    same = same_tensor(keys, values)
    keys = keys.contiguous()
    scale: float | Tensor
    if isinstance(beta, Tensor):
        scale = beta.to(queries.device, queries.dtype) * math.log2(math.e)
    elif double:  # a number reaches the kernel in float32
        scale = torch.full((b,), beta * math.log2(math.e), dtype=queries.dtype, device=queries.device)
    else:
        scale = beta * math.log2(math.e)
    mean = torch.empty(b, n_q, d_v, dtype=queries.dtype, device=queries.device)
    log_partition = torch.empty(b, n_q, dtype=queries.dtype, device=queries.device)
    group = keys_at_once(n_k, max(d, d_v))
    share = rows_per_lane(b * n_q, n_q, multiprocessors(queries.device))
    threads = b * n_q // share
    batch_kernel[(blocks(threads, THREADS),)](
        queries.contiguous(),
        keys,
        keys if same else values.contiguous(),
        keys if mass is None else torch.log2(mass).to(queries.dtype).contiguous(),
        scale,
        mean,
        log_partition,
        threads,
        n_q,
        n_k,
        float(n_k),
        TRUSTED,
        D=d,
        DV=d_v,
        R=share,
        GROUP=group,
        SAME=same,
        WEIGHTED=mass is not None,
        SCALES=isinstance(scale, Tensor),
        VECTOR=keys.data_ptr() % 16 == 0 and group * d * keys.element_size() % 16 == 0,
        DOUBLE=double,
        THREADS=THREADS,
        num_warps=THREADS // 32,
    )
    return mean, log_partition


def keys_at_once(n_k: int, widest: int) -> int:
    """1, 2, 4, 8 or 16: a divisor of the keys of a system, whose coordinates a thread can hold."""
    group = math.gcd(n_k, 16)
    while group > 1 and group * widest > REGISTERS:
        group //= 2
    return group


def rows_per_lane(rows: int, n_q: int, processors: int) -> int:
    """4, 2 or 1: a divisor of the rows of a system that leaves every multiprocessor `BUSY` threads."""
    enough = BUSY * processors
    return next(share for share in (4, 2, 1) if share == 1 or (n_q % share == 0 and rows >= share * enough))
