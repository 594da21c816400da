"""Where the nodes of the queries lie on their surface, and what they and the nodes of the keys give each other
(`sphere.grid`, `sphere.adjoint`).

Both are rings around the same poles, those of the keys on the unit sphere; along a ring of the queries the length
of z varies as much as the two axes across the poles differ, and sums are interpolated between a few lengths
(`sphere.nodes`), at the cost of a tenth of `Plan.pruned`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy import fft

from metastable.attention.exp2 import REDUCTION, wide
from metastable.attention.lanes import LANES
from metastable.attention.operands import Operands
from metastable.attention.sphere.kept import kept_array
from metastable.attention.sphere.nodes import radii, ring_nodes, shares
from metastable.attention.sphere.plan import Plan, Surface, plan, surface
from metastable.attention.sphere.ring_sums import ring_sums
from metastable.attention.sphere.window import lebesgue
from metastable.threads import over_rows

PIECES = 4
"""Ranges of rings whose sums at the keys are kept apart until the end, so that the digits do not depend on the
threads."""
_CHUNK = 8
"""Rings, on either side of the equator, that are summed before they are transformed: a megabyte or some."""


class Targets(NamedTuple):
    """Nodes of the chart of the queries: N/2 rings of N nodes."""

    angles: np.ndarray
    """(N/2,): angle between z and the poles."""
    lengths: np.ndarray
    """(N/2, N): |z|; (N/2, 1) if they are all the same."""


class Lines(NamedTuple):
    """Some rings on one side of the equator as lines of targets of one length each, a multiple of eight."""

    rings: slice
    angles: np.ndarray
    lengths: np.ndarray
    first: np.ndarray
    """Where the lines of each ring begin, and where the last ones end."""
    shares: np.ndarray
    """(lines, N): what a sum of a line counts for those at the nodes of its ring, e^{r - h} included; (lines, 1) if
    that is the same for all."""


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


def lines_of(targets: Targets, weight: float, grids: Plan) -> list[Lines]:
    """Lines for all targets on one side of the equator, for weights whose sizes sum up to `weight` or less."""
    quarter, rest, found = grids.coarse_queries // 4, _left_out(weight, grids), []
    for begin in range(0, quarter, _CHUNK):
        some = slice(begin, min(begin + _CHUNK, quarter))
        lengths = targets.lengths[some]
        between = radii(lengths.min(axis=1), lengths.max(axis=1), rest)
        softer = np.exp(-(grids.soft**2) / (lengths + np.hypot(lengths, grids.soft) + 1e-300))
        parts = shares(lengths, between.shape[1]) * softer[:, None]
        angles, radius = _lines(np.repeat(targets.angles[some], between.shape[1]), between.ravel())
        first = np.arange(len(lengths) + 1) * between.shape[1]
        found.append(Lines(some, angles, radius, first, parts.reshape(between.size, -1)))
    return found


def laid_out(operands: Operands, weight: float, *asked: Any) -> tuple[np.ndarray, Targets, list[Lines]]:
    """Of the `plan` that is asked for of some operands: the nodes of the keys (rings, 3, N), the targets, and lines
    for them.
    """
    where, grids = operands.once(surface), operands.once(plan, *asked)
    assert where is not None and grids is not None
    targets = targets_of(where, grids)
    nodes = where.turned_back(ring_nodes(grids.coarse_keys // 2))
    return nodes, targets, lines_of(targets, weight, grids)


def meet(
    lines: list[Lines], columns: np.ndarray, sent: np.ndarray, weight: float, grids: Plan
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of e^{<z, k> - h} w over the nodes k of the keys, of weights (rings, c, N), at all targets z; and back.

    Returns (rings, N/2 + 1, c): the former, transformed along the rings of targets; and (rings, s, N): sums over
    targets of what they send, (rings, s, N), at the nodes of the keys. The sizes of either sum up to `weight`, for
    which there are `lines_of` targets.
    """
    n, kept, count, back = grids.coarse_queries, len(columns), columns.shape[1], sent.shape[1]
    theta, modes, sent = _thetas(kept), _modes(columns), np.concatenate((sent, sent[::-1]), axis=1)
    reach = depth(weight, grids)
    along = np.empty((n // 2, n // 2 + 1, count), dtype=np.complex128)
    pieces = PIECES if back else len(lines)
    received = np.zeros((pieces if back else 1, kept, _groups(back), kept, LANES))
    edges = [len(lines) * piece // pieces for piece in range(pieces + 1)]

    def work(first: int, last: int) -> None:
        for piece in range(first, last):
            heard = received[piece if back else 0]
            for part in lines[edges[piece] : edges[piece + 1]]:
                told = np.zeros((len(part.angles), kept, _groups(back), LANES))
                if back:
                    _send(part, sent, told)
                found = kept_array("ring sums", (len(part.angles), kept, _groups(count), LANES))
                ring_sums(part.angles, part.lengths, theta, modes, reach, found, told, heard)
                sums = kept_array("sums of lines", (len(part.first) - 1, n, 2 * count))
                adder(2 * count)(fft.irfft(_complex(found, count), n=n, axis=1, norm="forward"), *part[3:], sums)
                transformed = fft.rfft(sums, axis=1)
                along[part.rings], along[::-1][part.rings] = transformed[..., :count], transformed[..., count:]

    over_rows(work, pieces, cost=1e6 * pieces)
    both = _complex(received.sum(axis=0).transpose(2, 0, 1, 3), back)
    heard = both[..., :back] + both[::-1, :, back:]
    return along, fft.irfft(heard.transpose(0, 2, 1), n=2 * kept, norm="forward")


@cache
def adder(columns: int) -> Callable[..., None]:
    """Compiled sums of lines of so many columns."""

    @njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
    def add_lines(sums: Any, first: Any, shares: Any, out: Any) -> None:
        """out (rings, N, c): sums of lines (lines, N, c) times their shares, added up over the lines of a ring."""
        wide()
        varied = np.uintp(shares.shape[1] > 1)
        for ring in range(len(out)):
            for b in range(np.uintp(out.shape[1])):
                total = out[ring, b]
                for c in range(columns):
                    total[c] = 0.0
                for line in range(np.uintp(first[ring]), np.uintp(first[ring + 1])):
                    share, row = shares[line, b * varied], sums[line, b]
                    for c in range(columns):
                        total[c] += share * row[c]

    return add_lines


def largest_sums(targets: Targets, sizes: np.ndarray, grids: Plan) -> tuple[float, float]:
    """The largest sum of e^{<z, k> - |z|} |w| over the nodes of the keys at any target, and of |z| times it."""
    n, kept = grids.coarse_queries, len(sizes)
    theta, modes, reach = _thetas(kept), _modes(sizes[:, None]), depth(float(sizes.sum()), grids)
    angles, least = _lines(targets.angles[: n // 4], targets.lengths[: n // 4].min(axis=1))
    found = np.empty((len(angles), kept, 1, LANES))
    told, nobody = np.empty((len(angles), kept, 0, LANES)), np.empty((kept, 0, kept, LANES))

    def work(first: int, last: int) -> None:
        some = slice(first, last)
        ring_sums(angles[some], least[some], theta, modes, reach, found[some], told[some], nobody)

    over_rows(work, len(angles), cost=300.0 * n * len(angles), quantum=LANES)
    sums = fft.irfft(_complex(found[: n // 4], 1), n=n, axis=1, norm="forward").max(axis=(1, 2))
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
    """Angles and lengths of lines of targets, the last ones repeated to a multiple of eight."""
    wanting = -len(angles) % LANES
    return np.pad(angles, (0, wanting), "edge"), np.pad(lengths, (0, wanting), "edge")


def _groups(count: int) -> int:
    """How many times eight columns hold so many complex weights for either side of the equator."""
    return -(-4 * count // LANES)


def _complex(columns: np.ndarray, count: int) -> np.ndarray:
    """(..., 2c): complex numbers from groups of eight columns."""
    numbers = np.ascontiguousarray(columns).reshape(*columns.shape[:-2], -1)
    return numbers.view(np.complex128)[..., : 2 * count]


def _modes(columns: np.ndarray) -> np.ndarray:
    """(M, groups, rings, 8): real and imaginary parts of the modes below N/2 of weights (rings, c, N) along rings,
    beside those of the ring on the other side of the equator.

    Rings a and -a meet b and -b by the same numbers: half of the targets, with twice the columns, are all of them.
    """
    rings, count, _ = columns.shape
    out = kept_array("modes", (rings, _groups(count), rings, LANES))
    out[:, -1] = 0.0
    _sort_modes(fft.rfft(columns), out)
    return out


@njit(cache=True, nogil=True)
def _sort_modes(modes: Any, out: Any) -> None:
    """Fills (M, groups, rings, 8) from modes (rings, c, M or more) and their mirror image."""
    rings, count, _ = modes.shape
    for m in range(len(out)):
        for ring in range(rings):
            for c in range(count):
                near, far = modes[ring, c, m], modes[rings - 1 - ring, c, m]
                group, column = divmod(2 * c, LANES)
                out[m, group, ring, column], out[m, group, ring, column + 1] = near.real, near.imag
                group, column = divmod(2 * (c + count), LANES)
                out[m, group, ring, column], out[m, group, ring, column + 1] = far.real, far.imag


def _send(part: Lines, sent: np.ndarray, told: np.ndarray) -> None:
    """Fills (lines, M, groups, 8): transforms along the rings of what the targets of lines send, (rings, 2s, N)."""
    sums, kept = len(part.shares), told.shape[1]
    ring = np.repeat(np.arange(part.rings.start, part.rings.stop), np.diff(part.first))
    modes = fft.rfft(part.shares[:, None] * sent[ring])[..., :kept]
    columns = told[:sums].reshape(sums, kept, -1).view(np.complex128)
    columns[..., : modes.shape[1]] = modes.transpose(0, 2, 1)
