"""Sums over the nodes of one (theta, phi) grid at those of another, without what is too far to count.

Sources are rings of nodes, each with a few columns of weights of any sign, the last of which are their sizes:
for the keys themselves (w k, w, |w|). `attend_rings`: targets r y with y on the same rings; then the score of
two nodes depends on their rings and on the difference of their longitudes only, and a Fourier transform along
the rings diagonalises it. `node_attention`: any targets z; the nodes of a ring with <z, k> >= h - `depth` form
a window around the longitude of z, and a few neighbouring targets share the union of their windows, which is
collected once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit
from scipy import fft

from metastable.attention.direct import with_item
from metastable.attention.exp2 import LOG2_E, NO_REASSOCIATION, REDUCTION, exp2, wide

_GROUP, BAND = 32, 6
"""Neighbouring targets that share one collection of nodes, and rings that they should be taken from."""
NOBODY = np.empty((0, 4))
"""What is sent where nothing goes back."""
_BLOCK = 256
"""Nodes that all targets of a group look at before the next ones: 16 KB with the five columns of the keys, half of
a first-level cache."""


def ring_nodes(theta: np.ndarray, counts: np.ndarray, most: int) -> np.ndarray:
    """(rings, 3, most): unit vectors at longitudes 2 pi b/count, b < most; those with b < count are the nodes."""
    phi = np.arange(most) * (2.0 * math.pi / counts[:, None])
    high = np.sin(theta)[:, None]
    return np.stack(
        (high * np.cos(phi), high * np.sin(phi), np.repeat(np.cos(theta)[:, None], most, axis=1)), axis=1
    )


def with_sizes(weights: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Columns of (rings, c, N) weights of nodes: (w k, w, |w|) for c = 1, that of the masses; else (w, |w|)."""
    sizes = np.sqrt(np.square(weights).sum(axis=1, keepdims=True))
    return np.concatenate((weights * nodes, weights, sizes) if weights.shape[1] == 1 else (weights, sizes), axis=1)


