"""Many small systems at once on the GPU, d and d_v <= 8: every lane owns a few query rows of one system.

A lane adds 2^{x - shift} over the keys of its system with shift = |q| |k_0|, the Cauchy-Schwarz bound where all
keys are as long as the first. Where a sum then lies outside `TRUSTED`, the program repeats with the true maximum of
every row, so every beta is safe; in float64, whose exponentials know no infinity, it starts with that. Several rows
per lane share the loads: all lanes of a system read the same keys, and those reads would else be the limit.
"""

# mypy: disable-error-code="assignment, attr-defined, misc, var-annotated"
# ruff: noqa: SIM108
from __future__ import annotations

import math

import torch
from torch import Tensor

from metastable.attention.gpu.jit import blocks, jit, tl
from metastable.attention.gpu.lanes import exp2_fused64, exp2_special, load_row
from metastable.attention.operands import same_tensor

THREADS = 64
REGISTERS = 32
"""Coordinates of keys that a lane holds at once."""
TRUSTED = 2.0**60
"""Largest float32 sum to trust, and one over the least: beside it, terms flushed at 2^-126 do not show."""


@jit
def special(ASSEMBLY: tl.constexpr, x: tl.tensor) -> tl.tensor:
    """A function of the special-function unit in float32, good to 2^-22."""
    return tl.inline_asm_elementwise(ASSEMBLY, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@jit
def load_points(
    pointer: tl.tensor, COUNT: tl.constexpr, D: tl.constexpr, VECTOR: tl.constexpr, DOUBLE: tl.constexpr
) -> tl.tuple:
    """COUNT consecutive points of D coordinates, in loads of 16 bytes where they are aligned for them."""
    row = ()
    if VECTOR:
        row = load_row(pointer, COUNT * D, DOUBLE)
    else:
        for c in tl.static_range(COUNT * D):
            row = row + (tl.load(pointer + c),)
    return row


@jit
def add_group(
    q: tl.tuple,
    shift: tl.tensor,
    sums: tl.tuple,
    keys: tl.tuple,
    values: tl.tuple,
    log_mass: tl.tuple,
    D: tl.constexpr,
    DV: tl.constexpr,
    GROUP: tl.constexpr,
    WEIGHTED: tl.constexpr,
    DOUBLE: tl.constexpr,
) -> tl.tuple:
    """The sums (A, S) of one row with GROUP more keys."""
    for u in tl.static_range(GROUP):
        if WEIGHTED:
            x = q[0] * keys[u * D] + (log_mass[u] - shift)
        else:
            x = q[0] * keys[u * D] - shift
        for c in tl.static_range(1, D):
            x = q[c] * keys[u * D + c] + x
        if DOUBLE:
            weight = exp2_fused64(x)
        else:
            weight = exp2_special(x)
        new = ()
        for c in tl.static_range(DV):
            new = new + (weight * values[u * DV + c] + sums[c],)
        sums = new + (sums[DV] + weight,)
    return sums


@jit
def add_keys(
    q: tl.tuple,
    shifts: tl.tuple,
    key_ptr: tl.tensor,
    value_ptr: tl.tensor,
    log_mass_ptr: tl.tensor,
    n_k: tl.tensor,
    D: tl.constexpr,
    DV: tl.constexpr,
    R: tl.constexpr,
    GROUP: tl.constexpr,
    SAME: tl.constexpr,
    WEIGHTED: tl.constexpr,
    VECTOR: tl.constexpr,
    DOUBLE: tl.constexpr,
) -> tl.tuple:
    """The sums (A, S) of R rows over all keys of their system."""
    zeros = ()
    for _ in tl.static_range(DV + 1):
        zeros = zeros + (shifts[0] * 0.0,)
    sums = ()
    for _ in tl.static_range(R):
        sums = sums + (zeros,)
    for _ in range(0, n_k, GROUP):
        keys = load_points(key_ptr, GROUP, D, VECTOR, DOUBLE)
        values = keys
        if not SAME:
            values = load_points(value_ptr, GROUP, DV, False, DOUBLE)
        log_mass = keys
        if WEIGHTED:
            log_mass = load_points(log_mass_ptr, GROUP, 1, False, DOUBLE)
        new = ()
        for r in tl.static_range(R):
            new = new + (
                add_group(q[r], shifts[r], sums[r], keys, values, log_mass, D, DV, GROUP, WEIGHTED, DOUBLE),
            )
        sums = new
        key_ptr += GROUP * D
        value_ptr += GROUP * DV
        log_mass_ptr += GROUP
    return sums


@jit
def guesses(q: tl.tuple, key_ptr: tl.tensor, D: tl.constexpr, R: tl.constexpr) -> tl.tuple:
    """|q| |k_0| for R rows: a bound of all scores where the keys have one length, and elsewhere a guess."""
    k = tl.load(key_ptr)
    length = k * k
    for c in tl.static_range(1, D):
        k = tl.load(key_ptr + c)
        length = k * k + length
    shifts = ()
    for r in tl.static_range(R):
        square = q[r][0] * q[r][0]
        for c in tl.static_range(1, D):
            square = q[r][c] * q[r][c] + square
        shifts = shifts + (tl.sqrt(square) * tl.sqrt(length),)
    return shifts


@jit
def maxima(
    q: tl.tuple,
    key_ptr: tl.tensor,
    log_mass_ptr: tl.tensor,
    n_k: tl.tensor,
    D: tl.constexpr,
    R: tl.constexpr,
    GROUP: tl.constexpr,
    WEIGHTED: tl.constexpr,
    VECTOR: tl.constexpr,
    DOUBLE: tl.constexpr,
) -> tl.tuple:
    """The largest score of each of R rows."""
    best = ()
    for r in tl.static_range(R):
        best = best + (q[r][0] * 0.0 - float("inf"),)
    for _ in range(0, n_k, GROUP):
        keys = load_points(key_ptr, GROUP, D, VECTOR, DOUBLE)
        log_mass = keys
        if WEIGHTED:
            log_mass = load_points(log_mass_ptr, GROUP, 1, False, DOUBLE)
        new = ()
        for r in tl.static_range(R):
            top = best[r]
            for u in tl.static_range(GROUP):
                x = q[r][0] * keys[u * D]
                for c in tl.static_range(1, D):
                    x = q[r][c] * keys[u * D + c] + x
                if WEIGHTED:
                    x += log_mass[u]
                top = tl.maximum(top, x)
            new = new + (top,)
        best = new
        key_ptr += GROUP * D
        log_mass_ptr += GROUP
    return best


@jit
def batch_kernel(
    q_ptr: tl.tensor,
    key_ptr: tl.tensor,
    value_ptr: tl.tensor,
    log_mass_ptr: tl.tensor,
    scale: tl.tensor,
    mean_ptr: tl.tensor,
    log_ptr: tl.tensor,
    lanes: tl.tensor,
    n_q: tl.tensor,
    n_k: tl.tensor,
    count: tl.tensor,
    trusted: tl.tensor,
    D: tl.constexpr,
    DV: tl.constexpr,
    R: tl.constexpr,
    GROUP: tl.constexpr,
    SAME: tl.constexpr,
    WEIGHTED: tl.constexpr,
    SCALES: tl.constexpr,
    VECTOR: tl.constexpr,
    DOUBLE: tl.constexpr,
    THREADS: tl.constexpr,
) -> None:
    """mean = A/S and log Z of R rows per lane; `scale` is beta log2(e), or a pointer to one per system (SCALES)."""
    lane = tl.program_id(0) * THREADS + tl.arange(0, THREADS)
    inside = lane < lanes
    lane = tl.where(inside, lane, 0)
    share = n_q // R
    system = lane // share
    first = system.to(tl.int64) * n_q + (lane - system * share)
    keys = system.to(tl.int64) * n_k
    key_ptr += keys * D
    value_ptr += keys * DV
    log_mass_ptr += keys
    if SCALES:
        scale = tl.load(scale + system)
    q = ()
    for r in tl.static_range(R):
        row = ()
        for c in tl.static_range(D):
            row = row + (tl.load(q_ptr + (first + r * share) * D + c) * scale,)
        q = q + (row,)
    if DOUBLE:
        shifts = maxima(q, key_ptr, log_mass_ptr, n_k, D, R, GROUP, WEIGHTED, VECTOR, DOUBLE)
    else:
        shifts = guesses(q, key_ptr, D, R)
    sums = add_keys(
        q, shifts, key_ptr, value_ptr, log_mass_ptr, n_k, D, DV, R, GROUP, SAME, WEIGHTED, VECTOR, DOUBLE
    )
    if not DOUBLE:
        doubtful = tl.zeros((THREADS,), tl.int32)
        for r in tl.static_range(R):
            good = (sums[r][DV] * trusted >= 1.0) & (sums[r][DV] <= trusted)
            doubtful = tl.where(good, doubtful, 1)
        if tl.max(doubtful, axis=0) > 0:
            shifts = maxima(q, key_ptr, log_mass_ptr, n_k, D, R, GROUP, WEIGHTED, VECTOR, DOUBLE)
            sums = add_keys(
                q, shifts, key_ptr, value_ptr, log_mass_ptr, n_k, D, DV, R, GROUP, SAME, WEIGHTED, VECTOR, DOUBLE
            )
    for r in tl.static_range(R):
        place = first + r * share
        if DOUBLE:
            inverse = 1.0 / sums[r][DV]
        else:
            inverse = special("rcp.approx.ftz.f32 $0, $1;", sums[r][DV])
        for c in tl.static_range(DV):
            tl.store(mean_ptr + place * DV + c, sums[r][c] * inverse, mask=inside)
        partition = sums[r][DV]
        if not WEIGHTED:
            partition = partition / count
        if DOUBLE:
            bits = tl.log2(partition)
        else:
            bits = special("lg2.approx.ftz.f32 $0, $1;", partition)
        tl.store(log_ptr + place, (shifts[r] + bits) * 0.6931471805599453, mask=inside)


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
    group = math.gcd(n_k, 16)
    while group > 1 and group * max(d, d_v) > REGISTERS:
        group //= 2
    share = rows_per_lane(b * n_q, n_q, queries.device)
    lanes = b * n_q // share
    batch_kernel[(blocks(lanes, THREADS),)](
        queries.contiguous(),
        keys,
        keys if same else values.contiguous(),
        keys if mass is None else torch.log2(mass).to(queries.dtype).contiguous(),
        scale,
        mean,
        log_partition,
        lanes,
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


def rows_per_lane(rows: int, n_q: int, device: torch.device) -> int:
    """4, 2 or 1: a divisor of the rows of a system that leaves every multiprocessor 16 warps."""
    enough = 512 * torch.cuda.get_device_properties(device).multi_processor_count
    return next(share for share in (4, 2, 1) if share == 1 or (n_q % share == 0 and rows >= share * enough))
