"""Direct attention on the GPU for d, d_v <= 8: which kernels, shifts that are safe at every beta, and the finish.

    x_ij = beta log2(e) <q_i, k_j> - shift_i,      S_i = sum_j m_j 2^{x_ij},      A_i = sum_j m_j 2^{x_ij} v_j

Two sets of kernels compute the same sums: `register_kernels` on ordinary registers, in float32 or float64, and
`tensor_core_kernels`, in float32. Tensor cores make the card slower (an H200 then runs at 1.8 instead of
1.98 GHz), so they pay from three dimensions on, and for unequal masses.

With exponents of up to 60 bits (900 in float64) no shift is needed. Beyond, it is the Cauchy-Schwarz bound
shift_i = |q_i| max_j |k_j - c| around the centre c of the keys: it needs no pass over the pairs, and nothing
overflows. A row whose sum falls below 2^`LEAST_BITS` (all keys lie far below the bound) may have lost terms; it is
found afterwards and computed again with its true maximum, so the result is safe at every beta. Sums are flushed
every 256 keys (64 on tensor cores) and finished in float64: their rounding hardly grows with n (not at all for
d_v <= 3 on tensor cores, where flushes are compensated).
"""

# mypy: disable-error-code="assignment, attr-defined"
from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from metastable.attention.gpu.frame import Frame, centre_at, log_partition
from metastable.attention.gpu.jit import jit, tl
from metastable.attention.gpu.launch import blocks
from metastable.attention.gpu.packing import Masses, PackedKeys, Packing
from metastable.attention.gpu.register_keys import FLUSH, ROWS_PER_THREAD, RegisterKeys, register_grid
from metastable.attention.gpu.tensor_core_keys import REACH, STEPS, TensorCoreKeys, compensates, tensor_core_grid

LARGEST_D = 8
"""Coordinates of a query, a key and the sums of a row fit the registers of a lane up to here."""
LEAST_BITS = {torch.float32: -60.0, torch.float64: -900.0}
"""log2 of the least sum to trust: beside it, terms flushed at 2^-126 (2^-1022) are lost in the rounding."""
REGISTER_D = 2
"""Largest d and d_v where registers keep up with the exponentials if masses are equal, measured on an H200."""


