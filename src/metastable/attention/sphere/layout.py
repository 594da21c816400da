"""Where the nodes of the queries lie on their surface, and what they and the nodes of the keys give each other
(`sphere.grid`, `sphere.adjoint`).

Both are rings around the same poles, those of the keys on the unit sphere; along a ring of the queries the length
of z varies as much as the two axes across the poles differ, and sums are interpolated between a few lengths
(`sphere.nodes`), at the cost of a tenth of `Plan.pruned`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import fft

from metastable.attention.sphere.nodes import BLOCK, radii, ring_sums, shares
from metastable.attention.sphere.plan import Plan, Surface
from metastable.attention.sphere.window import lebesgue
from metastable.threads import over_rows

PIECES = 4
"""Ranges of rings whose sums at the keys are kept apart until the end, so that the digits do not depend on the
threads."""
_CHUNK = 8
"""Rings that are summed before they are transformed: some megabytes."""


class Targets(NamedTuple):
    """Nodes of the chart of the queries: N/2 rings of N nodes."""

    angles: np.ndarray
    """(N/2,): angle between z and the poles."""
    lengths: np.ndarray
    """(N/2, N): |z|; (N/2, 1) if they are all the same."""


def targets_of(where: Surface, grids: Plan) -> Targets:
    """The nodes of the queries on their surface."""
    n = grids.coarse_queries
    theta = (np.arange(n // 2) + 0.5) * (2.0 * math.pi / n)
    if where.ellipsoid is None:
        return Targets(theta, np.full((n // 2, 1), where.longest))
    phi = np.arange(n) * (2.0 * math.pi / n)
    high, low = np.sin(theta), np.cos(theta)
    v = np.empty((n // 2, n, 3))
    v[..., 0], v[..., 1], v[..., 2] = np.outer(high, np.cos(phi)), np.outer(high, np.sin(phi)), low[:, None]
    angles = np.arctan2(grids.stretch[0] * high, grids.stretch[2] * low)
    return Targets(angles, where.ellipsoid.lengths(grids.stretch, v))


def meet(
    targets: Targets, columns: np.ndarray, sent: np.ndarray, weight: float, grids: Plan
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of e^{<z, k> - h} w over the nodes k of the keys, of weights (rings, c, N), at all targets z; and back.

    Returns (rings, c, N/2 + 1): the former, transformed along the rings of targets; and (rings, s, N): sums over
    targets of what they send, (rings, s, N), at the nodes of the keys. The sizes of either sum up to `weight`.
    """
    n, count, theta = grids.coarse_queries, columns.shape[1], _thetas(len(columns))
    modes, kept = _modes(columns), len(columns)
    back = sent.shape[1]
    reach, rest = depth(weight, grids), _left_out(weight, grids)
    along = np.empty((n // 2, count, n // 2 + 1), dtype=np.complex128)
    pieces = PIECES if back else -(-n // (2 * _CHUNK))
    received = np.zeros((pieces if back else 1, kept, back, 2, kept))
    edges = [n // 2 * piece // pieces for piece in range(pieces + 1)]

    def work(first: int, last: int) -> None:
        for piece in range(first, last):
            heard = received[piece if back else 0]
            for start in range(edges[piece], edges[piece + 1], _CHUNK):
                some = slice(start, min(start + _CHUNK, edges[piece + 1]))
                angles, lengths = targets.angles[some], targets.lengths[some]
                between = radii(lengths.min(axis=1), lengths.max(axis=1), rest)
                found = np.empty((*between.shape, count, kept, 2))
                softer = np.exp(-(grids.soft**2) / (lengths + np.hypot(lengths, grids.soft) + 1e-300))
                parts = shares(lengths, between.shape[1]) * softer[:, None]
                told = np.empty((*between.shape, back, kept, 2))
                if back:
                    told.view(np.complex128)[..., 0] = fft.rfft(parts[:, :, None] * sent[some, None])[..., :kept]
                attend = ring_sums(count, back, BLOCK if between.shape[1] > 1 else 1)
                attend(angles, between, theta, modes, reach, found, told, heard)
                sums = fft.irfft(found.view(np.complex128)[..., 0], n=n, norm="forward")
                sums *= parts[:, :, None]
                along[some] = fft.rfft(sums.sum(axis=1))

    over_rows(work, pieces, cost=1e6 * pieces)
    heard = received.sum(axis=0)
    return along, fft.irfft((heard[:, :, 0] + 1j * heard[:, :, 1]).T, n=2 * kept, norm="forward")


def largest_sums(targets: Targets, sizes: np.ndarray, grids: Plan) -> tuple[float, float]:
    """The largest sum of e^{<z, k> - |z|} |w| over the nodes of the keys at any target, and of |z| times it."""
    least = np.ascontiguousarray(targets.lengths.min(axis=1, keepdims=True))
    modes, kept = _modes(sizes[:, None]), len(sizes)
    found = np.empty((len(least), 1, 1, kept, 2))
    nothing = np.empty((len(least), 1, 0, kept, 2)), np.empty((kept, 0, 2, kept))

    def work(first: int, last: int) -> None:
        part = slice(first, last)
        attend = ring_sums(1, 0, 1)
        reach = depth(float(sizes.sum()), grids)
        attend(targets.angles[part], least[part], _thetas(kept), modes, reach, found[part], nothing[0], nothing[1])

    over_rows(work, len(least), cost=1e4 * len(least), quantum=_CHUNK)
    sums = fft.irfft(found.view(np.complex128)[:, 0, 0, :, 0], n=grids.coarse_queries, norm="forward").max(axis=1)
    return float(sums.max()), float((sums * targets.lengths.max(axis=1)).max())


def depth(total_weight: float, grids: Plan) -> float:
    """How far below e^{h} nodes may be left out, for weights of that sum."""
    return math.log(lebesgue(grids.coarse_queries) ** 2 * max(total_weight, 1.0) / grids.pruned)


def sum_of_sizes(weights: np.ndarray) -> float:
    """The sum of the sizes of weights (rings, c, N)."""
    return float(np.sqrt(np.square(weights).sum(axis=1)).sum())


def _left_out(total_weight: float, grids: Plan) -> float:
    """What sums interpolated between lengths may err by, for weights of that sum."""
    return grids.pruned / (10.0 * lebesgue(grids.coarse_queries) ** 2 * max(total_weight, 1.0))


def _thetas(rings: int) -> np.ndarray:
    return (np.arange(rings) + 0.5) * (math.pi / rings)


def _modes(columns: np.ndarray) -> np.ndarray:
    """(M, c, 2, rings): real and imaginary parts of the modes below N/2 along rings of weights (rings, c, N)."""
    modes = fft.rfft(columns)[..., : len(columns)]
    return np.ascontiguousarray(np.stack((modes.real, modes.imag), axis=2).transpose(3, 1, 2, 0))
