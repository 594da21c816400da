"""Direct attention on the GPU for d, d_v <= 8: which kernels, shifts that are safe at every beta, and the finish.

    x_ij = beta log2(e) <q_i, k_j> - shift_i,      S_i = sum_j m_j 2^{x_ij},      A_i = sum_j m_j 2^{x_ij} v_j

Two sets of kernels compute the same sums: `gpu.lanes` on ordinary registers, in float32 or float64, and
`gpu.tiles` on tensor cores, in float32. Tensor cores make the card slower (an H200 then runs at 1.8 instead of
1.98 GHz), so they pay from three dimensions on, and for unequal masses.

With exponents of up to 60 bits (900 in float64) no shift is needed. Beyond, it is the Cauchy-Schwarz bound
shift_i = |q_i| max_j |k_j - c| around the centre c of the keys: it needs no pass over the pairs, and nothing
overflows. A row whose sum falls below 2^`LEAST_BITS` (all keys lie far below the bound) may have lost terms; it is
found afterwards and computed again with its true maximum, so the result is safe at every beta. Sums are flushed
every 256 keys (64 on tensor cores) and finished in float64: their rounding does not grow with n.
"""

# mypy: disable-error-code="assignment, attr-defined"
from __future__ import annotations

import math

import torch
from torch import Tensor

from metastable.attention.gpu.frame import Frame
from metastable.attention.gpu.jit import blocks, jit, tl
from metastable.attention.gpu.lanes import maximum_kernel, pack_kernel, sums_kernel
from metastable.attention.gpu.tiles import tile_maximum_kernel, tile_pack_kernel, tile_sums_kernel

LARGEST_D = 8
LEAST_BITS = {torch.float32: -60.0, torch.float64: -900.0}
"""log2 of the least sum to trust: beside it, terms flushed at 2^-126 (2^-1022) are lost in the rounding."""
PROGRAMS = 48
"""Least number of programs per multiprocessor, where there is work for them."""
NO_SHIFT, BOUND, GIVEN = 0, 1, 2
EQUAL, IN_VALUES, AS_LOG = 0, 1, 2
"""Where the masses go: nowhere, into the values, or as log2 into the scores."""


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
        centre_score += q * tl.load(frame_ptr + 4 + c)
    for c in tl.static_range(DV):
        value = tl.zeros((ROWS,), tl.float64)
        for s in range(0, chunks):
            offset = (s.to(tl.int64) * (DV + 1) + c) * n_q
            value += tl.load(sums_ptr + offset + rows, mask=inside, other=0.0).to(tl.float64)
        tl.store(mean_ptr + rows * DV + c, tl.load(frame_ptr + 4 + D + c) + value / total, mask=inside)
    shift = tl.zeros((ROWS,), tl.float64)
    if SHIFTED:
        shift += tl.load(shift_ptr + rows, mask=inside, other=0.0).to(tl.float64)
    sum_bits = tl.log(total) * 1.4426950408889634
    bits = tl.load(frame_ptr) * centre_score + shift + sum_bits
    tl.store(log_ptr + rows, 0.6931471805599453 * bits + tl.load(frame_ptr + 2), mask=inside)
    tl.store(low_ptr + rows, (sum_bits < least_bits).to(tl.int8), mask=inside)


def attend_small(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, frame: Frame, precision: torch.dtype
) -> tuple[Tensor, Tensor]:
    """(mean, log Z) for d, d_v <= 8 on CUDA, computed in `precision`, float32 or float64, in the queries' dtype."""
    dear = max(keys.shape[1], values.shape[1]) > 2 or not frame.equal
    on_tiles = precision == torch.float32 and dear and frame.reach <= Tiles.REACH
    kind: type[Lanes | Tiles] = Tiles if on_tiles else Lanes
    free = frame.reach <= -LEAST_BITS[precision]
    packed = kind(keys, values, mass, frame, EQUAL if frame.equal else IN_VALUES, not free, precision)
    mean, log_partition, low = _finish(queries, frame, *packed.sums(queries, NO_SHIFT if free else BOUND))
    # Without a shift the exponents are known to be small, but a mass that vanishes beside the others may still win.
    rows = None if free and frame.equal else low.nonzero()[:, 0]
    if rows is not None and len(rows):
        packed = kind(keys, values, mass, frame, EQUAL if frame.equal else AS_LOG, True, precision)
        some = queries[rows]
        again = packed.sums(some, GIVEN, packed.maximum(some))
        mean[rows], log_partition[rows], _ = _finish(some, frame, *again)
    return mean, log_partition


