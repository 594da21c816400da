"""Bounds of the error of Chebyshev interpolation of softmax weights on the circle, and the orders they ask for.

All functions that are interpolated are entire, so p Chebyshev nodes leave an error of at most
    4 G rho^(1-p) / (rho - 1) for every rho > 1,    G = sum_c share_c e^{range_c + growth_c}:
the range of the exponent over the interval (errors are relative to the least value, not to the largest) and its
growth from there to the ellipse of Bernstein with parameter rho. Orders and level are the least ones for which the
best of several rho meets the tolerance.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.exp2 import LOG2_E, REDUCTION, exp2

_ELLIPSES = (1.5, 2.0, 2.7, 3.6, 4.8, 6.5, 9.0, 13.0, 20.0, 40.0, 100.0, 1e3, 1e5, 1e9, 1e14)
"""Parameters rho that are tried. Any is a valid bound; neighbours are near enough that the best of them asks for at
most one order more than the best of all, and the last ones are for weights that hardly vary."""
WIDER = 1.08
"""Cells of one level differ in width: the widest of any finer level, over the widest of the coarsest one halved as
often, is at most 1.079."""


@njit(nogil=True, cache=True, error_model="numpy")
def steepest_key_error(h: float, size: float, p: int) -> float:
    """Error of the proxies of a cell of half width h at the steepest score, |z| = size; see `key_level`."""
    error = np.inf
    for rho in _ELLIPSES:
        a, b = 0.5 * (rho + 1.0 / rho), 0.5 * (rho - 1.0 / rho)
        if b * h > 1.0:
            break
        growth = size * (h * (a + 1.0) + math.cosh(h * b) - 1.0) + h * b - (p - 1) * math.log(rho)
        error = min(error, 4.0 * math.exp(min(growth, 50.0)) / (rho - 1.0))
    return error


@njit(nogil=True, cache=True, fastmath=REDUCTION, error_model="numpy")
def _sum_of_exponentials(constant: Any, slope: Any, t: float, bend: Any, curve: float, plus: float) -> float:
    """sum_i e^{constant_i + slope_i t + bend_i curve + plus}, every term held to at most e^300."""
    total = 0.0
    for i in range(constant.shape[0]):
        e = (constant[i] + slope[i] * t + bend[i] * curve + plus) * LOG2_E
        e = e if e > -1000.0 else -1000.0
        total += exp2(e if e < 432.0 else 432.0)
    return total


@njit(nogil=True, cache=True, error_model="numpy")
def key_level(keys: Any, patches: Any, patch: int, cells: Any, log_share: Any, rtol: float) -> tuple[int, float]:
    """Least level at which the proxies of the cells that matter are accurate enough, and their error there.

    Along theta the exponent |z| cos(theta - phi) grows by |z| (slope h (a - 1) + cosh(h b) - 1) to the ellipse with
    half axes a, b, and the value k(theta) by h b. The shares are bounds and may sum to more than one: then the
    error at the steepest score is the better bound.
    """
    centre, half, p = keys.cells.centre, keys.cells.half, keys.nodes.shape[0]
    x, y = patches.direction[patch, 0], patches.direction[patch, 1]
    spread, high, level = patches.spread[patch], patches.high[patch], patches.level
    error = 0.0
    widest = 0.0
    slope = np.empty(cells.shape[0])
    for i in range(cells.shape[0]):
        c = cells[i]
        widest = max(widest, half[c])
        slope[i] = high * min(abs(centre[c, 1] * x - centre[c, 0] * y) + half[c] + spread, 1.0)
    for fine in range(level, keys.finest + 1):
        h = WIDER * widest / 2 ** (fine - level)
        error = steepest_key_error(h, high, p)
        for rho in _ELLIPSES:
            a, b = 0.5 * (rho + 1.0 / rho), 0.5 * (rho - 1.0 / rho)
            if b * h > 1.0:
                break
            bend = high * (math.cosh(h * b) - 1.0) + h * b - (p - 1) * math.log(rho)
            total = _sum_of_exponentials(log_share, slope, h * (a + 1.0), slope, 0.0, bend)
            error = min(error, 4.0 * total / (rho - 1.0))
        if error <= 0.2 * rtol:
            return fine, error
    return keys.finest, error


@njit(nogil=True, cache=True, error_model="numpy")
def least_order(log_share: Any, ranges: Any, bends: Any, spread: float, rtol: float) -> int:
    """Least order whose interpolation error meets rtol / 10.

    The exponent of cell i grows by ranges_i (a - 1) + bends_i (cosh(spread b) - 1) to the ellipse (a, b); log_share
    contains its range over the whole patch. Four for the series, ten for the tenth, 2.5 for the other coordinate.
    """
    least = 1e9
    for rho in _ELLIPSES:
        a, b = 0.5 * (rho + 1.0 / rho), 0.5 * (rho - 1.0 / rho)
        if b * spread > 1.0:
            break
        total = _sum_of_exponentials(log_share, ranges, a - 1.0, bends, math.cosh(spread * b) - 1.0, 0.0)
        least = min(least, 1.0 + math.log(100.0 * total / ((rho - 1.0) * rtol)) / math.log(rho))
    return max(math.ceil(least), 1)
