"""Sums over rings of nodes at rings of targets, by Fourier transforms along the rings.

For a target z = r (sin a cos f, sin a sin f, cos a) and a node k at (theta, phi) of the unit sphere
    e^{<z, k> - r} = e^{-2 r sin^2((a - theta)/2)} sum_m e^{-x} I_m(x) e^{im(f - phi)},   x = r sin(a) sin(theta),
so that rings with the same poles meet mode by mode, at the cost of one product each. I_{m-1} = (2m/x) I_m + I_{m+1}
is followed from large m down, where a wrong start is forgotten, and 1 = e^{-x} (I_0 + 2 I_1 + 2 I_2 + ...) scales
them. e^{-x} I_m(x) is the chance that two Poisson numbers of mean x/2 differ by m, so that all beyond |m| = M add
up to at most 2 e^{-M^2/(2x + 2M/3)} by Bernstein's inequality.

Eight lines of targets are in the places of a vector, and every number of theirs meets eight columns of weights.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.exp2 import LOG2_E, REDUCTION, exp2, wide
from metastable.attention.lanes import LANES
from metastable.attention.sphere.mode_products import downwards, gather, give_back

_FORGOTTEN = 41.0
"""-log of the size of I_m(x)/e^x from which recurrences start: 1e-18."""
_SMALL_X, _FEW, _LEAST_X = 1e-3, 6, 1e-40
"""x below which I_6(x) is less than 1e-18 too, and x that is taken for zero: I_0/I_6 is still a number."""
_FARTHEST = 600.0
"""Exponents above which e^{-x} is taken for zero, before products become numbers that processors are slow with."""
_downwards, _downwards_twice = downwards(1), downwards(2)


@njit(cache=True, nogil=True, error_model="numpy")
def ring_sums(
    angles: Any, lengths: Any, theta: Any, modes: Any, depth: float, out: Any, sent: Any, received: Any
) -> None:  # fmt: skip
    """out = sum_b e^{<z, k_b> - |z|} w_b at lines of targets, over rings theta of nodes, by modes along rings.

    angles and lengths (lines,) of targets, a multiple of eight; modes (M, groups, rings, 8) of w, real and
    imaginary parts as columns; out (lines, M, groups, 8). e^{<z, k> - |z|} may be wrong by e^{-depth}. And back:
    received (M, back, rings, 8) grows by the sums of what targets send, (lines, M, back, 8).
    """
    wide()
    kept, groups, rings = modes.shape[0], modes.shape[1], len(theta)
    back = received.shape[1]
    longest = 0.0
    for r in lengths:
        longest = max(longest, r)
    flat, flat_modes, flat_out = np.empty((_start(longest) + 2) * rings * LANES), modes.reshape(-1), out.reshape(-1)
    flat_sent, flat_received = sent.reshape(-1), received.reshape(-1)
    inverse, start = np.empty((rings, LANES)), np.empty((rings, LANES))
    scale, total = np.empty((rings, LANES)), np.empty((rings, LANES))
    bounds = np.empty((rings, 3), dtype=np.int64)
    for first in range(0, len(angles), LANES):
        b0, b1 = rings, 0
        for i in range(first, first + LANES):
            r = lengths[i]
            radius = math.acos(max(1.0 - depth / r, -1.0)) if r > 0.0 else math.pi
            b0 = min(b0, np.searchsorted(theta, angles[i] - radius))
            b1 = max(b1, np.searchsorted(theta, angles[i] + radius))
        width = max(b1 - b0, 0)
        last = first + LANES
        _prepare(angles[first:last], lengths[first:last], theta[b0:b1], depth, inverse, start, scale, bounds)
        for b in range(0, width - 1, 2):
            low, top = min(bounds[b, 0], bounds[b + 1, 0]), max(bounds[b, 1], bounds[b + 1, 1])
            _downwards_twice(inverse, start, low, top, b, width, flat, total)
        if width % 2:
            b = width - 1
            _downwards(inverse, start, bounds[b, 0], bounds[b, 1], b, width, flat, total)
        top = 0
        for b in range(width):
            for i in range(LANES):
                scale[b, i] /= total[b, i]
            top = max(top, min(bounds[b, 2], kept - 1))
        low, high = 0, width
        for m in range(top + 1):
            # x grows towards the equator: the rings that have a mode are next to each other.
            while low < high and bounds[low, 2] < m:
                low += 1
            while high > low and bounds[high - 1, 2] < m:
                high -= 1
            row = m * width
            for b in range(low, high):
                if m <= bounds[b, 2]:
                    for i in range(LANES):
                        flat[(row + b) * LANES + i] *= scale[b, i]
                else:
                    for i in range(LANES):
                        flat[(row + b) * LANES + i] = 0.0
            for g in range(groups):
                gather(
                    flat, row + low, high - low, flat_modes, (m * groups + g) * rings + b0 + low,
                    flat_out, (first * kept + m) * groups + g, kept * groups,
                )  # fmt: skip
            for g in range(back):
                give_back(
                    flat, row + low, high - low, flat_received, (m * back + g) * rings + b0 + low,
                    flat_sent, (first * kept + m) * back + g, kept * back,
                )  # fmt: skip
        out[first:last, top + 1 :] = 0.0


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _prepare(
    angles: Any, lengths: Any, theta: Any, depth: float, inverse: Any, start: Any, scale: Any, bounds: Any
) -> None:  # fmt: skip
    """Of eight lines and the rings that they see: 2/x, the m to start from, e^{-2 r sin^2((a - theta)/2)}; and for
    every ring the least and the largest of these m and the largest that any line needs.
    """
    wide()
    across, doubled, high, low = np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES)
    for i in range(LANES):
        across[i], doubled[i] = lengths[i] * math.sin(angles[i]), 2.0 * lengths[i]
        high[i], low[i] = math.sin(0.5 * angles[i]), math.cos(0.5 * angles[i])
    for b in range(len(theta)):
        ring, sine, cosine = math.sin(theta[b]), math.sin(0.5 * theta[b]), math.cos(0.5 * theta[b])
        least, largest, needed = 1e300, 0.0, 0.0
        for i in range(LANES):
            x, near = across[i] * ring, high[i] * cosine - low[i] * sine
            far = doubled[i] * near * near
            inverse[b, i] = 2.0 / max(x, _LEAST_X)
            scale[b, i] = exp2(-LOG2_E * far) if far < _FARTHEST else 0.0
            m = math.sqrt(_FORGOTTEN * (_FORGOTTEN / 9.0 + 2.0 * x)) + (_FORGOTTEN / 3.0 + 1.0)
            m = np.floor(m) if x > _SMALL_X else _FEW
            start[b, i] = m
            least, largest = min(least, m), max(largest, m)
            left = max(depth + math.log(2.0) - far, 0.0)
            needed = max(needed, min(left / 3.0 + math.sqrt(left * (left / 9.0 + 2.0 * x)), m))
        bounds[b, 0], bounds[b, 1], bounds[b, 2] = int(least), int(largest), int(needed)


@njit(cache=True, nogil=True)
def _start(x: float) -> int:
    """The largest m that recurrences start from for arguments up to x."""
    return int(_FORGOTTEN / 3.0 + math.sqrt(_FORGOTTEN * (_FORGOTTEN / 9.0 + 2.0 * x))) + 2
