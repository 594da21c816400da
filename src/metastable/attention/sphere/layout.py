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
_CHUNK = 4
"""Rings, on either side of the equator, that are summed before they are transformed: some megabytes."""


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
    n, kept, count, back = grids.coarse_queries, len(columns), columns.shape[1], sent.shape[1]
    theta, modes, sent = _thetas(kept), _modes(columns), np.concatenate((sent, sent[::-1]), axis=1)
    reach, rest = depth(weight, grids), _left_out(weight, grids)
    along = np.empty((n // 2, count, n // 2 + 1), dtype=np.complex128)
    pieces = PIECES if back else -(-n // (4 * _CHUNK))
    received = np.zeros((pieces if back else 1, kept, 2 * back, 2, kept))
    edges = [n // 4 * piece // pieces for piece in range(pieces + 1)]

    def work(first: int, last: int) -> None:
        for piece in range(first, last):
            heard = received[piece if back else 0]
            for start in range(edges[piece], edges[piece + 1], _CHUNK):
                some = slice(start, min(start + _CHUNK, edges[piece + 1]))
                lengths = targets.lengths[some]
                between = radii(lengths.min(axis=1), lengths.max(axis=1), rest)
                softer = np.exp(-(grids.soft**2) / (lengths + np.hypot(lengths, grids.soft) + 1e-300))
                parts = shares(lengths, between.shape[1]) * softer[:, None]
                angles, radius = _lines(np.repeat(targets.angles[some], between.shape[1]), between.ravel())
                told = np.zeros((len(angles), 2 * back, kept), dtype=np.complex128)
                if back:
                    told[: between.size].reshape(*between.shape, 2 * back, kept)[:] = fft.rfft(
                        parts[:, :, None] * sent[some, None]
                    )[..., :kept]
                found = np.empty((len(angles), 2 * count, kept), dtype=np.complex128)
                ring_sums(2 * count, 2 * back)(
                    angles, radius, theta, modes, reach, _pairs(found), _pairs(told), heard
                )
                sums = fft.irfft(
                    found[: between.size].reshape(*between.shape, 2 * count, kept), n=n, norm="forward"
                )
                sums *= parts[:, :, None]
                transformed = fft.rfft(sums.sum(axis=1))
                along[some], along[::-1][some] = transformed[:, :count], transformed[:, count:]

    over_rows(work, pieces, cost=1e6 * pieces)
    both = received.sum(axis=0)
    heard = both[:, :back] + both[:, back:, :, ::-1]
    return along, fft.irfft((heard[:, :, 0] + 1j * heard[:, :, 1]).T, n=2 * kept, norm="forward")


def largest_sums(targets: Targets, sizes: np.ndarray, grids: Plan) -> tuple[float, float]:
    """The largest sum of e^{<z, k> - |z|} |w| over the nodes of the keys at any target, and of |z| times it."""
    n, kept = grids.coarse_queries, len(sizes)
    theta, modes, reach = _thetas(kept), _modes(sizes[:, None]), depth(float(sizes.sum()), grids)
    angles, least = _lines(targets.angles[: n // 4], targets.lengths[: n // 4].min(axis=1))
    found, nobody = np.empty((len(angles), 2, kept), dtype=np.complex128), np.empty((kept, 0, 2, kept))

    def work(first: int, last: int) -> None:
        some, told = slice(first, last), np.empty((last - first, 0, kept, 2))
        ring_sums(2, 0)(angles[some], least[some], theta, modes, reach, _pairs(found[some]), told, nobody)

    over_rows(work, len(angles), cost=1e4 * n, quantum=BLOCK)
    sums = fft.irfft(found[: n // 4], n=n, norm="forward").max(axis=(1, 2))
    return float(sums.max()), float((sums * targets.lengths[: n // 4].max(axis=1)).max())


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


def _lines(angles: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Angles and lengths of lines of targets, the last ones repeated to a multiple of `BLOCK`."""
    wanting = -len(angles) % BLOCK
    return np.pad(angles, (0, wanting), "edge"), np.pad(lengths, (0, wanting), "edge")


def _pairs(numbers: np.ndarray) -> np.ndarray:
    """(..., 2): complex numbers (...) as real ones."""
    return numbers.view(np.float64).reshape(*numbers.shape, 2)


def _modes(columns: np.ndarray) -> np.ndarray:
    """(M, 2c, 2, rings): real and imaginary parts of the modes below N/2 of weights (rings, c, N) along rings,
    beside those of the ring on the other side of the equator.

    Rings a and -a meet b and -b by the same numbers: half of the targets, with twice the columns, are all of them.
    """
    rings, count, _ = columns.shape
    modes = fft.rfft(columns.transpose(2, 1, 0), axis=0)[:rings]
    out = np.empty((rings, 2 * count, 2, rings))
    out[:, :count, 0], out[:, :count, 1] = modes.real, modes.imag
    out[:, count:] = out[:, :count, :, ::-1]
    return out
