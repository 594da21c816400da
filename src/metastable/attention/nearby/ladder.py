"""Coordinates times spherical harmonics, and derivatives of these: steps to the neighbours of degree and order.

With D_lm = R_lm^cos + i R_lm^sin, m >= 0, of `nearby.harmonics`, on the unit sphere

    (2l + 1) z D_lm        = sqrt((l+1)^2 - m^2) D_{l+1,m} + sqrt(l^2 - m^2) D_{l-1,m},
    (2l + 1) (x + iy) D_lm = sqrt((l+m+1)(l+m+2)) D_{l+1,m+1} - sqrt((l-m)(l-m-1)) D_{l-1,m+1},
    (2l + 1) (x - iy) D_lm = -sqrt((l-m+1)(l-m+2)) D_{l+1,m-1} + sqrt((l+m)(l+m-1)) D_{l-1,m-1},

the second over sqrt(2) for m = 0, the third times sqrt(2) for m = 1. Of the solid harmonics, d/dz, d/dx + i d/dy
and d/dx - i d/dy are the terms with l - 1, without 2l + 1 on the left. No token is looked at.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def _steps(l: int, m: int) -> tuple[float, float, float, float, float, float]:
    """Factors of D_{l+1,m+1}, D_{l-1,m+1}, D_{l+1,m-1}, D_{l-1,m-1}, D_{l+1,m}, D_{l-1,m}.

    The first two are those of (x + iy)/2 and the next of (x - iy)/2, whose sum is x; for m = 0, where x D is the
    real part of (x + iy) D, they are twice those and none.
    """
    on = math.sqrt(0.5) if m == 0 else 0.5
    back = 0.0 if m == 0 else math.sqrt(0.5) if m == 1 else 0.5
    return (
        on * math.sqrt((l + m + 1.0) * (l + m + 2.0)),
        -on * math.sqrt((l - m) * (l - m - 1.0)),
        -back * math.sqrt((l - m + 1.0) * (l - m + 2.0)),
        back * math.sqrt((l + m) * (l + m - 1.0)),
        math.sqrt((l + 1.0) ** 2 - m * m),
        math.sqrt(float(l * l - m * m)),
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _times_coordinates(moments: Any) -> Any:
    """(3, p, p): sums of w (x, y, z) D_lm below degree p from moments (p + 1, p + 1), sums of w D_lm by [l, m]."""
    count = len(moments) - 1
    out = np.zeros((3, count, count), dtype=np.complex128)
    for l in range(count):
        for m in range(l + 1):
            a, b, c, d, e, f = _steps(l, m)
            over = 1.0 / (2.0 * l + 1.0)
            on, back, up = a * moments[l + 1, m + 1], 0j, e * moments[l + 1, m]
            if m > 0:
                back = c * moments[l + 1, m - 1] + d * moments[l - 1, m - 1]
            if l > m:
                on += b * moments[l - 1, m + 1]
                up += f * moments[l - 1, m]
            x, y = over * (on + back), -1j * over * (on - back)
            out[0, l, m], out[1, l, m] = (x, y) if m > 0 else (complex(x.real, 0.0), complex(y.real, 0.0))
            out[2, l, m] = over * up
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def second_moments(moments: Any, degree: int) -> Any:
    """(p + 1, p + 1, 10), by [m, l]: sums of w (xx, yy, xy, xz, yz) D_lm, five cosines and five sines.

    moments (p + 3, p + 3, 2), by [m, l]: sums of w D_lm, two degrees more.
    """
    count = degree + 3
    whole = np.zeros((count, count), dtype=np.complex128)
    for m in range(count):
        for l in range(m, count):
            whole[l, m] = complex(moments[m, l, 0], moments[m, l, 1])
    first = _times_coordinates(whole)
    of_x, of_y = _times_coordinates(first[0]), _times_coordinates(first[1])
    out = np.zeros((degree + 1, degree + 1, 10))
    for m in range(degree + 1):
        for l in range(m, degree + 1):
            found = (of_x[0, l, m], of_y[1, l, m], of_x[1, l, m], of_x[2, l, m], of_y[2, l, m])
            for f in range(5):
                out[m, l, f], out[m, l, 5 + f] = found[f].real, found[f].imag
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def slopes(gathered: Any, degree: int) -> Any:
    """(p + 1, p + 1, 6), by [m, l]: the series of the gradient of H = sum_lm Re conj(<G_lm, y> - S_lm) D_lm(y).

    gathered (p + 1, p + 1, 8), by [m, l]: (G, S), four cosines and four sines. The gradient, three cosines and
    three sines, is right along the unit sphere.
    """
    count = degree + 2
    series = np.zeros((count + 1, count + 1), dtype=np.complex128)
    for m in range(degree + 1):
        for l in range(m, degree + 1):
            given = gathered[m, l]
            x, y, z = complex(given[0], given[4]), complex(given[1], given[5]), complex(given[2], given[6])
            a, b, c, d, e, f = _steps(l, m)
            over = 1.0 / (2.0 * l + 1.0)
            on, back = over * (x + 1j * y), over * (x - 1j * y)
            series[l, m] -= complex(given[3], given[7])
            series[l + 1, m + 1] += a * on
            series[l + 1, m] += over * e * z
            if l > m:
                series[l - 1, m + 1] += b * on
                series[l - 1, m] += over * f * z
            if m > 0:
                series[l + 1, m - 1] += c * back
                series[l - 1, m - 1] += d * back
    out = np.zeros((degree + 1, degree + 1, 6))
    for l in range(1, count):
        for m in range(l + 1):
            _, b, _, d, _, f = _steps(l, m)
            whole = series[l, m] if m > 0 else complex(series[l, 0].real, 0.0)
            if l > m:
                _add(out, l - 1, m, 2, f * whole)
            if l > m + 1:
                _add(out, l - 1, m + 1, 0, b * whole)
                _add(out, l - 1, m + 1, 1, 1j * b * whole)
            if m > 0:
                _add(out, l - 1, m - 1, 0, d * whole)
                _add(out, l - 1, m - 1, 1, -1j * d * whole)
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def _add(out: Any, l: int, m: int, c: int, value: complex) -> None:
    out[m, l, c] += value.real
    out[m, l, 3 + c] += value.imag
