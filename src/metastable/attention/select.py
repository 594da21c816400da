"""Which kernel computes `attend`: the table of kernels, and the choice that `kernel="auto"` makes."""

from __future__ import annotations

import math

import torch

from metastable.attention.circle import CIRCLE
from metastable.attention.direct import BLOCKS, DENSE, FUSED, MAX_COLUMNS, PRODUCTS, SDPA, WIDE_LIBRARIES
from metastable.attention.gpu import CIRCLE_GPU, FLASH_BF16, FLASH_FP16, GPU_FLOAT64, TRITON
from metastable.attention.kernel import Kernel
from metastable.attention.nearby import NEARBY
from metastable.attention.operands import Operands
from metastable.attention.sphere import SPHERE, SPHERE_GRID

KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        *(FUSED, TRITON, GPU_FLOAT64, PRODUCTS, DENSE, SDPA, BLOCKS, FLASH_BF16, FLASH_FP16),
        *(NEARBY, CIRCLE, SPHERE, SPHERE_GRID, CIRCLE_GPU),
    )
}
"""All kernels by name: first those over all pairs, of which `select` takes the first that can (with many columns
"products" before all), then those with a stated error. "flash_bf16" and "flash_fp16" round to half precision, which
is taken by name only."""

_ALL_PAIRS = [kernel for kernel in KERNELS.values() if kernel.least_rtol is None]
_MANY_COLUMNS = [PRODUCTS, *(kernel for kernel in _ALL_PAIRS if kernel is not PRODUCTS)]
_STATED_ERROR = [kernel for kernel in KERNELS.values() if kernel.least_rtol is not None]

LEAST_COLUMNS = 4 if WIDE_LIBRARIES else MAX_COLUMNS + 1
"""d and d_v from which two matrix products take less time than the fused loop, where both can: on a Xeon .5 to .95
of its earlier form for 500 to 8000 tokens in four to eight dimensions. On AMD's (`direct.processor`) the loop takes
.43 to .85 of products up to the most columns that it can, for 100 to 3000 tokens."""
LEAST_PAIRS = 1_000_000
"""Pairs below which no tolerance is worth a forecast: the fused kernel takes less than a millisecond for them."""


def select(operands: Operands, rtol: float | None, rounding: float | None = None) -> Kernel:
    """The cheapest kernel that meets `rtol` (None: all digits) for these operands.

    rounding: what float32 may round away on a GPU, where that is more than `rtol`. Where no kernel in the precision
    of float32 tokens meets the tolerance, one that states so.
    """
    double = operands.queries.dtype == torch.float64
    direct = _over_all_pairs(operands, None if double else rtol)
    if double and direct is GPU_FLOAT64 and rtol is not None:
        allowed = max(rtol, rounding or 0.0)
        # The bound is some rounding units at least; to know it, the host waits for the device.
        if allowed > torch.finfo(torch.float32).eps and TRITON.rounding(operands) <= allowed:
            direct = TRITON
    # Kernels with a stated error are for float64: what they save, float32 has lost already.
    if rtol is None or not double or operands.pairs < LEAST_PAIRS:
        return direct
    chosen, least = direct, math.inf
    for kernel in _STATED_ERROR:
        if kernel.search < least and kernel.fits(operands, rtol):
            cost = kernel.cost(operands, rtol)
            if cost < least:
                chosen, least = kernel, cost
    return chosen if least <= direct.cost(operands, rtol) else direct


def products_first(columns: int) -> bool:
    """Whether products take less time than the fused loop, for that many columns at least."""
    return columns >= LEAST_COLUMNS


def _over_all_pairs(operands: Operands, rtol: float | None) -> Kernel:
    """The first kernel over all pairs that can and whose rounding meets `rtol`, or the first that can."""
    pairs, n_k = operands.pairs, operands.keys.size(0)
    many = products_first(min(operands.keys.shape[1], operands.values.shape[1]))
    able = None
    for kernel in _MANY_COLUMNS if many else _ALL_PAIRS:
        small = (kernel.most_pairs is None or pairs <= kernel.most_pairs) and (
            kernel.most_keys is None or n_k <= kernel.most_keys
        )
        if small and kernel.fits(operands, None):
            if rtol is None or kernel.rounding(operands) <= rtol:
                return kernel
            able = able or kernel
    return able or DENSE
