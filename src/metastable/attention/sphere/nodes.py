"""Attention of the nodes of one (theta, phi) grid to those of another, without what is too far to count.

Sources are rings of N nodes with weights of any sign. `attend_rings`: targets r y with y on the same rings; then
the score of two nodes depends on their rings and on the difference of their longitudes only, and a Fourier
transform along the rings diagonalises it. `attend_nodes`: any targets z; the nodes of a ring with <z, k> >= h -
`depth` form a window around the longitude of z, and a few neighbouring targets share the union of their windows,
which is collected once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from scipy import fft

from metastable.attention.exp2 import LOG2_E, REDUCTION, exp2

_GROUP = 8
"""Neighbouring targets that share one collection of nodes."""


def attend_rings(r: float, weights: np.ndarray, depth: float) -> tuple[np.ndarray, float]:
    """As `attend_nodes`, h = r, at the targets r k_a for all nodes k_a of rings at (a + 1/2) pi/rings.

    Returns (rings, 4, N/2 + 1): the sums, transformed along the rings; and the largest sum_b |w_b| e^{...}.
    """
    rings, count = weights.shape
    theta = (np.arange(rings) + 0.5) * (math.pi / rings)
    phi = np.arange(count) * (2.0 * math.pi / count)
    high, low = np.sin(theta), np.cos(theta)
    fields = np.empty((rings, 5, count))
    fields[:, 0], fields[:, 1] = weights * np.outer(high, np.cos(phi)), weights * np.outer(high, np.sin(phi))
    fields[:, 2], fields[:, 3], fields[:, 4] = weights * low[:, None], weights, np.abs(weights)
    modes = fft.rfft(fields)
    sums = np.zeros_like(modes)
    radius = math.acos(max(1.0 - depth / r, -1.0)) if r > 0.0 else math.pi
    across = 2.0 * r * np.sin(0.5 * phi[: count // 2 + 1]) ** 2
    for a in range((rings + 1) // 2):
        # The kernel of rings (a, b) is that of (b, a) and of both mirrored at the equator.
        b = np.arange(a, min(rings - 1 - a, a + int(radius / math.pi * rings) + 1) + 1)
        lift = 2.0 * r * np.sin(0.5 * (theta[b] - theta[a])) ** 2
        kernel = np.exp(-lift[:, None] - (high[a] * high[b])[:, None] * across)
        _convolve(a, fft.dct(kernel, type=1, overwrite_x=True), modes, sums)
    return sums[:, :4], float(fft.irfft(sums[:, 4], n=count).max())


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


@njit(cache=True, nogil=True)
def attend_nodes(
    targets: Any, theta: Any, counts: Any, weights: Any, soft: float, depth: float, out: Any
) -> None:  # fmt: skip
    """out[t] = sum_b w_b e^{<z_t, k_b> - h} (k_b, 1), and sum_b |w_b| e^{...}, over nodes k_b near z_t.

    h = sqrt(|z_t|^2 + soft^2). theta (rings,) increasing; counts (rings,) nodes per ring, at longitudes
    2 pi b/count, with the first weights of each row (rings, most); targets (n, 3), neighbours near each other;
    out (n, 5).
    """
    x, y = np.empty(weights.shape), np.empty(weights.shape)
    for ring in range(len(theta)):
        for b in range(counts[ring]):
            longitude = 2.0 * math.pi * b / counts[ring]
            x[ring, b] = math.sin(theta[ring]) * math.cos(longitude)
            y[ring, b] = math.sin(theta[ring]) * math.sin(longitude)
    seen = np.empty((4, weights.size))
    low_angle, high_angle = np.empty(len(theta)), np.empty(len(theta))
    for group in range(0, len(targets), _GROUP):
        end = min(group + _GROUP, len(targets))
        origin = math.atan2(targets[group, 1], targets[group, 0])
        low_angle[:], high_angle[:] = np.inf, -np.inf
        for t in range(group, end):
            _windows(targets[t], theta, soft, depth, origin, low_angle, high_angle)
        points = 0
        for ring in range(len(theta)):
            if low_angle[ring] > high_angle[ring]:
                continue
            count = counts[ring]
            step = 2.0 * math.pi / count
            low = math.cos(theta[ring])
            start = math.floor((origin + low_angle[ring]) / step)
            length = min(math.ceil((origin + high_angle[ring]) / step) - start + 1, count)
            place = start % count
            for _ in range(length):
                seen[0, points], seen[1, points] = x[ring, place], y[ring, place]
                seen[2, points], seen[3, points] = low, weights[ring, place]
                points += 1
                place = place + 1 if place + 1 < count else 0
        for t in range(group, end):
            z0, z1, z2 = targets[t, 0], targets[t, 1], targets[t, 2]
            out[t] = _sums(seen, points, z0, z1, z2, math.sqrt(z0 * z0 + z1 * z1 + z2 * z2 + soft * soft))


@njit(cache=True, nogil=True)
def _windows(z: Any, theta: Any, soft: float, depth: float, origin: float, low_angle: Any, high_angle: Any) -> None:
    """Widens the windows of all rings, in longitude relative to the origin, by that of one target."""
    across = math.sqrt(z[0] * z[0] + z[1] * z[1])
    size = math.sqrt(across * across + z[2] * z[2])
    top = math.sqrt(size * size + soft * soft)
    latitude = math.atan2(across, z[2])
    radius = math.acos(min(max((top - depth) / size, -1.0), 1.0)) if size > 0.0 else math.pi
    turn = math.atan2(z[1], z[0]) - origin
    turn -= 2.0 * math.pi * math.floor(turn / (2.0 * math.pi) + 0.5)
    for ring in range(np.searchsorted(theta, latitude - radius), np.searchsorted(theta, latitude + radius)):
        lift, swing = z[2] * math.cos(theta[ring]) - top, across * math.sin(theta[ring])
        half = math.pi
        if lift - swing < -depth:
            half = math.acos(max(-1.0, min(1.0, (-depth - lift) / swing)))
        low_angle[ring] = min(low_angle[ring], turn - half)
        high_angle[ring] = max(high_angle[ring], turn + half)


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _sums(
    seen: Any, points: int, z0: float, z1: float, z2: float, size: float
) -> tuple[float, float, float, float, float]:  # fmt: skip
    s0, s1, s2, s3, s4 = 0.0, 0.0, 0.0, 0.0, 0.0
    z0, z1, z2, shift = z0 * LOG2_E, z1 * LOG2_E, z2 * LOG2_E, -size * LOG2_E
    for a in range(points):
        t = shift + z0 * seen[0, a] + z1 * seen[1, a] + z2 * seen[2, a]
        e = exp2(t if t > -1000.0 else -1000.0)
        w = e * seen[3, a]
        s0 += w * seen[0, a]
        s1 += w * seen[1, a]
        s2 += w * seen[2, a]
        s3 += w
        s4 += abs(w)
    return s0, s1, s2, s3, s4
