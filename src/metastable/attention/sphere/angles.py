"""Polar coordinates of many points at once, by loops that LLVM turns into vectors (`sphere.transforms`).

atan2 as libraries have it is one number after the other. Here atan t, 0 <= t <= 1, is atan u or atan u + pi/4, u =
(t - 1)/(t + 1), |u| <= sqrt(2) - 1, and atan u = u + u^3 p(u^2) with the polynomial p of degree 10 that
interpolates at the Chebyshev nodes of 0 <= u^2 <= 0.1716: 5e-18 off.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.exp2 import wide

_COEFFICIENTS = (
    -0.3333333333333333,
    0.19999999999995513,
    -0.1428571428466518,
    0.11111111015146714,
    -0.0909090457366906,
    0.07692183087342026,
    -0.06664509989818045,
    0.058581362519061465,
    -0.05085383488842831,
    0.03922974453661223,
    -0.019174543572021332,
)
_C0, _C1, _C2, _C3, _C4, _C5, _C6, _C7, _C8, _C9, _C10 = _COEFFICIENTS
_STEEP = math.sqrt(2.0) - 1.0
_QUARTER, _HALF, _WHOLE = 0.25 * math.pi, 0.5 * math.pi, math.pi
_NOTHING = 1e-300
"""Added to lengths, of which it changes none that is not zero."""
_BLOCK = 256
"""Points whose coordinates are first put side by side: vectors take numbers that are next to each other."""


@njit(cache=True, nogil=True, error_model="numpy", inline="always")
def _angle(across: float, along: float) -> float:
    """In [0, pi], of a point (along, across) with across >= 0."""
    size = abs(along)
    steep = across > size
    high, low = (across if steep else size) + _NOTHING, size if steep else across
    shifted = low > _STEEP * high
    u = ((low - high) if shifted else low) / ((low + high) if shifted else high)
    s = u * u
    p = s * _C10 + _C9
    p = p * s + _C8
    p = p * s + _C7
    p = p * s + _C6
    p = p * s + _C5
    p = p * s + _C4
    p = p * s + _C3
    p = p * s + _C2
    p = p * s + _C1
    p = p * s + _C0
    angle = u + u * s * p
    angle = _QUARTER + angle if shifted else angle
    angle = _HALF - angle if steep else angle
    return _WHOLE - angle if along < 0.0 else angle


# No fast arithmetic: last digits would depend on which rows are the last ones of a thread.
@njit(cache=True, nogil=True, error_model="numpy")
def polar(points: Any, matrix: Any, scale: float, theta: Any, phi: Any) -> None:
    """theta in [0, pi] and phi in [0, 2 pi], times a scale, of points (n, 3) times a matrix (3, 3)."""
    wide()
    xa, xb, xc = matrix[0, 0], matrix[1, 0], matrix[2, 0]
    ya, yb, yc = matrix[0, 1], matrix[1, 1], matrix[2, 1]
    za, zb, zc = matrix[0, 2], matrix[1, 2], matrix[2, 2]
    x, y, z = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    for first in range(0, len(points), _BLOCK):
        count = min(_BLOCK, len(points) - first)
        for i in range(count):
            a, b, c = points[first + i, 0], points[first + i, 1], points[first + i, 2]
            x[i], y[i], z[i] = a * xa + b * xb + c * xc, a * ya + b * yb + c * yc, a * za + b * zb + c * zc
        above, around = theta[first : first + count], phi[first : first + count]
        for i in range(count):
            above[i] = _angle(np.sqrt(x[i] * x[i] + y[i] * y[i]), z[i]) * scale
            angle = _angle(abs(y[i]), x[i])
            around[i] = (2.0 * _WHOLE - angle if y[i] < 0.0 else angle) * scale