def attend_rings(r: float, columns: np.ndarray, depth: float) -> tuple[np.ndarray, float]:
    """sum_b w_b e^{<z, k_b> - r} of all columns (rings, c, N) at the targets z = r k_a for all nodes.

    Rings lie at (a + 1/2) pi/rings. Returns (rings, c - 1, N/2 + 1): the sums of all columns but the last,
    transformed along the rings; and the largest sum of the last.
    """
    rings, _, count = columns.shape
    theta = (np.arange(rings) + 0.5) * (math.pi / rings)
    phi = np.arange(count // 2 + 1) * (2.0 * math.pi / count)
    high = np.sin(theta)
    modes = fft.rfft(columns)
    sums = np.zeros_like(modes)
    radius = math.acos(max(1.0 - depth / r, -1.0)) if r > 0.0 else math.pi
    across = 2.0 * r * np.sin(0.5 * phi) ** 2
    for a in range((rings + 1) // 2):
        # The kernel of rings (a, b) is that of (b, a) and of both mirrored at the equator.
        b = np.arange(a, min(rings - 1 - a, a + int(radius / math.pi * rings) + 1) + 1)
        lift = 2.0 * r * np.sin(0.5 * (theta[b] - theta[a])) ** 2
        kernel = np.exp(-lift[:, None] - (high[a] * high[b])[:, None] * across)
        _convolve(a, fft.dct(kernel, type=1, overwrite_x=True), modes, sums)
    return sums[:, :-1], float(fft.irfft(sums[:, -1], n=count).max())


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _convolve(a: int, kernel: Any, modes: Any, sums: Any) -> None:
    """Adds what rings a and b = a, a + 1, ... (and their mirror images) send to each other."""
    last = len(modes) - 1
    for i in range(len(kernel)):
        b = a + i
        for reflected in range(1 if a + b == last else 2):  # at the equator
            one, two = (last - a, last - b) if reflected else (a, b)
            for swapped in range(1 if a == b else 2):
                source, target = (one, two) if swapped else (two, one)
                for c in range(modes.shape[1]):
                    for m in range(kernel.shape[1]):
                        sums[target, c, m] += kernel[i, m] * modes[source, c, m]


@njit(cache=True, nogil=True, fastmath=NO_REASSOCIATION, error_model="numpy")
def _windows(
    z: Any, theta: Any, high: Any, low: Any, soft: float, depth: float, origin: float, low_angle: Any,
    high_angle: Any,
) -> None:  # fmt: skip
    """Widens the windows of all rings, in longitude relative to the origin, by that of one target."""
    across = math.sqrt(z[0] * z[0] + z[1] * z[1])
    size = math.sqrt(across * across + z[2] * z[2])
    top = math.sqrt(size * size + soft * soft)
    latitude = math.atan2(across, z[2])
    radius = math.acos(min(max((top - depth) / size, -1.0), 1.0)) if size > 0.0 else math.pi
    turn = math.atan2(z[1], z[0]) - origin
    turn -= 2.0 * math.pi * math.floor(turn / (2.0 * math.pi) + 0.5)
    z2, inverse = z[2], 1.0 / max(across, 1e-300)
    for ring in range(np.searchsorted(theta, latitude - radius), np.searchsorted(theta, latitude + radius)):
        # 1 - cos of half the window, and arccos(1 - y) <= sqrt(2y) (1 + y/12 + .0275 y^2) for y <= 1.
        y = max((depth - top + z2 * low[ring]) * inverse / high[ring] + 1.0, 0.0)
        half = math.sqrt(2.0 * y) * (1.0 + y * (1.0 / 12.0 + 0.0275 * y)) if y <= 1.0 else math.pi
        low_angle[ring] = min(low_angle[ring], turn - half)
        high_angle[ring] = max(high_angle[ring], turn + half)


@njit(cache=True, nogil=True)
def _run(origin: float, low_angle: float, high_angle: float, count: int) -> tuple[int, int]:
    """The first node of a window on a ring of so many nodes, and how many there are, once around at most."""
    step = 2.0 * math.pi / count
    start = math.floor((origin + low_angle) / step)
    return start % count, min(math.ceil((origin + high_angle) / step) - start + 1, count)


@njit(cache=True, nogil=True)
def _collect(
    theta: Any, counts: Any, nodes: Any, columns: Any, origin: float, low_angle: Any, high_angle: Any, seen: Any
) -> int:  # fmt: skip
    """Fills (3 + c, ...) nodes and columns of the windows; returns how many."""
    points = 0
    for ring in range(len(theta)):
        if low_angle[ring] > high_angle[ring]:
            continue
        place, left = _run(origin, low_angle[ring], high_angle[ring], counts[ring])
        while left > 0:
            length = min(left, counts[ring] - place)
            for c in range(3):
                for i in range(length):
                    seen[c, points + i] = nodes[ring, c, place + i]
            for c in range(columns.shape[1]):
                for i in range(length):
                    seen[3 + c, points + i] = columns[ring, c, place + i]
            points += length
            left -= length
            place = 0
    return points


@njit(cache=True, nogil=True)
def _hand_back(counts: Any, origin: float, low_angle: Any, high_angle: Any, sums: Any, back: Any) -> None:
    """Adds what the nodes of the windows were sent, in the order of `_collect`, to (rings, most) of all nodes."""
    points = 0
    for ring in range(len(counts)):
        if low_angle[ring] > high_angle[ring]:
            continue
        place, left = _run(origin, low_angle[ring], high_angle[ring], counts[ring])
        for i in range(left):
            back[ring, (place + i) % counts[ring]] += sums[points + i]
        points += left


@cache
def node_attention(count: int, back: bool = False) -> Callable[..., None]:
    """Compiled sums for so many columns; back: with those at the nodes of what every target sends."""
    zeros = (0.0,) * count

    @njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
    def attend_nodes(
        targets: Any, theta: Any, counts: Any, nodes: Any, columns: Any, soft: float, depth: float, out: Any,
        sent: Any, received: Any,
    ) -> None:  # fmt: skip
        """out[t] = sum_b w_b e^{<z_t, k_b> - h} of all columns over nodes k_b near z_t, h = sqrt(|z_t|^2 + soft^2).

        theta (rings,) increasing; counts (rings,) nodes per ring, the first ones of nodes (rings, 3, most) and
        columns (rings, c, most); targets (n, 3), neighbours near each other; out (n, c). And back, with (g, s) of
        sent (n, 4): received[b] += sum_t (<g_t, k_b> - s_t) e^{<z_t, k_b> - h}, (rings, most).
        """
        wide()
        seen = np.empty((3 + count, counts.sum()))
        told = np.empty(seen.shape[1] if back else 0)
        low_angle, high_angle = np.empty(len(theta)), np.empty(len(theta))
        high, low = np.sin(theta), np.cos(theta)
        for group in range(0, len(targets), _GROUP):
            end = min(group + _GROUP, len(targets))
            origin = math.atan2(targets[group, 1], targets[group, 0])
            low_angle[:], high_angle[:] = np.inf, -np.inf
            for t in range(group, end):
                _windows(targets[t], theta, high, low, soft, depth, origin, low_angle, high_angle)
            points = _collect(theta, counts, nodes, columns, origin, low_angle, high_angle, seen)
            out[group:end] = 0.0
            if back:
                told[:points] = 0.0
            for first in range(0, points, _BLOCK):
                length = min(_BLOCK, points - first)
                part = seen[:, first : first + length]
                for t in range(group, end):
                    z0, z1, z2 = targets[t, 0], targets[t, 1], targets[t, 2]
                    shift = -LOG2_E * math.sqrt(z0 * z0 + z1 * z1 + z2 * z2 + soft * soft)
                    z0, z1, z2 = z0 * LOG2_E, z1 * LOG2_E, z2 * LOG2_E
                    sums = zeros
                    g0, g1, g2, s0 = 0.0, 0.0, 0.0, 0.0
                    if back:
                        g0, g1, g2, s0 = sent[t, 0], sent[t, 1], sent[t, 2], sent[t, 3]
                    hears = told[first : first + length]
                    for a in range(length):
                        s = shift + z0 * part[0, a] + z1 * part[1, a] + z2 * part[2, a]
                        e = exp2(s if s > -1000.0 else -1000.0)
                        for c in range(count):
                            sums = with_item(sums, c, sums[c] + e * part[3 + c, a])
                        if back:
                            hears[a] += e * (g0 * part[0, a] + g1 * part[1, a] + g2 * part[2, a] - s0)
                    for c in range(count):
                        out[t, c] += sums[c]
            if back:
                _hand_back(counts, origin, low_angle, high_angle, told, received)

    return attend_nodes
