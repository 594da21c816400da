"""Which kernel computes `attend`: the tables of kernels and the choice that `kernel="auto"` makes."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from metastable.attention.circle.cells import attend_circle
from metastable.attention.circle.curve import fit_ellipse
from metastable.attention.direct.blocks import attend_blocks
from metastable.attention.direct.dense import attend_dense
from metastable.attention.direct.fused import MAX_COLUMNS, attend_fused, contiguous
from metastable.attention.direct.sdpa import attend_sdpa
from metastable.attention.gpu.circle import RELATIVE_ERROR
from metastable.attention.gpu.kernels import GPU_KERNELS, gpu_available
from metastable.attention.lengths import squared_lengths
from metastable.attention.operands import same_tensor
from metastable.attention.sphere.cells import attend_sphere_cells
from metastable.attention.sphere.grid import attend_sphere_grid, grid_cost

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
ApproximateKernel = Callable[[Tensor, Tensor, Tensor, Tensor, float, float], tuple[Tensor, Tensor, float]]

KERNELS: dict[str, Kernel] = {
    "dense": attend_dense,
    "fused": attend_fused,
    "blocks": attend_blocks,
    "sdpa": attend_sdpa,
    **{name: kernel for name, kernel in GPU_KERNELS.items() if name != "circle_gpu"},
}
"""Kernels over all pairs, exact up to rounding: (queries, keys, values, mass, beta) -> (mean, log_partition).

The names that `gpu` adds need CUDA tensors; "flash_bf16" and "flash_fp16" round to half precision, by choice only.
"""


def _circle_gpu(
    q: Tensor, k: Tensor, v: Tensor, m: Tensor, beta: float, rtol: float
) -> tuple[Tensor, Tensor, float]:
    return *GPU_KERNELS["circle_gpu"](q, k, v, m, beta), RELATIVE_ERROR


APPROXIMATE: dict[str, ApproximateKernel] = {
    "circle": attend_circle,
    "sphere": attend_sphere_cells,
    "sphere_grid": attend_sphere_grid,
    "circle_gpu": _circle_gpu,
}
"""Kernels with a stated error: (queries, keys, values, mass, beta, rtol) -> (mean, log_partition, error)."""

DEFAULT_RTOL = 1e-10
"""Tolerance of an approximate kernel that is asked for by name without one."""


LEAST_RTOL = 1e-11
"""Below this tolerance only the kernels that keep all digits are chosen."""

MOST_SHARP = 2e4
"""Largest beta |q| for which the cells of the circle resolve every score."""


def select(
    queries: Tensor, keys: Tensor, values: Tensor, beta: float, rtol: float | None, mass: Tensor | None = None
) -> str:
    """Name of the cheapest kernel that meets `rtol` (None: all digits) for these shapes, device and precision."""
    if rtol is not None and rtol >= LEAST_RTOL and queries.dtype == torch.float64:
        approximate = _approximate(queries, keys, values, beta, rtol, mass)
        if approximate is not None:
            return approximate
    if queries.is_cuda and gpu_available():
        return "gpu_float64" if queries.dtype == torch.float64 else "triton"
    if queries.device.type != "cpu":
        return "dense"
    if queries.shape[1] <= MAX_COLUMNS and values.shape[1] <= MAX_COLUMNS:
        return "fused"
    pairs = queries.shape[0] * keys.shape[0]
    # Measured: a few calls for small systems, torch's flash form up to some 2000 tokens, our tiles above.
    return "dense" if pairs <= 16384 else "sdpa" if pairs <= 6_000_000 else "blocks"


def _approximate(
    queries: Tensor, keys: Tensor, values: Tensor, beta: float, rtol: float, mass: Tensor | None
) -> str | None:
    """The cell method for tokens on the circle or on S^2, where it is cheaper than all pairs."""
    n_q, n_k, d = queries.shape[0], keys.shape[0], queries.shape[1]
    if d not in (2, 3) or n_q * n_k < 1_000_000 or not same_tensor(keys, values) or not on_sphere(keys):
        return None
    sharpest = beta * math.sqrt(squared_lengths(queries)[1])
    if queries.is_cuda:
        # Measured on an H200, in pairs of float64: launches, the keys sorted, and the proxies that queries meet.
        cells = 7e8 + 150.0 * n_k + n_q * max(256.0, 25.2 * sharpest)
        fits = d == 2 and sharpest <= 311.0 and rtol >= RELATIVE_ERROR and cells < n_q * n_k
        return "circle_gpu" if fits and gpu_available() else None
    if queries.device.type != "cpu":
        return None
    if d == 3:
        # Measured nanoseconds: the grid, whose cost is known and infinite where the partition varies much; cells of
        # keys that fill the sphere, as they do where the grid can be used.
        cells = 5000.0 * n_q * (1.0 if rtol >= 1e-8 else 4.0)
        if n_q * n_k <= 400_000_000 or sharpest >= MOST_SHARP:
            cells = math.inf
        grid = grid_cost(queries, keys, keys.new_ones(n_k) if mass is None else mass, beta, rtol)
        if grid < min(0.8 * n_q * n_k, cells):
            return "sphere_grid"
        return "sphere" if cells < math.inf else None
    # Measured nanoseconds: all pairs; keys, queries and patches, and key cells merged.
    patches = min(16.0 * sharpest**0.5, 2048.0, n_q)
    pairs, cells = 0.7 * n_q * n_k, 4e5 + 12.0 * n_k + 20.0 * n_q + 15_000.0 * patches + 1600.0 * sharpest
    # The rounding of the queries themselves moves scores by |z| eps, several of which must fit into the tolerance.
    if sharpest >= min(MOST_SHARP, rtol / 3e-15) or cells > pairs:
        return None
    if fit_ellipse(contiguous(queries)) is None:
        # Patches in angle and length: most queries are in one with fewer queries than nodes.
        cells += 3000.0 * n_q
    return "circle" if cells < pairs else None


def on_sphere(points: Tensor) -> bool:
    """Whether all rows have unit length to 64 rounding units."""
    least, most = squared_lengths(points)
    return max(1.0 - least, most - 1.0) <= 128 * torch.finfo(points.dtype).eps
