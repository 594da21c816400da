"""The circle on a GPU: keys are gathered into cells, and queries meet the cells' proxies instead of the keys.

On a cell of half-width h <= 2 / (beta max|q|) the weight e^{beta <q, k(theta)>} varies by a factor of at most e^4,
so its Chebyshev interpolant of degree 15 in theta is exact to 1e-11 of its least value there. With nodes t_a and
T_k the Chebyshev polynomials, a cell acts like `NODES` proxies at the nodes with masses

    W_a = (1/p) sum_j m_j [ 1 + 2 sum_{k=1}^{p-1} T_k(t_a) T_k(t_j) ]

and values on the circle are reproduced as well. Cells whose keys matter contribute positive sums, so the error is
relative, whatever the clusters. The cost is n log n for one sort and n times the number of proxies, at most
8 pi beta max|q| of them, in the float64 kernel: 1e8 tokens fit one card.
"""

# mypy: disable-error-code="assignment, attr-defined, misc"
from __future__ import annotations

import math

import torch
from torch import Tensor

from metastable.attention.gpu.coordinates import repeated
from metastable.attention.gpu.frame import frame_of
from metastable.attention.gpu.jit import jit, tl
from metastable.attention.gpu.small import LEAST_BITS, attend_small
from metastable.attention.operands import same_tensor
from metastable.errors import InvalidInput

NODES = 16
"""Proxies of a cell: degree 15, whose error on a cell is 1e-11 of the least weight there (see above)."""
LEAST_CELLS = 16
"""Cells at small beta, where no weight asks for more: a value, cos and sin of the angle, is resolved as well."""
RELATIVE_ERROR = 1e-10
"""What the kernel states of itself; the interpolation alone is exact to 1e-11, and tests hold it to this."""
LONGEST_HALF_WIDTH = 2.0
"""Half-width of a cell times beta max|q|, at most: the weight then varies by a factor of at most e^4 across it."""


@jit
def moments_kernel(
    angle_ptr: tl.tensor,
    mass_ptr: tl.tensor,
    edge_ptr: tl.tensor,
    out_ptr: tl.tensor,
    cells: tl.tensor,
    P: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """out[cell, part, k] = sum over a share of the cell's keys of m T_k(t), t in [-1, 1] across the cell."""
    cell, part = tl.program_id(0), tl.program_id(1)
    half = 3.141592653589793 / cells.to(tl.float64)
    middle = (2 * cell + 1).to(tl.float64) * half - 3.141592653589793
    last = tl.load(edge_ptr + cell + 1)
    sums = repeated(tl.zeros((BLOCK,), tl.float64), P)
    for start in range(tl.load(edge_ptr + cell) + part * BLOCK, last, PARTS * BLOCK):
        at = start + tl.arange(0, BLOCK)
        t = (tl.load(angle_ptr + at, mask=at < last, other=0.0) - middle) / half
        before = tl.load(mass_ptr + at, mask=at < last, other=0.0)
        t = tl.where(at < last, t, 0.0)
        now = t * before
        new = (sums[0] + before, sums[1] + now)
        for k in tl.static_range(2, P):
            after = 2.0 * t * now - before
            before = now
            now = after
            new = new + (sums[k] + now,)
        sums = new
    for k in tl.static_range(P):
        tl.store(out_ptr + (cell.to(tl.int64) * PARTS + part) * P + k, tl.sum(sums[k], axis=0))


def cell_proxies(keys: Tensor, mass: Tensor, cells: int) -> tuple[Tensor, Tensor]:
    """(points, masses) of the proxies of all occupied cells, in float64; masses may be negative."""
    angle, order = torch.atan2(keys[:, 1].to(torch.float64), keys[:, 0].to(torch.float64)).sort()
    sorted_mass = mass.to(torch.float64)[order]
    del order
    half = math.pi / cells
    edges = torch.arange(cells + 1, dtype=torch.float64, device=keys.device) * (2 * half) - math.pi
    edges[0], edges[-1] = -math.inf, math.inf
    places = torch.searchsorted(angle, edges)
    parts = max(1, min(64, len(keys) // (cells * 4096)))
    moments = torch.empty(cells, parts, NODES, dtype=torch.float64, device=keys.device)
    moments_kernel[(cells, parts)](
        angle, sorted_mass, places, moments, cells, P=NODES, PARTS=parts, BLOCK=128, num_warps=4
    )
    occupied = places[1:] > places[:-1]
    k = torch.arange(NODES, dtype=torch.float64, device=keys.device)
    phase = math.pi * (k + 0.5) / NODES
    basis = torch.cos(k[:, None] * phase[None, :]) * torch.where(k == 0, 1.0, 2.0)[:, None] / NODES
    weights = moments.sum(dim=1)[occupied] @ basis
    middle = (2 * torch.arange(cells, dtype=torch.float64, device=keys.device)[occupied] + 1) * half - math.pi
    theta = (middle[:, None] + half * torch.cos(phase)[None, :]).reshape(-1)
    return torch.stack([torch.cos(theta), torch.sin(theta)], dim=1), weights.reshape(-1)


def cells_for(reach: float) -> int:
    """Cells whose half-width is at most 2 / reach, for reach = beta max|q|."""
    return max(LEAST_CELLS, math.ceil(math.pi * reach / LONGEST_HALF_WIDTH))


def attend_circle_gpu(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, beta: float
) -> tuple[Tensor, Tensor]:
    """(mean, log Z) for keys on the unit circle that are the values, to a relative error of `RELATIVE_ERROR`."""
    if keys.shape[1] != 2 or not same_tensor(keys, values):
        raise InvalidInput(f"the circle's cells need keys (n, 2) that are the values, got keys {tuple(keys.shape)}")
    off, length = (
        torch.stack([(keys.square().sum(dim=1) - 1).abs().max(), queries.square().sum(dim=1).max()])
        .to(torch.float64)
        .tolist()
    )
    if off > 1e-5:
        raise InvalidInput(f"the circle's cells need keys of length one, got a length that is off by {off / 2:.1e}")
    reach = beta * math.sqrt(length)
    if 2 * reach * math.log2(math.e) > -LEAST_BITS[torch.float64]:
        raise InvalidInput(f"the circle's cells need beta max|q| <= 311 on a GPU, got {reach:g}")
    points, weights = cell_proxies(keys, mass, cells_for(reach))
    queries = queries.contiguous()
    frame = frame_of(queries, points, points, weights, beta)
    return attend_small(queries, points, points, weights, frame, torch.float64)
