"""Fused attention on the GPU at float32 accuracy for 8 < d <= 256: float16 pairs, blocks and chunks, the merge."""

from __future__ import annotations

import torch
from torch import Tensor

from metastable.attention.gpu.frame import Frame
from metastable.attention.gpu.half_pairs import split
from metastable.attention.gpu.large_kernels import fused_kernel, merge_kernel
from metastable.attention.gpu.launch import blocks, chunks_of_blocks, multiprocessors, power_of_two

LARGEST_D = 128
"""Largest d and d_v where the values are not the keys."""
LARGEST_SAME_D = 256
"""Largest d where the values are the keys: separate ones do not fit the shared memory of an H200 beyond 128."""
BLOCKS = {
    16: (16, 128, 64, 3),
    32: (32, 128, 64, 3),
    64: (64, 128, 64, 3),
    128: (128, 128, 64, 3),
    256: (64, 128, 32, 3),
}
"""(columns of one product, rows, keys, pipeline stages) of a program by padded dimension, measured on an H200."""


def attend_large(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, frame: Frame
) -> tuple[Tensor, Tensor]:
    """(mean, log Z) at float32 accuracy, in the queries' dtype, for d, d_v <= 128, or 256 if values are keys."""
    (n_q, d), n_k, d_v, device = queries.shape, len(keys), values.shape[1], queries.device
    width, part, block_rows, block_keys, stages = fused_blocks(max(d, d_v), frame.same)
    centre, value_centre = frame.centres(d)
    q_hi, q_lo, q_unit = split(queries, None, frame.length, width)
    k_hi, k_lo, k_unit = split(keys, centre, frame.radius, width)
    v_hi, v_lo, v_unit = k_hi, k_lo, k_unit
    if not frame.same:
        v_hi, v_lo, v_unit = split(values, value_centre, frame.value_radius, width)
    log_mass = torch.empty(1, dtype=torch.float32, device=device)
    if not frame.equal:
        log_mass = torch.log2(mass.to(torch.float64))
        log_mass = (log_mass - log_mass.max()).to(torch.float32)
    row_blocks = blocks(n_q, block_rows)
    chunk, chunks = chunks_of_blocks(row_blocks, n_k, block_keys, multiprocessors(device))
    acc = torch.empty(chunks, n_q, width, dtype=torch.float32, device=device)
    total = torch.empty(chunks, n_q, dtype=torch.float32, device=device)
    top = torch.empty(chunks, n_q, dtype=torch.float32, device=device)
    fused_kernel[(row_blocks, chunks)](
        q_hi,
        q_lo,
        frame.scale * q_unit * k_unit,
        k_hi,
        k_lo,
        v_hi,
        v_lo,
        log_mass,
        acc,
        total,
        top,
        n_q,
        n_k,
        chunk,
        D=width,
        H=part,
        SAME=frame.same,
        WEIGHTED=not frame.equal,
        BM=block_rows,
        BN=block_keys,
        num_warps=8,
        num_stages=stages,
    )
    mean = torch.empty(n_q, d_v, dtype=queries.dtype, device=device)
    log_partition = torch.empty(n_q, dtype=queries.dtype, device=device)
    merge_kernel[(blocks(n_q, 16),)](
        acc,
        total,
        top,
        queries,
        frame.numbers,
        mean,
        log_partition,
        n_q,
        d,
        d_v,
        chunks,
        v_unit,
        D=width,
        DV=width,
        ROWS=16,
    )
    return mean, log_partition


def additions_of_large(n_q: int, n_k: int, widest: int, same: bool, processors: int) -> float:
    """Float32 additions after one another: of the keys of a block, and of the blocks of a chunk."""
    _, _, block_rows, block_keys, _ = fused_blocks(widest, same)
    chunk, _ = chunks_of_blocks(blocks(n_q, block_rows), n_k, block_keys, processors)
    return block_keys + chunk / block_keys


def fused_blocks(widest: int, same: bool) -> tuple[int, int, int, int, int]:
    """(padded dimension, columns of one product, rows, keys, pipeline stages) of a program."""
    width = max(16, power_of_two(widest))
    part, block_rows, block_keys, stages = BLOCKS[width]
    if width == 128 and not same:
        stages = 2  # values of their own take as much shared memory again
    return width, part, block_rows, block_keys, stages
