"""Attention on the GPU for large d: tiles of scores from the matrix library, softmax weights by one fused pass.

For a tile of queries and keys, scores = Q K^T is one library product, `weights_kernel` reads it once, updates the
running maximum of every row and writes the weights, and a second library product adds weights times values:

    top' = max(top, max_j x_ij),   P_ij = 2^{x_ij - top'},   A' = 2^{top - top'} A + P V,   S' likewise with V = 1

In float32 accuracy the products run on tensor cores as float16 pairs (`half_pairs`); in float64 they are plain.
Tiles are large enough that the launches do not count, and short enough in keys that the truncating accumulation of
the tensor cores keeps its bias below 1e-5 of the largest value.
"""

# mypy: disable-error-code="assignment, attr-defined"
from __future__ import annotations

import math

import torch
from torch import Tensor

from metastable.attention.gpu.frame import LOG_MASS, SCALE, Frame
from metastable.attention.gpu.half_pairs import half_pair, split
from metastable.attention.gpu.instructions import exp2_fused64
from metastable.attention.gpu.jit import jit, tl
from metastable.attention.gpu.launch import blocks, power_of_two

TILE_KEYS = 4096
"""Keys of a tile: one program reads a whole row of it, and the tensor cores' bias over it stays below 1e-5."""
TILE_ROWS = {torch.float32: 16384, torch.float64: 8192}
"""Queries of a tile: scores and weights take 0.5 GiB, however many tokens there are."""


def additions_of_library(n_k: int) -> float:
    """Float32 additions after one another: of the products of a tile, 16 keys deep each, and of the tiles."""
    return TILE_KEYS / 16 + n_k / TILE_KEYS


@jit
def weights_kernel(
    scores_ptr: tl.tensor,
    scale_ptr: tl.tensor,
    log_mass_ptr: tl.tensor,
    top_ptr: tl.tensor,
    total_ptr: tl.tensor,
    acc_ptr: tl.tensor,
    out_ptr: tl.tensor,
    count: tl.tensor,
    width: tl.tensor,
    BLOCK: tl.constexpr,
    DOUBLE: tl.constexpr,
) -> None:
    """Softmax weights of one row of a tile: float16 pairs [hi | lo] (float32 scores), or in place (float64).

    The sums so far fade with the maximum: A (row of acc) and S (total).
    """
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < count
    x = tl.load(scores_ptr + row * count + at, mask=inside, other=0.0)
    x = x * tl.load(scale_ptr) + tl.load(log_mass_ptr + at, mask=inside, other=-float("inf"))
    old = tl.load(top_ptr + row)
    top = tl.maximum(old, tl.max(x, axis=0))
    if DOUBLE:
        p = tl.where(x > -float("inf"), exp2_fused64(x - top), 0.0)
        fade = exp2_fused64(old - top)
    else:
        p = tl.exp2(x - top)
        fade = tl.exp2(old - top)
    tl.store(top_ptr + row, top)
    if top > old:
        for start in range(0, width, 256):
            column = start + tl.arange(0, 256)
            acc = tl.load(acc_ptr + row * width + column, mask=column < width, other=0.0)
            tl.store(acc_ptr + row * width + column, acc * fade, mask=column < width)
    tl.store(total_ptr + row, tl.load(total_ptr + row) * fade + tl.sum(p, axis=0))
    if DOUBLE:
        tl.store(out_ptr + row * count + at, p, mask=inside)
    else:
        hi, lo = half_pair(p)
        tl.store(out_ptr + row * 2 * count + at, hi, mask=inside)
        tl.store(out_ptr + row * 2 * count + count + at, lo, mask=inside)


