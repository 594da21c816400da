"""Which kernel computes `attend`: the table of kernels and the choice that `kernel="auto"` makes."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from metastable.attention.dense import attend_dense

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]

KERNELS: dict[str, Kernel] = {"dense": attend_dense}
"""Kernels by name: (queries, keys, values, mass, beta) -> (mean, log_partition)."""


def select(queries: Tensor, keys: Tensor, values: Tensor, beta: float, rtol: float | None) -> str:
    """Name of the cheapest kernel that meets `rtol` (None: all digits) for these shapes, device and precision."""
    return "dense"
