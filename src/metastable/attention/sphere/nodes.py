"""Sums over rings of nodes at rings of targets, by Fourier transforms along the rings.

For a target z = r (sin a cos f, sin a sin f, cos a) and a node k at (theta, phi) of the unit sphere
    e^{<z, k> - r} = e^{-2 r sin^2((a - theta)/2)} sum_m e^{-x} I_m(x) e^{im(f - phi)},   x = r sin(a) sin(theta),
so that rings with the same poles meet mode by mode, at the cost of one product each. The ratios I_m/I_{m-1} =
1/(2m/x + I_{m+1}/I_m) are found from large m down, where a wrong start is forgotten, and 1 = e^{-x} (I_0 + 2 I_1
+ 2 I_2 + ...) scales them. e^{-x} I_m(x) is the chance that two Poisson numbers of mean x/2 differ by m, hence at
most e^{-m^2/(2x + 2m/3)} by Bernstein's inequality.

Along a ring of targets on an ellipsoid r varies between its values r_- and r_+. As a function of log r,
e^{-r(1 - <u, k>)} is analytic and at most one within pi/2 of the real line, and a polynomial that interpolates it
at J Chebyshev nodes errs by at most 4 R^{1-J}/(R - 1), R = s + sqrt(s^2 + 1), s = pi/log(r_+/r_-): the sums are
found for J radii, and every target takes them as its own r tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.direct import with_item
from metastable.attention.exp2 import REDUCTION, wide

BLOCK = 4
"""Lines of targets, of one ring or of neighbours, that share one look at the nodes: sums of two numbers for each
fill eight vectors of registers."""
_FORGOTTEN = 41.0
"""-log of the size of I_m(x)/e^x from which recurrences start: 1e-18."""
_LEAST = 1e-200
"""Terms below which are taken for zero, before products of them become numbers that processors are slow with."""


def ring_nodes(rings: int) -> np.ndarray:
    """(rings, 3, N): unit vectors at theta = (a + 1/2) pi/rings and phi = 2 pi b/N, N = 2 rings."""
    theta = (np.arange(rings)[:, None] + 0.5) * (math.pi / rings)
    phi = np.arange(2 * rings) * (math.pi / rings)
    high, low = np.sin(theta), np.cos(theta)
    return np.stack((high * np.cos(phi), high * np.sin(phi), np.repeat(low, 2 * rings, axis=1)), axis=1)


def with_sizes(weights: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Columns of (rings, c, N) weights of nodes: (w k, w, |w|) for c = 1, that of the masses; else (w, |w|)."""
    sizes = np.sqrt(np.square(weights).sum(axis=1, keepdims=True))
    return np.concatenate((weights * nodes, weights, sizes) if weights.shape[1] == 1 else (weights, sizes), axis=1)


def radii(low: np.ndarray, high: np.ndarray, rest: float) -> np.ndarray:
    """(rings, J): r from which sums at all in [low, high] (rings,) follow with an error below `rest`.

    J is 1 where there is nothing between them.
    """
    widest = float((high / np.maximum(low, 1e-300)).max())
    if widest <= 1.0 + 1e-15:
        return high[:, None]
    s = math.pi / math.log(widest)
    base = s + math.hypot(s, 1.0)
    count = 2 + max(math.ceil(math.log(4.0 / ((base - 1.0) * rest)) / math.log(base)), 0)
    powers = 0.5 * np.cos((np.arange(count) + 0.5) * (math.pi / count))
    return np.sqrt(high * low)[:, None] * (high / low)[:, None] ** powers


def shares(lengths: np.ndarray, count: int) -> np.ndarray:
    """(rings, J, N): the factors of the sums at J `radii` that make the sums at lengths (rings, N)."""
    if count == 1:
        return np.ones((len(lengths), 1, lengths.shape[1]))
    logs = np.log(lengths)
    low, high = logs.min(axis=1, keepdims=True), logs.max(axis=1, keepdims=True)
    place = (2.0 * logs - low - high) / np.maximum(high - low, 1e-300)
    terms = np.empty((count, *lengths.shape))
    terms[0], terms[1] = 1.0, place
    for k in range(2, count):
        terms[k] = 2.0 * place * terms[k - 1] - terms[k - 2]
    terms[0] = 0.5
    angle = np.outer(np.arange(count) + 0.5, np.arange(count)) * (math.pi / count)
    return np.tensordot(np.cos(angle) * (2.0 / count), terms, axes=1).transpose(1, 0, 2)


