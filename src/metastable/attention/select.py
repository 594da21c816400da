"""Which kernel computes `attend`: the tables of kernels and the choice that `kernel="auto"` makes."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from metastable.attention.blocks import attend_blocks
from metastable.attention.dense import attend_dense
from metastable.attention.fused import MAX_COLUMNS, attend_fused
from metastable.attention.sdpa import attend_sdpa

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
ApproximateKernel = Callable[[Tensor, Tensor, Tensor, Tensor, float, float], tuple[Tensor, Tensor, float]]

KERNELS: dict[str, Kernel] = {
    "dense": attend_dense,
    "fused": attend_fused,
    "blocks": attend_blocks,
    "sdpa": attend_sdpa,
}
"""Kernels that keep all digits: (queries, keys, values, mass, beta) -> (mean, log_partition)."""

APPROXIMATE: dict[str, ApproximateKernel] = {}
"""Kernels with a stated error: (queries, keys, values, mass, beta, rtol) -> (mean, log_partition, error)."""

DEFAULT_RTOL = 1e-10
"""Tolerance of an approximate kernel that is asked for by name without one."""


def select(queries: Tensor, keys: Tensor, values: Tensor, beta: float, rtol: float | None) -> str:
    """Name of the cheapest kernel that meets `rtol` (None: all digits) for these shapes, device and precision."""
    if queries.device.type != "cpu":
        return "dense"
    if queries.shape[1] <= MAX_COLUMNS and values.shape[1] <= MAX_COLUMNS:
        return "fused"
    return "blocks" if queries.shape[0] * keys.shape[0] > 16384 else "dense"
