"""What the GPU kernels must know of a problem before they start: its centre, its radii and its masses.

The kernels work with keys k - c and values v - c_v around the means c, c_v: the scores of a cluster lose no digits
to its distance from the origin, and |q| max_j |k_j - c| bounds the exponents. Few launches and one wait for the
device, because a call with 1e5 tokens takes milliseconds.
"""

# mypy: disable-error-code="assignment, attr-defined"
from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.gpu.jit import jit, tl
from metastable.attention.gpu.launch import blocks, power_of_two
from metastable.attention.operands import same_tensor

SCALE, RADIUS, LOG_MASS, INVERSE_MASS, CENTRE = 0, 1, 2, 3, 4
"""Places in `Frame.numbers`; the centres of keys and of values follow each other from CENTRE on."""
PARTS = 128
"""Programs that share the sum of the keys; their parts are added in a fixed order, so results repeat bit by bit."""
LEAST, LARGEST = 4, 4 + PARTS
"""Places in what is known, after three squared lengths and a count: the parts' least and largest masses."""


@dataclass(frozen=True, eq=False)
class Frame:
    """Numbers of one call, in float64 on the device and, where the host must decide, on the host."""

    numbers: Float[Tensor, "m"]
    """[beta log2(e), max|k - c|, log of the largest mass, its inverse, c, c_v] on the device."""
    equal: bool
    """Whether all masses are equal."""
    same: bool
    """Whether the values are the keys."""
    scale: float
    """beta log2(e)."""
    length: float
    """max|q|."""
    radius: float
    """max|k - c|, rounded up."""
    value_radius: float
    """max|v - c_v|."""

    @property
    def reach(self) -> float:
        """Largest |exponent| in bits: beta log2(e) max|q| max|k - c|."""
        return self.scale * self.length * self.radius

    def centres(self, d: int) -> tuple[Tensor, Tensor]:
        """(c, c_v) on the device, for keys of dimension d."""
        return self.numbers[CENTRE : CENTRE + d], self.numbers[CENTRE + d :]


@dataclass(frozen=True)
class Promise:
    """Bounds that hold for all calls to come: with them no call needs an answer from the device.

    Only so a call can be recorded in a graph of launches, which the host starts as a whole.
    """

    length: float
    """max|q| at most."""
    radius: float
    """max|k - c| at most."""
    value_radius: float
    """max|v - c_v| at most."""
    equal: bool
    """Whether all masses are equal."""
    mass_bits: float
    """log2 of the largest mass over the least one."""

    def deepest(self, beta: float) -> float:
        """Bits by which the sum of a row may lie below one: the least exponent, and the least share of the mass."""
        return beta * math.log2(math.e) * self.length * self.radius + self.mass_bits


@jit
def scale_of(frame_ptr: tl.tensor) -> tl.tensor:
    """beta log2(e) on the device."""
    return tl.load(frame_ptr)


@jit
def key_radius(frame_ptr: tl.tensor) -> tl.tensor:
    """max|k - c| on the device, rounded up."""
    return tl.load(frame_ptr + 1)


@jit
def inverse_mass(frame_ptr: tl.tensor) -> tl.tensor:
    """One over the largest mass on the device."""
    return tl.load(frame_ptr + 3)


@jit
def centre_at(frame_ptr: tl.tensor, place: tl.tensor) -> tl.tensor:
    """Where coordinates of (c, c_v) stand on the device."""
    return frame_ptr + 4 + place


@jit
def log_partition(
    frame_ptr: tl.tensor, centre_score: tl.tensor, shift: tl.tensor, sum_bits: tl.tensor
) -> tl.tensor:
    """log Z = beta <q, c> + ln 2 (shift + log2 S) + log of the largest mass; `centre_score` is <q, c>."""
    bits = scale_of(frame_ptr) * centre_score + shift + sum_bits
    return 0.6931471805599453 * bits + tl.load(frame_ptr + 2)