@cache
def ring_sums(count: int, back: int) -> Callable[..., None]:
    """Compiled sums of so many columns, and of those that go back."""
    zeros = (0.0,) * (2 * BLOCK)

    @njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
    def meet(
        angles: Any, lengths: Any, theta: Any, modes: Any, depth: float, out: Any, sent: Any, received: Any
    ) -> None:  # fmt: skip
        """out = sum_b e^{<z, k_b> - |z|} w_b at lines of targets, over rings theta of nodes, by modes along rings.

        angles and lengths (lines,) of targets, a multiple of `BLOCK`; modes (M, c, 2, rings) of w, real, imaginary;
        out (lines, c, M, 2). Nodes with <z, k> < |z| - depth need not count. And back: received (M, back, 2, rings)
        grows by the sums of what targets send, (lines, back, M, 2).
        """
        wide()
        kept, rings = len(modes), len(theta)
        high = np.sin(theta)
        inverse, ratio, total = np.empty(rings), np.empty(rings), np.empty(rings)
        terms = np.empty((kept, BLOCK, rings))
        for first in range(0, len(angles), BLOCK):
            b0, b1, top = rings, 0, 0
            for i in range(BLOCK):
                r = lengths[first + i]
                radius = math.acos(max(1.0 - depth / r, -1.0)) if r > 0.0 else math.pi
                b0 = min(b0, np.searchsorted(theta, angles[first + i] - radius))
                b1 = max(b1, np.searchsorted(theta, angles[first + i] + radius))
            width = max(b1 - b0, 0)
            for i in range(BLOCK):
                r, angle = lengths[first + i], angles[first + i]
                across, most = r * math.sin(angle), 0.0
                for b in range(width):
                    x = across * high[b0 + b]
                    most = max(most, x)
                    inverse[b] = 2.0 / max(x, 1e-290)
                    ratio[b], total[b] = 0.0, 0.0
                start = 1 + int(_FORGOTTEN / 3.0 + math.sqrt(_FORGOTTEN * (_FORGOTTEN / 9.0 + 2.0 * most)))
                here = min(start, kept - 1)
                for m in range(start, here, -1):
                    for b in range(width):
                        ratio[b] = 1.0 / (m * inverse[b] + ratio[b])
                        total[b] = ratio[b] * (1.0 + total[b])
                for m in range(here, 0, -1):
                    row = terms[m, i]
                    for b in range(width):
                        ratio[b] = 1.0 / (m * inverse[b] + ratio[b])
                        row[b] = ratio[b]
                        total[b] = ratio[b] * (1.0 + total[b])
                for b in range(width):
                    near = math.sin(0.5 * (angle - theta[b0 + b]))
                    terms[0, i, b] = math.exp(-2.0 * r * near * near) / (1.0 + 2.0 * total[b])
                for m in range(1, here + 1):
                    row, before = terms[m, i], terms[m - 1, i]
                    for b in range(width):
                        product = before[b] * row[b]
                        row[b] = product if product > _LEAST else 0.0
                for m in range(top + 1, here + 1):
                    terms[m, :i, :width] = 0.0
                for m in range(here + 1, top + 1):
                    terms[m, i, :width] = 0.0
                top = max(top, here)
            for m in range(top + 1):
                for c in range(count):
                    sums = zeros
                    for b in range(width):
                        real, imaginary = modes[m, c, 0, b0 + b], modes[m, c, 1, b0 + b]
                        for i in range(BLOCK):
                            sums = with_item(sums, 2 * i, sums[2 * i] + terms[m, i, b] * real)
                            sums = with_item(sums, 2 * i + 1, sums[2 * i + 1] + terms[m, i, b] * imaginary)
                    for i in range(BLOCK):
                        out[first + i, c, m, 0] = sums[2 * i]
                        out[first + i, c, m, 1] = sums[2 * i + 1]
                for c in range(back):
                    for part in range(2):
                        row = received[m, c, part, b0 : b0 + width]
                        for b in range(width):
                            grown = row[b]
                            for i in range(BLOCK):
                                grown += terms[m, i, b] * sent[first + i, c, m, part]
                            row[b] = grown
            out[first : first + BLOCK, :, top + 1 :] = 0.0

    return meet
