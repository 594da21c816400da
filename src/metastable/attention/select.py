"""Which kernel computes `attend`: the table of kernels, and the choice that `kernel="auto"` makes."""

from __future__ import annotations

import torch

from metastable.attention.circle import CIRCLE
from metastable.attention.direct import BLOCKS, DENSE, FUSED, SDPA
from metastable.attention.gpu import CIRCLE_GPU, FLASH_BF16, FLASH_FP16, GPU_FLOAT64, TRITON
from metastable.attention.kernel import Kernel
from metastable.attention.operands import Operands
from metastable.attention.sphere import SPHERE, SPHERE_GRID

KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        *(FUSED, TRITON, GPU_FLOAT64, DENSE, SDPA, BLOCKS, FLASH_BF16, FLASH_FP16),
        *(CIRCLE, SPHERE, SPHERE_GRID, CIRCLE_GPU),
    )
}
"""All kernels by name: first those over all pairs, of which `select` takes the first that can, then those with a
stated error. "flash_bf16" and "flash_fp16" round to half precision, which is taken by name only."""

_ALL_PAIRS = [kernel for kernel in KERNELS.values() if kernel.least_rtol is None]
_STATED_ERROR = [kernel for kernel in KERNELS.values() if kernel.least_rtol is not None]

LEAST_PAIRS = 1_000_000
"""Pairs below which no tolerance is worth a forecast: the fused kernel takes less than a millisecond for them."""


def select(operands: Operands, rtol: float | None) -> Kernel:
    """The cheapest kernel that meets `rtol` (None: all digits) for these operands."""
    pairs = operands.pairs
    direct = DENSE
    for kernel in _ALL_PAIRS:
        if (kernel.most_pairs is None or pairs <= kernel.most_pairs) and kernel.can(operands):
            direct = kernel
            break
    # Float32 tokens get here only where their own rounding meets the tolerance; they go over all pairs.
    if rtol is None or operands.queries.dtype != torch.float64 or pairs < LEAST_PAIRS:
        return direct
    able = [kernel for kernel in _STATED_ERROR if kernel.can(operands, rtol)]
    if not able:
        return direct
    costs = [kernel.cost(operands, rtol) for kernel in able]
    least = min(costs)
    return able[costs.index(least)] if least <= direct.cost(operands, rtol) else direct
