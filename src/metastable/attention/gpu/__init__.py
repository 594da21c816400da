"""Kernels for a CUDA device, in Triton and by torch; nothing here needs one to be imported."""

import torch

from metastable.attention.gpu.circle import RELATIVE_ERROR
from metastable.attention.gpu.frame import Promise
from metastable.attention.gpu.kernels import (
    LARGEST_FLASH_D,
    MOST_RATIO_BF16,
    MOST_RATIO_FP16,
    attend_batch,
    attend_circle,
    attend_flash,
    attend_flash_fp16,
    attend_gpu_float64,
    attend_in_precision,
    attend_triton,
    can_promise,
    circle_gpu_cost,
    gpu_available,
    triton_additions,
    triton_cost,
)
from metastable.attention.kernel import CUDA, MOST_MASS_RATIO, Kernel, in_float64

__all__ = [
    "CIRCLE_GPU",
    "FLASH_BF16",
    "FLASH_FP16",
    "GPU_FLOAT64",
    "TRITON",
    "Promise",
    "attend_batch",
    "attend_in_precision",
    "can_promise",
]

TRITON = Kernel(
    "triton",
    attend_triton,
    devices=CUDA,
    precision=torch.float32,
    additions=triton_additions,
    available=gpu_available,
    cost=triton_cost,
)
GPU_FLOAT64 = Kernel(
    "gpu_float64",
    attend_gpu_float64,
    devices=CUDA,
    precision=torch.float64,
    additions=in_float64,
    available=gpu_available,
)
FLASH_BF16 = Kernel(
    "flash_bf16",
    attend_flash,
    devices=CUDA,
    precision=torch.bfloat16,
    most_mass_ratio=MOST_RATIO_BF16,
    most_columns=LARGEST_FLASH_D,
    available=gpu_available,
)
FLASH_FP16 = Kernel(
    "flash_fp16",
    attend_flash_fp16,
    devices=CUDA,
    precision=torch.float16,
    most_mass_ratio=MOST_RATIO_FP16,
    most_columns=LARGEST_FLASH_D,
    available=gpu_available,
)
CIRCLE_GPU = Kernel(
    "circle_gpu",
    attend_circle,
    least_rtol=RELATIVE_ERROR,
    devices=CUDA,
    dimension=2,
    most_mass_ratio=MOST_MASS_RATIO,
    other_values=False,
    other_lengths=False,
    available=gpu_available,
    cost=circle_gpu_cost,
)
