"""Keys packed for `register_kernels`: rows [ k - c | v - c_v | mass ], padded to loads of 8 or 16 bytes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from metastable.attention.gpu.launch import blocks, chunks_of_keys, multiprocessors
from metastable.attention.gpu.packing import Masses, Packing
from metastable.attention.gpu.register_kernels import maximum_kernel, pack_kernel, sums_kernel

THREADS = 128
"""Threads of a program."""
FLUSH = 256
"""Keys whose sums are collected apart before they join the others: rounding grows with these, not with n."""
RESIDENT = 5
"""Programs that a multiprocessor runs at once, by their registers at d = 2."""
ROWS_PER_THREAD = {torch.float32: 8, torch.float64: 2}
"""Query rows of one thread, which share the loads of the keys; in float64 they take twice the registers."""


@dataclass(frozen=True)
class RegisterLayout:
    """Where the parts of a packed key lie."""

    d: int
    d_v: int
    separate: bool
    """Whether the values stand beside the keys: they are other ones, or multiplied by their masses."""
    width: int
    """Numbers of a packed key, padded to whole loads."""

    @property
    def mass_place(self) -> int:
        """Where the mass of a key stands, if it does."""
        return self.d + (self.d_v if self.separate else 0)


def register_layout(d: int, d_v: int, same: bool, masses: Masses, double: bool) -> RegisterLayout:
    """The layout for keys of dimension d and values of dimension d_v."""
    separate = not same or masses is Masses.IN_VALUES
    width = d + (d_v if separate else 0) + (masses is not Masses.EQUAL)
    multiple = 2 if double or width <= 2 else 4
    return RegisterLayout(d, d_v, separate, blocks(width, multiple) * multiple)


def register_grid(n_q: int, n_k: int, rows_per_lane: int, processors: int) -> tuple[int, int, int]:
    """(rows per program, keys per chunk, number of chunks)."""
    while rows_per_lane > 1 and n_q < THREADS * rows_per_lane:
        rows_per_lane //= 2
    rows = THREADS * rows_per_lane
    return rows, *chunks_of_keys(blocks(n_q, rows), n_k, FLUSH, RESIDENT, processors)


class RegisterKeys:
    """Keys on the device, one packed row each."""

    def __init__(self, packing: Packing) -> None:
        keys, values, frame = packing.keys, packing.values, packing.frame
        self.frame, self.masses, self.shifted = frame, packing.masses, packing.shifted
        self.double = packing.precision == torch.float64
        self.layout = register_layout(keys.shape[1], values.shape[1], frame.same, packing.masses, self.double)
        self.packed = torch.empty(len(keys), self.layout.width, dtype=packing.precision, device=keys.device)
        pack_kernel[(blocks(len(keys), 256),)](
            keys,
            values,
            packing.mass,
            frame.numbers,
            self.packed,
            len(keys),
            D=self.layout.d,
            DV=self.layout.d_v,
            WIDTH=self.layout.width,
            SEPARATE=self.layout.separate,
            IN_VALUES=self.masses is Masses.IN_VALUES,
            AS_LOG=self.masses is Masses.AS_LOG,
            ROWS=256,
        )

    def sums(self, queries: Tensor, given: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """(sums (chunks, d_v + 1, n_q), shifts (n_q,)) of the queries; shifts are `given`, or |q| max|k - c|."""
        n_q, d, d_v = len(queries), self.layout.d, self.layout.d_v
        rows, chunk, chunks = self._grid(n_q, ROWS_PER_THREAD[self.packed.dtype])
        shift = given
        if self.shifted and given is None:
            shift = torch.empty(n_q, dtype=self.packed.dtype, device=queries.device)
        sums = torch.empty(chunks, d_v + 1, n_q, dtype=self.packed.dtype, device=queries.device)
        sums_kernel[(blocks(n_q, rows), chunks)](
            queries,
            self.packed,
            self.frame.numbers,
            sums if shift is None else shift,
            sums,
            n_q,
            len(self.packed),
            chunk,
            D=d,
            DV=d_v,
            WIDTH=self.layout.width,
            SEPARATE=self.layout.separate,
            IN_VALUES=self.masses is Masses.IN_VALUES,
            AS_LOG=self.masses is Masses.AS_LOG,
            SHIFTED=self.shifted,
            GIVEN=given is not None,
            DOUBLE=self.double,
            ROWS=rows,
            UNROLL=8 if self.double or d + d_v > 8 else 4,
            FLUSH=FLUSH,
            num_warps=THREADS // 32,
        )
        return sums, shift

    def maximum(self, queries: Tensor) -> Tensor:
        """The true maximum of every row, in bits, rounded up to a whole number as the bound is."""
        n_q = len(queries)
        # A row needs one register beside its query here, so that as many rows fit in float64, too.
        rows, chunk, chunks = self._grid(n_q, ROWS_PER_THREAD[torch.float32])
        best = torch.empty(chunks, n_q, dtype=self.packed.dtype, device=queries.device)
        maximum_kernel[(blocks(n_q, rows), chunks)](
            queries,
            self.packed,
            self.frame.numbers,
            best,
            n_q,
            len(self.packed),
            chunk,
            D=self.layout.d,
            MASS=self.layout.mass_place,
            WIDTH=self.layout.width,
            AS_LOG=self.masses is Masses.AS_LOG,
            DOUBLE=self.double,
            ROWS=rows,
            num_warps=THREADS // 32,
        )
        return best.amax(dim=0).ceil_()

    def _grid(self, n_q: int, rows_per_lane: int) -> tuple[int, int, int]:
        return register_grid(n_q, len(self.packed), rows_per_lane, multiprocessors(self.packed.device))
