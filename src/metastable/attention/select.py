"""Which kernel computes `attend`: the tables of kernels and the choice that `kernel="auto"` makes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from metastable.attention.blocks import attend_blocks
from metastable.attention.circle import attend_circle
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

APPROXIMATE: dict[str, ApproximateKernel] = {"circle": attend_circle}
"""Kernels with a stated error: (queries, keys, values, mass, beta, rtol) -> (mean, log_partition, error)."""

DEFAULT_RTOL = 1e-10
"""Tolerance of an approximate kernel that is asked for by name without one."""


LEAST_RTOL = 1e-11
"""Below this tolerance only the kernels that keep all digits are chosen."""

MOST_SHARP = 2e4
"""Largest beta |q| for which the cells of the circle resolve every score."""


def select(queries: Tensor, keys: Tensor, values: Tensor, beta: float, rtol: float | None) -> str:
    """Name of the cheapest kernel that meets `rtol` (None: all digits) for these shapes, device and precision."""
    if queries.device.type != "cpu":
        return "dense"
    if rtol is not None and rtol >= LEAST_RTOL and queries.dtype == torch.float64:
        approximate = _approximate(queries, keys, values, beta)
        if approximate is not None:
            return approximate
    if queries.shape[1] <= MAX_COLUMNS and values.shape[1] <= MAX_COLUMNS:
        return "fused"
    return "blocks" if queries.shape[0] * keys.shape[0] > 16384 else "dense"


def _approximate(queries: Tensor, keys: Tensor, values: Tensor, beta: float) -> str | None:
    """The approximate kernel for tokens on the circle, where it is cheaper than all pairs."""
    n_q, n_k, d = queries.shape[0], keys.shape[0], queries.shape[1]
    if d != 2 or n_q * n_k < 1_000_000 or not same_tensor(keys, values) or not on_sphere(keys):
        return None
    sharpest = beta * float(torch.linalg.vector_norm(queries, dim=1).max())
    # Nanoseconds: sums over all pairs against keys and queries gathered, and cells merged and scanned.
    pairs, cells = 0.7 * n_q * n_k, 120.0 * (n_q + n_k) + 6000.0 * max(sharpest, 1.0)
    return "circle" if sharpest < MOST_SHARP and cells < pairs else None


def same_tensor(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are one piece of memory read in one way."""
    return a is b or (a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride())


def on_sphere(points: Tensor) -> bool:
    """Whether all rows have unit length to 64 rounding units."""
    square = torch.linalg.vecdot(points, points)
    return bool((square - 1.0).abs().max() <= 128 * torch.finfo(points.dtype).eps)
