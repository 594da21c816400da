"""Float32-accurate products on tensor cores: every number as a sum of two float16 numbers.

    a = hi + lo,  hi = fl16(a),  lo = fl16(a - hi):   a b = hi_a hi_b + hi_a lo_b + lo_a hi_b + O(2^-22 |a b|)

Two float16 numbers hold 22 bits, as two TF32 numbers do, at twice the rate of TF32. Float16 has a short exponent,
so the numbers are first scaled by a power of two to at most 2^`TOP`; what is lost is below 2^-34 of the largest.
Products accumulate in float32.
"""

# mypy: disable-error-code="assignment, attr-defined"
from __future__ import annotations

import math

import torch
from torch import Tensor

from metastable.attention.gpu.jit import jit, tl
from metastable.attention.gpu.launch import blocks, power_of_two

TOP = 10
"""Split numbers lie below 2^TOP: float16 ends at 2^16, and the lower halves, down to 2^-24, keep their bits."""


@jit
def half_pair(x: tl.tensor) -> tl.tuple:
    """(hi, lo) in float16 with hi + lo = x to 2^-23, for |x| < 2^15 in float32 or float64."""
    hi = x.to(tl.float32).to(tl.float16)
    return hi, (x - hi.to(x.dtype)).to(tl.float32).to(tl.float16)


@jit
def split_kernel(
    x_ptr: tl.tensor,
    centre_ptr: tl.tensor,
    hi_ptr: tl.tensor,
    lo_ptr: tl.tensor,
    n: tl.tensor,
    d: tl.tensor,
    stride: tl.tensor,
    factor: tl.tensor,
    W: tl.constexpr,
    CENTRED: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """hi + lo = factor (x - centre) for ROWS rows, zeros in the columns beyond d."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * W + tl.arange(0, W)
    seen = (rows < n)[:, None] & (columns < d)[None, :]
    x = tl.load(x_ptr + rows[:, None] * d + columns[None, :], mask=seen, other=0.0).to(tl.float64)
    if CENTRED:
        x -= tl.load(centre_ptr + columns, mask=columns < d, other=0.0)[None, :]
    x *= factor
    hi, lo = half_pair(x)
    place = rows[:, None] * stride + columns[None, :]
    there = (rows < n)[:, None] & (columns < stride)[None, :]
    tl.store(hi_ptr + place, tl.where(seen, hi, 0.0), mask=there)
    tl.store(lo_ptr + place, tl.where(seen, lo, 0.0), mask=there)


def split(x: Tensor, centre: Tensor | None, size: float, width: int) -> tuple[Tensor, Tensor, float]:
    """(hi, lo, unit) with x - centre = unit (hi + lo): float16 matrices (n, width), unit a power of two.

    x must be contiguous and on CUDA, `size` a bound on its distances from the centre.
    """
    n, d = x.shape
    unit = 2.0 ** max(-120, min(120, math.frexp(size)[1] - TOP))
    hi = torch.empty(n, width, dtype=torch.float16, device=x.device)
    lo = torch.empty_like(hi)
    block = min(128, power_of_two(width))
    split_kernel[(blocks(n, 32), blocks(width, block))](
        x,
        x if centre is None else centre,
        hi,
        lo,
        n,
        d,
        width,
        1 / unit,
        W=block,
        CENTRED=centre is not None,
        ROWS=32,
    )
    return hi, lo, unit