def attend_by_library(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, frame: Frame, precision: torch.dtype
) -> tuple[Tensor, Tensor]:
    """(mean, log Z) on CUDA for any d, accurate to `precision` (float32 or float64), in the queries' dtype."""
    (n_q, d), n_k, d_v = queries.shape, len(keys), values.shape[1]
    centre, value_centre = frame.centres(d)
    log_mass = torch.log2(mass.to(torch.float64))
    log_mass = (log_mass - log_mass.max()).to(precision)
    make = _HalfProducts if precision == torch.float32 else _PlainProducts
    products = make(queries, keys, values, frame)
    mean = torch.empty(n_q, d_v, dtype=queries.dtype, device=queries.device)
    log_partition = torch.empty(n_q, dtype=queries.dtype, device=queries.device)
    for i in range(0, n_q, TILE_ROWS[precision]):
        rows = slice(i, min(i + TILE_ROWS[precision], n_q))
        size = rows.stop - rows.start
        acc = torch.zeros(size, products.value_width, dtype=precision, device=queries.device)
        total = torch.zeros(size, dtype=precision, device=queries.device)
        top = torch.full_like(total, -1e38)
        for j in range(0, n_k, TILE_KEYS):
            columns = slice(j, min(j + TILE_KEYS, n_k))
            count = columns.stop - columns.start
            scores = products.scores(rows, columns)
            weights = products.room(scores)
            weights_kernel[(size,)](
                scores,
                products.scale,
                log_mass[columns],
                top,
                total,
                acc,
                weights,
                count,
                products.value_width,
                BLOCK=max(16, power_of_two(count)),
                DOUBLE=precision == torch.float64,
                num_warps=8,
            )
            acc = products.add_values(acc, weights, columns)
        attended = acc[:, :d_v].to(torch.float64) * products.value_unit / total[:, None]
        bits = top.to(torch.float64) + torch.log2(total.to(torch.float64))
        score = frame.numbers[SCALE] * (queries[rows].to(torch.float64) @ centre)
        mean[rows] = attended + value_centre
        log_partition[rows] = math.log(2) * (bits + score) + frame.numbers[LOG_MASS]
    return mean, log_partition


class _PlainProducts:
    """Products in float64."""

    def __init__(self, queries: Tensor, keys: Tensor, values: Tensor, frame: Frame) -> None:
        centre, value_centre = frame.centres(keys.shape[1])
        self.q, self.k, self.v = queries.to(torch.float64), keys - centre, values - value_centre
        self.scale, self.value_unit, self.value_width = frame.numbers[SCALE], 1.0, values.shape[1]

    def scores(self, rows: slice, columns: slice) -> Tensor:
        return self.q[rows] @ self.k[columns].T

    def room(self, scores: Tensor) -> Tensor:
        return scores

    def add_values(self, acc: Tensor, weights: Tensor, columns: slice) -> Tensor:
        return acc.addmm_(weights, self.v[columns])


class _HalfProducts:
    """Products of float16 pairs on tensor cores: [lo, hi, hi] against [hi, lo, hi], accumulated in float32.

    The small terms come first: tensor cores truncate to the size that the sum has by then.
    """

    def __init__(self, queries: Tensor, keys: Tensor, values: Tensor, frame: Frame) -> None:
        centre, value_centre = frame.centres(keys.shape[1])
        width, self.value_width = (blocks(x.shape[1], 16) * 16 for x in (keys, values))
        q_hi, q_lo, q_unit = split(queries, None, frame.length, width)
        k_hi, k_lo, k_unit = split(keys, centre, frame.radius, width)
        v_hi, v_lo, self.value_unit = k_hi, k_lo, k_unit
        if not frame.same:
            v_hi, v_lo, self.value_unit = split(values, value_centre, frame.value_radius, self.value_width)
        self.scale = (frame.numbers[SCALE] * (q_unit * k_unit)).to(torch.float32)
        self.q = torch.cat([q_lo, q_hi, q_hi], dim=1)
        self.k = torch.cat([k_hi, k_lo, k_hi], dim=1)
        self.v_hi = v_hi
        # Per tile of keys the rows [lo; hi], to stand against the weights [hi | lo].
        self.crossed = [
            torch.cat([v_lo[j : j + TILE_KEYS], v_hi[j : j + TILE_KEYS]]) for j in range(0, len(keys), TILE_KEYS)
        ]

    def scores(self, rows: slice, columns: slice) -> Tensor:
        return torch.mm(self.q[rows], self.k[columns].T, out_dtype=torch.float32)

    def room(self, scores: Tensor) -> Tensor:
        return torch.empty(scores.shape[0], 2 * scores.shape[1], dtype=torch.float16, device=scores.device)

    def add_values(self, acc: Tensor, weights: Tensor, columns: slice) -> Tensor:
        hi = self.v_hi[columns]
        acc = torch.addmm(acc, weights, self.crossed[columns.start // TILE_KEYS], out_dtype=torch.float32)
        return torch.addmm(acc, weights[:, : len(hi)], hi, out_dtype=torch.float32)