@jit
def finish_kernel(
    q_ptr: tl.tensor,
    frame_ptr: tl.tensor,
    shift_ptr: tl.tensor,
    sums_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    log_ptr: tl.tensor,
    low_ptr: tl.tensor,
    n_q: tl.tensor,
    chunks: tl.tensor,
    least_bits: tl.tensor,
    D: tl.constexpr,
    DV: tl.constexpr,
    SHIFTED: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """mean = c_v + A/S, log Z = beta <q, c> + ln 2 (shift + log2 S) + log of the largest mass, in float64."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_q
    total = tl.zeros((ROWS,), tl.float64)
    for s in range(0, chunks):
        offset = (s.to(tl.int64) * (DV + 1) + DV) * n_q
        total += tl.load(sums_ptr + offset + rows, mask=inside, other=1.0).to(tl.float64)
    centre_score = tl.zeros((ROWS,), tl.float64)
    for c in tl.static_range(D):
        q = tl.load(q_ptr + rows * D + c, mask=inside, other=0.0).to(tl.float64)
        centre_score += q * tl.load(centre_at(frame_ptr, c))
    for c in tl.static_range(DV):
        value = tl.zeros((ROWS,), tl.float64)
        for s in range(0, chunks):
            offset = (s.to(tl.int64) * (DV + 1) + c) * n_q
            value += tl.load(sums_ptr + offset + rows, mask=inside, other=0.0).to(tl.float64)
        tl.store(mean_ptr + rows * DV + c, tl.load(centre_at(frame_ptr, D + c)) + value / total, mask=inside)
    shift = tl.zeros((ROWS,), tl.float64)
    if SHIFTED:
        shift += tl.load(shift_ptr + rows, mask=inside, other=0.0).to(tl.float64)
    sum_bits = tl.log(total) * 1.4426950408889634
    tl.store(log_ptr + rows, log_partition(frame_ptr, centre_score, shift, sum_bits), mask=inside)
    tl.store(low_ptr + rows, (sum_bits < least_bits).to(tl.int8), mask=inside)


def attend_small(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mass: Tensor,
    frame: Frame,
    precision: torch.dtype,
    safe: bool = False,
) -> tuple[Tensor, Tensor]:
    """(mean, log Z) for d, d_v <= 8 on CUDA, computed in `precision`, float32 or float64, in the queries' dtype.

    safe: no sum of a row can be too small to trust, so that the device need not be asked.
    """
    packing = packing_of(keys, values, mass, frame, precision)
    pack = fastest_kernels(packing)
    mean, log_z, low = _finish(queries, frame, *pack(packing).sums(queries))
    # Without a shift the exponents are known to be small, but a mass that vanishes beside the others may still win.
    asked = not safe and (packing.shifted or not frame.equal)
    rows = low.nonzero()[:, 0] if asked else None
    if rows is not None and len(rows):
        packed = pack(replace(packing, masses=Masses.EQUAL if frame.equal else Masses.AS_LOG, shifted=True))
        some = queries[rows]
        again = packed.sums(some, packed.maximum(some))
        mean[rows], log_z[rows], _ = _finish(some, frame, *again)
    return mean, log_z


def additions_of_small(n_q: int, n_k: int, d: int, d_v: int, processors: int) -> float:
    """Float32 additions after one another: twice those on tensor cores, where each truncates, and in registers.

    Of the keys between two flushes, and of the flushes of a chunk, or two for all of them where Kahan's summation
    takes them. Registers are for d, d_v <= `REGISTER_D` (beyond, only for exponents that no float32 holds).
    """
    _, _, groups, _ = tensor_core_grid(n_q, blocks(n_k, 8), d_v, 2, processors)
    tensor_cores = 2.0 * (8 * STEPS + (2 if compensates(d_v) else groups / STEPS))
    if max(d, d_v) > REGISTER_D:
        return tensor_cores
    _, chunk, _ = register_grid(n_q, n_k, ROWS_PER_THREAD[torch.float32], processors)
    return max(FLUSH + chunk / FLUSH, tensor_cores)


def packing_of(keys: Tensor, values: Tensor, mass: Tensor, frame: Frame, precision: torch.dtype) -> Packing:
    """Masses go into the values unless they are equal, and exponents are shifted only where they could overflow."""
    masses = Masses.EQUAL if frame.equal else Masses.IN_VALUES
    free = frame.reach <= -LEAST_BITS[precision]
    return Packing(keys, values, mass, frame, masses, not free, precision)


def fastest_kernels(packing: Packing) -> type[PackedKeys]:
    """Tensor cores in float32 where they pay and their float16 pairs hold the exponents, else registers."""
    dear = max(packing.keys.shape[1], packing.values.shape[1]) > REGISTER_D or not packing.frame.equal
    single = packing.precision == torch.float32
    return TensorCoreKeys if single and dear and packing.frame.reach <= REACH else RegisterKeys


def _finish(queries: Tensor, frame: Frame, sums: Tensor, shift: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """(mean, log Z, 1 where the sum is too small to trust) from the sums of all chunks."""
    (n_q, d), d_v = queries.shape, sums.shape[1] - 1
    mean = torch.empty(n_q, d_v, dtype=queries.dtype, device=queries.device)
    log_z = torch.empty(n_q, dtype=queries.dtype, device=queries.device)
    low = torch.empty(n_q, dtype=torch.int8, device=queries.device)
    finish_kernel[(blocks(n_q, 256),)](
        queries,
        frame.numbers,
        sums if shift is None else shift,
        sums,
        mean,
        log_z,
        low,
        n_q,
        len(sums),
        LEAST_BITS[sums.dtype],
        D=d,
        DV=d_v,
        SHIFTED=shift is not None,
        ROWS=256,
    )
    return mean, log_z, low
