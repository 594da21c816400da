"""Keys packed for `tensor_core_kernels`: for every group of 8 keys the words that the 32 lanes of a warp read."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from metastable.attention.gpu.frame import Frame
from metastable.attention.gpu.launch import blocks, chunks_of_keys, multiprocessors
from metastable.attention.gpu.packing import Masses, Packing
from metastable.attention.gpu.tensor_core_kernels import tile_maximum_kernel, tile_pack_kernel, tile_sums_kernel

REACH = 2.0**24
"""Largest exponent in bits: float16 pairs of queries, keys and shifts hold it."""
STEPS = 8
"""Groups of 8 keys whose sums tensor cores accumulate, truncating, before an ordinary sum takes them."""
RESIDENT = 4
"""Programs that a multiprocessor runs at once, by their registers at d = 3."""
MOST_KEYS = 16384
"""Keys of a chunk whose flushes are added without compensation, where `MOST_BYTES` allow so many chunks."""
MOST_BYTES = 2**32
"""Memory that the sums of chunks may take for the sake of short ones."""
HALF_BITS = 14
"""Queries and shifts stay below 2^HALF_BITS in their units: float16 ends at 2^16."""


@dataclass(frozen=True)
class TensorCoreLayout:
    """Units of the numbers in float16 pairs, and the words of a lane."""

    key_unit: float
    shift_unit: float
    depth: int
    """Products of scores, four coordinates each: of the keys, the shift and the log2 of the mass."""
    columns: int
    """Blocks of 8 columns that hold the values' upper and lower parts and a one for the sum of the weights."""
    tiles: int
    """Tiles of 16 query rows per warp: what the registers hold."""
    words: int
    """Words of 32 bits that a lane reads of a group, a multiple of 16 bytes."""


def tensor_core_layout(d: int, d_v: int, frame: Frame, masses: Masses, shifted: bool) -> TensorCoreLayout:
    """The layout for keys of dimension d and values of dimension d_v."""
    # Keys of length about 1 in units of key_unit, and longer where the queries would else exceed 2^HALF_BITS.
    size = max(-115, min(115, math.frexp(frame.radius)[1]))
    excess = math.frexp(frame.scale * frame.length * 2.0**size)[1] - HALF_BITS
    depth = blocks(d + shifted + (masses is Masses.AS_LOG), 4)
    columns = _columns(d_v)
    return TensorCoreLayout(
        key_unit=2.0 ** (size - max(0, excess)),
        shift_unit=2.0 ** max(0, math.frexp(frame.reach)[1] - HALF_BITS),
        depth=depth,
        columns=columns,
        tiles=3 if columns == 3 and depth == 2 else 2,
        words=blocks(2 * (depth + columns), 4) * 4,
    )


def tensor_core_grid(n_q: int, groups: int, d_v: int, tiles: int, processors: int) -> tuple[int, int, int, int]:
    """(warps per program, programs that cover the rows, groups per chunk, number of chunks)."""
    warps = 8
    while warps > 1 and n_q <= 8 * tiles * warps:
        warps //= 2
    row_blocks = blocks(n_q, 16 * tiles * warps)
    short = 1 if compensates(d_v) else blocks(8 * groups, MOST_KEYS)
    wanted = short if 4 * short * (d_v + 1) * n_q <= MOST_BYTES else 1
    chunk, chunks = chunks_of_keys(row_blocks, 8 * groups, 8 * STEPS, RESIDENT, processors, wanted)
    return warps, row_blocks, chunk // 8, chunks


def compensates(d_v: int) -> bool:
    """Whether flushes are added by Kahan's summation: with few columns there are registers for what is lost."""
    return _columns(d_v) == 1


def _columns(d_v: int) -> int:
    return 1 if d_v <= 3 else 2 if d_v <= 7 else 3


class TensorCoreKeys:
    """Keys on the device, in groups of 8."""

    def __init__(self, packing: Packing) -> None:
        keys, values, frame = packing.keys, packing.values, packing.frame
        (n_k, self.d), self.d_v = keys.shape, values.shape[1]
        self.frame, self.masses, self.shifted = frame, packing.masses, packing.shifted
        self.layout = tensor_core_layout(self.d, self.d_v, frame, packing.masses, packing.shifted)
        self.groups = blocks(n_k, 8 * STEPS) * STEPS
        self.packed = torch.empty(self.groups, 32, self.layout.words, dtype=torch.int32, device=keys.device)
        tile_pack_kernel[(blocks(self.groups, 8),)](
            keys,
            values,
            packing.mass,
            frame.numbers,
            self.packed,
            n_k,
            self.groups,
            self.layout.key_unit,
            self.layout.shift_unit,
            D=self.d,
            DV=self.d_v,
            KS=self.layout.depth,
            NV=self.layout.columns,
            WORDS=self.layout.words,
            SAME=frame.same,
            SHIFTED=self.shifted,
            IN_VALUES=self.masses is Masses.IN_VALUES,
            AS_LOG=self.masses is Masses.AS_LOG,
            ROWS=256,
        )

    def sums(self, queries: Tensor, given: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """(sums (chunks, d_v + 1, n_q), shifts (n_q,)) of the queries; shifts are `given`, or |q| max|k - c|."""
        n_q = len(queries)
        warps, row_blocks, chunk, chunks = self._grid(n_q)
        shift = given
        if self.shifted and given is None:
            shift = torch.empty(n_q, dtype=torch.float32, device=queries.device)
        sums = torch.empty(chunks, self.d_v + 1, n_q, dtype=torch.float32, device=queries.device)
        tile_sums_kernel[(row_blocks, chunks)](
            queries,
            self.packed,
            self.frame.numbers,
            sums if shift is None else shift,
            sums,
            n_q,
            self.groups,
            chunk,
            self.layout.key_unit,
            self.layout.shift_unit,
            D=self.d,
            DV=self.d_v,
            KS=self.layout.depth,
            NV=self.layout.columns,
            WORDS=self.layout.words,
            SHIFTED=self.shifted,
            GIVEN=given is not None,
            AS_LOG=self.masses is Masses.AS_LOG,
            TILES=self.layout.tiles,
            STEPS=STEPS,
            COMPENSATED=compensates(self.d_v),
            THREADS=32 * warps,
            num_warps=warps,
        )
        return sums, shift

    def maximum(self, queries: Tensor) -> Tensor:
        """The true maximum of every row, in bits, rounded up to a whole number as the bound is."""
        n_q = len(queries)
        warps, row_blocks, chunk, chunks = self._grid(n_q)
        best = torch.empty(4 * chunks, n_q, dtype=torch.float32, device=queries.device)
        tile_maximum_kernel[(row_blocks, chunks)](
            queries,
            self.packed,
            self.frame.numbers,
            best,
            n_q,
            self.groups,
            chunk,
            self.layout.key_unit,
            D=self.d,
            KS=self.layout.depth,
            WORDS=self.layout.words,
            AS_LOG=self.masses is Masses.AS_LOG,
            TILES=self.layout.tiles,
            THREADS=32 * warps,
            num_warps=warps,
        )
        return best.amax(dim=0).ceil_()

    def _grid(self, n_q: int) -> tuple[int, int, int, int]:
        return tensor_core_grid(n_q, self.groups, self.d_v, self.layout.tiles, multiprocessors(self.packed.device))
