"""Many small systems at once on the GPU: every lane owns one query row of one system, d and d_v <= 8.

A row runs over the keys of its own system, `UNROLL` at a time, with a running maximum. The lanes of a warp read the
same keys: at n = 32 a system is one warp, and its keys are read from memory once.
"""

# mypy: disable-error-code="assignment, attr-defined, misc, var-annotated"
# ruff: noqa: SIM108
from __future__ import annotations

import math

import torch
from torch import Tensor

from metastable.attention.gpu_frame import same_tensor
from metastable.attention.triton_jit import blocks, jit, tl
from metastable.attention.triton_small import exp2_fused64, exp2_special, load_row

ROWS, UNROLL = 128, 8


@jit
def load_point(pointer: tl.tensor, D: tl.constexpr, VECTOR: tl.constexpr, DOUBLE: tl.constexpr) -> tl.tuple:
    """The D coordinates at the pointer of every lane, in wide loads where the rows are aligned for them."""
    row = ()
    if VECTOR:
        row = load_row(pointer, D, DOUBLE)
    else:
        for c in tl.static_range(D):
            row = row + (tl.load(pointer + c),)
    return row


@jit
def batch_kernel(
    q_ptr: tl.tensor,
    key_ptr: tl.tensor,
    value_ptr: tl.tensor,
    log_mass_ptr: tl.tensor,
    scale_ptr: tl.tensor,
    scale_stride: tl.tensor,
    mean_ptr: tl.tensor,
    log_ptr: tl.tensor,
    n_rows: tl.tensor,
    n_q: tl.tensor,
    n_k: tl.tensor,
    D: tl.constexpr,
    DV: tl.constexpr,
    SAME: tl.constexpr,
    WEIGHTED: tl.constexpr,
    VECTOR: tl.constexpr,
    DOUBLE: tl.constexpr,
    ROWS: tl.constexpr,
    UNROLL: tl.constexpr,
) -> None:
    """mean = A/S and log Z of ROWS rows, counted through all systems."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_rows
    rows = tl.where(inside, rows, 0)
    system = rows // n_q
    first = system * n_k
    scale = tl.load(scale_ptr + system * scale_stride)
    q = ()
    for c in tl.static_range(D):
        q = q + (tl.load(q_ptr + rows * D + c) * scale,)
    total = q[0] * 0.0
    top = total - 1.0e38
    sums = ()
    for _ in tl.static_range(DV):
        sums = sums + (total,)
    for j in range(0, n_k, UNROLL):
        scores = ()
        points = ()
        new_top = top
        for u in tl.static_range(UNROLL):
            at = first + tl.minimum(j + u, n_k - 1)
            point = load_point(key_ptr + at * D, D, VECTOR, DOUBLE)
            x = q[0] * point[0]
            for c in tl.static_range(1, D):
                x = q[c] * point[c] + x
            if WEIGHTED:
                x += tl.load(log_mass_ptr + at)
            x = tl.where(j + u < n_k, x, -float("inf"))
            new_top = tl.maximum(new_top, x)
            scores = scores + (x,)
            points = points + (point,)
        if DOUBLE:
            fade = exp2_fused64(top - new_top)
        else:
            fade = exp2_special(top - new_top)
        top = new_top
        total *= fade
        new = ()
        for c in tl.static_range(DV):
            new = new + (sums[c] * fade,)
        for u in tl.static_range(UNROLL):
            if DOUBLE:
                weight = exp2_fused64(scores[u] - top)
            else:
                weight = exp2_special(scores[u] - top)
            total += weight
            if SAME:
                value = points[u]
            else:
                at = first + tl.minimum(j + u, n_k - 1)
                value = load_point(value_ptr + at * DV, DV, False, DOUBLE)
            more = ()
            for c in tl.static_range(DV):
                more = more + (weight * value[c] + new[c],)
            new = more
        sums = new
    for c in tl.static_range(DV):
        tl.store(mean_ptr + rows * DV + c, sums[c] / total, mask=inside)
    bits = top.to(tl.float64) + tl.log(total.to(tl.float64)) * 1.4426950408889634
    log_partition = bits * 0.6931471805599453
    if not WEIGHTED:
        log_partition -= tl.log(n_k.to(tl.float64))
    tl.store(log_ptr + rows, log_partition, mask=inside)


def attend_batch_small(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor | None, beta: float | Tensor
) -> tuple[Tensor, Tensor]:
    """(mean (b, n_q, d_v), log Z (b, n_q)) for b systems in the dtype of the queries; beta a number or (b,)."""
    (b, n_q, d), n_k, d_v = queries.shape, keys.shape[1], values.shape[2]
    same = same_tensor(keys, values)
    keys = keys.contiguous()
    if isinstance(beta, Tensor):
        scale = beta.to(queries.device, queries.dtype) * math.log2(math.e)
    else:
        scale = torch.full((1,), beta * math.log2(math.e), dtype=queries.dtype, device=queries.device)
    mean = torch.empty(b, n_q, d_v, dtype=queries.dtype, device=queries.device)
    log_partition = torch.empty(b, n_q, dtype=queries.dtype, device=queries.device)
    batch_kernel[(blocks(b * n_q, ROWS),)](
        queries.contiguous(),
        keys,
        keys if same else values.contiguous(),
        keys if mass is None else torch.log2(mass).to(queries.dtype).contiguous(),
        scale,
        len(scale) > 1,
        mean,
        log_partition,
        b * n_q,
        n_q,
        n_k,
        D=d,
        DV=d_v,
        SAME=same,
        WEIGHTED=mass is not None,
        VECTOR=d in (2, 4, 8),
        DOUBLE=queries.dtype == torch.float64,
        ROWS=ROWS,
        UNROLL=UNROLL,
        num_warps=ROWS // 32,
    )
    return mean, log_partition