class Lanes:
    """Keys packed for `gpu.lanes`: rows [ k - c | v - c_v | mass ], padded to loads of 8 or 16 bytes."""

    THREADS, FLUSH = 128, 256
    RESIDENT = 5
    """Programs that a multiprocessor runs at once, by their registers at d = 2."""

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        mass: Tensor,
        frame: Frame,
        weights: int,
        shifted: bool,
        precision: torch.dtype,
    ) -> None:
        (n_k, d), d_v = keys.shape, values.shape[1]
        self.frame, self.d_v, self.weights = frame, d_v, weights
        self.separate = not frame.same or weights == IN_VALUES
        self.double = precision == torch.float64
        width = d + (d_v if self.separate else 0) + (weights != EQUAL)
        multiple = 2 if self.double or width <= 2 else 4
        self.width = blocks(width, multiple) * multiple
        self.packed = torch.empty(n_k, self.width, dtype=precision, device=keys.device)
        pack_kernel[(blocks(n_k, 256),)](
            keys,
            values,
            mass,
            frame.numbers,
            self.packed,
            n_k,
            D=d,
            DV=d_v,
            WIDTH=self.width,
            SEPARATE=self.separate,
            WEIGHTS=weights,
            ROWS=256,
        )

    def sums(self, queries: Tensor, mode: int, shift: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """(sums (chunks, d_v + 1, n_q), shifts (n_q,)) of the queries."""
        (n_q, d), n_k = queries.shape, len(self.packed)
        rows, chunk, chunks = self._grid(n_q, 2 if self.double else 8)
        if mode == BOUND:
            shift = torch.empty(n_q, dtype=self.packed.dtype, device=queries.device)
        sums = torch.empty(chunks, self.d_v + 1, n_q, dtype=self.packed.dtype, device=queries.device)
        sums_kernel[(blocks(n_q, rows), chunks)](
            queries,
            self.packed,
            self.frame.numbers,
            sums if shift is None else shift,
            sums,
            n_q,
            n_k,
            chunk,
            D=d,
            DV=self.d_v,
            WIDTH=self.width,
            SEPARATE=self.separate,
            WEIGHTS=self.weights,
            SHIFT=mode,
            DOUBLE=self.double,
            ROWS=rows,
            UNROLL=8 if self.double or d + self.d_v > 8 else 4,
            FLUSH=self.FLUSH,
            num_warps=self.THREADS // 32,
        )
        return sums, shift

    def maximum(self, queries: Tensor) -> Tensor:
        """The true maximum of every row, in bits, rounded up to a whole number as the bound is."""
        (n_q, d), n_k = queries.shape, len(self.packed)
        rows, chunk, chunks = self._grid(n_q, 8)
        best = torch.empty(chunks, n_q, dtype=self.packed.dtype, device=queries.device)
        maximum_kernel[(blocks(n_q, rows), chunks)](
            queries,
            self.packed,
            self.frame.numbers,
            best,
            n_q,
            n_k,
            chunk,
            D=d,
            MASS=d + (self.d_v if self.separate else 0),
            WIDTH=self.width,
            LOG_MASS=self.weights == AS_LOG,
            DOUBLE=self.double,
            ROWS=rows,
            num_warps=self.THREADS // 32,
        )
        return best.amax(dim=0).ceil_()

    def _grid(self, n_q: int, rows_per_lane: int) -> tuple[int, int, int]:
        """(rows per program, keys per chunk, number of chunks)."""
        while rows_per_lane > 1 and n_q < self.THREADS * rows_per_lane:
            rows_per_lane //= 2
        rows = self.THREADS * rows_per_lane
        chunk, chunks = _chunks(blocks(n_q, rows), len(self.packed), self.FLUSH, self.RESIDENT, self.packed.device)
        return rows, chunk, chunks


class Tiles:
    """Keys packed for `gpu.tiles`: for every group of 8 keys the words that the 32 lanes of a warp read."""

    REACH = 2.0**24
    """Largest exponent in bits: float16 pairs of queries, keys and shifts hold it."""
    STEPS = 8
    RESIDENT = 4
    """Programs that a multiprocessor runs at once, by their registers at d = 3."""

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        mass: Tensor,
        frame: Frame,
        weights: int,
        shifted: bool,
        precision: torch.dtype,
    ) -> None:
        (n_k, d), d_v = keys.shape, values.shape[1]
        self.frame, self.d_v, self.massed = frame, d_v, weights == AS_LOG
        # Keys of length about 1 in units of key_unit, and longer where the queries would else exceed 2^14.
        size = max(-115, min(115, math.frexp(frame.radius)[1]))
        excess = math.frexp(frame.scale * frame.length * 2.0**size)[1] - 14
        self.key_unit = 2.0 ** (size - max(0, excess))
        self.shift_unit = 2.0 ** max(0, math.frexp(frame.reach)[1] - 14)
        self.depth = blocks(d + shifted + self.massed, 4)
        self.columns = 1 if d_v <= 3 else 2 if d_v <= 7 else 3
        self.tiles = 3 if self.columns == 3 and self.depth == 2 else 2  # what the registers hold
        self.words = blocks(2 * (self.depth + self.columns), 4) * 4
        self.groups = blocks(n_k, 8 * self.STEPS) * self.STEPS
        self.packed = torch.empty(self.groups, 32, self.words, dtype=torch.int32, device=keys.device)
        tile_pack_kernel[(blocks(self.groups, 8),)](
            keys,
            values,
            mass,
            frame.numbers,
            self.packed,
            n_k,
            self.groups,
            self.key_unit,
            self.shift_unit,
            D=d,
            DV=d_v,
            KS=self.depth,
            NV=self.columns,
            WORDS=self.words,
            SAME=frame.same,
            SHIFTED=shifted,
            WEIGHTS=weights,
            ROWS=256,
        )

    def sums(self, queries: Tensor, mode: int, shift: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """(sums (chunks, d_v + 1, n_q), shifts (n_q,)) of the queries."""
        n_q, d = queries.shape
        warps, chunk, chunks = self._grid(n_q)
        if mode == BOUND:
            shift = torch.empty(n_q, dtype=torch.float32, device=queries.device)
        sums = torch.empty(chunks, self.d_v + 1, n_q, dtype=torch.float32, device=queries.device)
        tile_sums_kernel[(blocks(n_q, 16 * self.tiles * warps), chunks)](
            queries,
            self.packed,
            self.frame.numbers,
            sums if shift is None else shift,
            sums,
            n_q,
            self.groups,
            chunk,
            self.key_unit,
            self.shift_unit,
            D=d,
            DV=self.d_v,
            KS=self.depth,
            NV=self.columns,
            WORDS=self.words,
            SHIFT=mode,
            MASSED=self.massed,
            TILES=self.tiles,
            STEPS=self.STEPS,
            THREADS=32 * warps,
            num_warps=warps,
        )
        return sums, shift

    def maximum(self, queries: Tensor) -> Tensor:
        """The true maximum of every row, in bits, rounded up to a whole number as the bound is."""
        n_q, d = queries.shape
        warps, chunk, chunks = self._grid(n_q)
        best = torch.empty(4 * chunks, n_q, dtype=torch.float32, device=queries.device)
        tile_maximum_kernel[(blocks(n_q, 16 * self.tiles * warps), chunks)](
            queries,
            self.packed,
            self.frame.numbers,
            best,
            n_q,
            self.groups,
            chunk,
            self.key_unit,
            D=d,
            KS=self.depth,
            WORDS=self.words,
            MASSED=self.massed,
            TILES=self.tiles,
            THREADS=32 * warps,
            num_warps=warps,
        )
        return best.amax(dim=0).ceil_()

    def _grid(self, n_q: int) -> tuple[int, int, int]:
        """(warps per program, groups per chunk, number of chunks)."""
        warps = 8
        while warps > 1 and n_q <= 8 * self.tiles * warps:
            warps //= 2
        row_blocks = blocks(n_q, 16 * self.tiles * warps)
        chunk, chunks = _chunks(row_blocks, 8 * self.groups, 8 * self.STEPS, self.RESIDENT, self.packed.device)
        return warps, chunk // 8, chunks


def _chunks(row_blocks: int, n_k: int, flush: int, resident: int, device: torch.device) -> tuple[int, int]:
    """(keys per chunk, a multiple of `flush`; number of chunks) for at least `PROGRAMS` per multiprocessor.

    Of the numbers of chunks up to twice the least one, the one whose programs fill the card best to the last.
    """
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    least = max(1, min(blocks(PROGRAMS * processors, row_blocks), blocks(n_k, 512), 30000))
    most = max(least, min(2 * least, blocks(n_k, 512)))

    def idle(chunks: int) -> float:
        rounds = row_blocks * chunks / (resident * processors)
        return math.ceil(rounds) / rounds

    chunks = min(range(least, most + 1), key=idle) if most <= 256 else least
    chunk = blocks(blocks(n_k, chunks), flush) * flush
    return chunk, blocks(n_k, chunk)


def _finish(queries: Tensor, frame: Frame, sums: Tensor, shift: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """(mean, log Z, 1 where the sum is too small to trust) from the sums of all chunks."""
    (n_q, d), d_v = queries.shape, sums.shape[1] - 1
    mean = torch.empty(n_q, d_v, dtype=queries.dtype, device=queries.device)
    log_partition = torch.empty(n_q, dtype=queries.dtype, device=queries.device)
    low = torch.empty(n_q, dtype=torch.int8, device=queries.device)
    finish_kernel[(blocks(n_q, 256),)](
        queries,
        frame.numbers,
        sums if shift is None else shift,
        sums,
        mean,
        log_partition,
        low,
        n_q,
        len(sums),
        LEAST_BITS[sums.dtype],
        D=d,
        DV=d_v,
        SHIFTED=shift is not None,
        ROWS=256,
    )
    return mean, log_partition, low