@jit
def part_kernel(
    x_ptr: tl.tensor,
    mass_ptr: tl.tensor,
    part_ptr: tl.tensor,
    known_ptr: tl.tensor,
    n: tl.tensor,
    d: tl.tensor,
    PARTS: tl.constexpr,
    CLEAR: tl.constexpr,
    W: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """part[p, :] = sum of the rows that program p sees; known[4 + p], known[4 + PARTS + p]: their masses' range.

    The squares and the count, for `extent_kernel`, are set to zero.
    """
    columns = tl.program_id(1) * W + tl.arange(0, W)
    total = tl.zeros((ROWS, W), tl.float64)
    least = tl.full((ROWS,), float("inf"), tl.float64)
    largest = tl.zeros((ROWS,), tl.float64)
    for start in range(tl.program_id(0) * ROWS, n, PARTS * ROWS):
        rows = start + tl.arange(0, ROWS)
        seen = (rows < n)[:, None] & (columns < d)[None, :]
        at = rows.to(tl.int64)[:, None] * d + columns[None, :]
        total += tl.load(x_ptr + at, mask=seen, other=0.0).to(tl.float64)
        least = tl.minimum(least, tl.load(mass_ptr + rows, mask=rows < n, other=float("inf")).to(tl.float64))
        largest = tl.maximum(largest, tl.load(mass_ptr + rows, mask=rows < n, other=0.0).to(tl.float64))
    tl.store(part_ptr + tl.program_id(0) * d + columns, tl.sum(total, axis=0), mask=columns < d)
    if tl.program_id(1) == 0:
        tl.store(known_ptr + 4 + tl.program_id(0), tl.min(least, axis=0))
        tl.store(known_ptr + 4 + PARTS + tl.program_id(0), tl.max(largest, axis=0))
        if CLEAR:
            tl.store(known_ptr + tl.arange(0, 4), tl.zeros((4,), tl.float64), mask=tl.program_id(0) == 0)


@jit
def largest_square(
    x_ptr: tl.tensor,
    part_ptr: tl.tensor,
    centre_ptr: tl.tensor,
    n: tl.tensor,
    d: tl.tensor,
    PARTS: tl.constexpr,
    COPIES: tl.constexpr,
    W: tl.constexpr,
    ROWS: tl.constexpr,
) -> tl.tensor:
    """max |x_i - c|^2 over this program's rows as an integer (non-negative floats are ordered alike).

    The centre c = sum of the parts / n is stored `COPIES` times; it is 0 if there are no parts.
    """
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    square = tl.zeros((ROWS,), tl.float64)
    for start in range(0, d, W):
        columns = start + tl.arange(0, W)
        seen = (rows < n)[:, None] & (columns < d)[None, :]
        x = tl.load(x_ptr + rows[:, None] * d + columns[None, :], mask=seen, other=0.0).to(tl.float64)
        if PARTS > 0:
            at = tl.arange(0, PARTS)[:, None] * d + columns[None, :]
            parts = tl.load(part_ptr + at, mask=(columns < d)[None, :], other=0.0)
            centre = tl.sum(parts, axis=0) / n
            x -= centre[None, :]
            if tl.program_id(0) == 0:
                for copy in tl.static_range(COPIES):
                    tl.store(centre_ptr + copy * d + columns, centre, mask=columns < d)
        square += tl.sum(tl.where(seen, x * x, 0.0), axis=1)
    return tl.max(square, axis=0).to(tl.int64, bitcast=True)


@jit
def extent_kernel(
    x_ptr: tl.tensor,
    q_ptr: tl.tensor,
    part_ptr: tl.tensor,
    centre_ptr: tl.tensor,
    known_ptr: tl.tensor,
    square_ptr: tl.tensor,
    numbers_ptr: tl.tensor,
    n: tl.tensor,
    n_q: tl.tensor,
    d: tl.tensor,
    PLACE: tl.constexpr,
    PARTS: tl.constexpr,
    COPIES: tl.constexpr,
    W: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """square[PLACE] = max |x_i - c|^2 and, by a second row of programs, square[2] = max |q_i|^2.

    With the keys (PLACE 0) the last program writes the numbers of the frame that follow, the scale excepted.
    """
    if tl.program_id(1) == 0:
        found = largest_square(x_ptr, part_ptr, centre_ptr, n, d, PARTS, COPIES, W, ROWS)
        tl.atomic_max(square_ptr + PLACE, found)
    else:
        found = largest_square(q_ptr, part_ptr, centre_ptr, n_q, d, 0, 0, W, ROWS)
        tl.atomic_max(square_ptr + 2, found)
    if PLACE == 0:
        done = tl.atomic_add(square_ptr + 3, 1)
        if done == tl.num_programs(0) * tl.num_programs(1) - 1:
            square = tl.atomic_max(square_ptr, 0).to(tl.float64, bitcast=True)
            largest = tl.max(tl.load(known_ptr + 4 + PARTS + tl.arange(0, PARTS)), axis=0)
            # The radius is rounded up, so that the bound |q| radius stays one in float32.
            tl.store(numbers_ptr + 1, tl.sqrt(square) * 1.000001)
            tl.store(numbers_ptr + 2, tl.log(largest))
            tl.store(numbers_ptr + 3, 1.0 / largest)


def frame_of(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, beta: float, promise: Promise | None = None
) -> Frame:
    """The frame of one call; queries, keys and values must be contiguous.

    With a promise, its bounds stand for what the host would have to ask the device for.
    """
    d, d_v = keys.shape[1], values.shape[1]
    same = same_tensor(keys, values)
    scale = beta * math.log2(math.e)
    # Filled with the scale, which stays where no kernel writes: a number would reach a kernel in float32.
    room = torch.full((LARGEST + PARTS + CENTRE + d + d_v,), scale, dtype=torch.float64, device=keys.device)
    known, numbers = room[: LARGEST + PARTS], room[LARGEST + PARTS :]
    _extent(keys, queries, mass, known, numbers, 0, 2 if same else 1)
    if not same:
        _extent(values, None, mass, known, numbers, d, 1)
    if promise is not None:
        return Frame(numbers, promise.equal, same, scale, promise.length, promise.radius, promise.value_radius)
    on_host = known.tolist()
    radius, value_radius, length = (math.sqrt(x) for x in on_host[:3])
    least, largest = min(on_host[LEAST:LARGEST]), max(on_host[LARGEST:])
    radius *= 1.000001
    return Frame(numbers, least == largest, same, scale, length, radius, radius if same else value_radius)


def _extent(
    x: Tensor, queries: Tensor | None, mass: Tensor, known: Tensor, numbers: Tensor, after: int, copies: int
) -> None:
    """What is known of the keys (and queries), or of values, whose centre goes `after` the keys'."""
    n, d = x.shape
    width = min(64, power_of_two(d))
    rows = 1024 // width
    parts = torch.empty(PARTS, d, dtype=torch.float64, device=x.device)
    part_kernel[(PARTS, blocks(d, width))](
        x, mass, parts, known, n, d, PARTS=PARTS, CLEAR=queries is not None, W=width, ROWS=rows
    )
    n_q = 0 if queries is None else len(queries)
    extent_kernel[(blocks(max(n, n_q), rows), 1 if queries is None else 2)](
        x,
        x if queries is None else queries,
        parts,
        numbers[CENTRE + after :],
        known,
        known.view(torch.int64),
        numbers,
        n,
        n_q,
        d,
        PLACE=0 if queries is not None else 1,
        PARTS=PARTS,
        COPIES=copies,
        W=width,
        ROWS=rows,
    )
