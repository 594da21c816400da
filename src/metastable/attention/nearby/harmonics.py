"""Gentle scores on S^2: keys gathered into spherical harmonics, for all queries at once.

    e^{<z, k>} = sum_l (2l + 1) i_l(r) P_l(<z, k>/r),   r = |z|,   |k| = 1,
with the modified spherical Bessel functions i_l(r) = b_l(r) r^l/(2l + 1)!!, b_{l-1} = b_l + r^2 b_{l+1}/((2l +
1)(2l + 3)), and r^l P_l(<z, k>/r) = sum_m R_lm(z) R_lm(k) over real solid harmonics, polynomials of z (Schmidt's
norm). Cut off above degree p, a weight errs by sum_{l > p} (2l + 1) i_l(r) at most, i_l(r) <= r^l e^{r^2/(4l +
6)}/(2l + 1)!!, beside a partition of at least e^{<z, k>} at the mean k of the keys (Jensen). No roots, no
exponentials: one degree takes as long as a few pairs for every token.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.exp2 import REDUCTION, wide

SHARE = 0.15
"""Part of the tolerance for what is cut off, of the partition; twice that of the mean."""
MOST_DEGREE = 30
"""Largest p on offer."""
BEYOND = 10
"""Degrees above p from which b_l is found downwards, where it is one to a few percent."""
_BLOCK = 256
"""Tokens that are in the first cache together."""
_ROUNDING = 30.0
"""Rounding units of a sum of harmonics, relative to e^r."""
_DEGREES = np.arange(48.0)
FACTOR = np.sqrt(np.maximum(_DEGREES[:, None] ** 2 - _DEGREES**2, 0.0))
"""[l, m]: sqrt(l^2 - m^2), for `harmonics_adjoint`, too."""


@njit(cache=True, nogil=True, error_model="numpy")
def least_degree_of_harmonics(keys: Any, z: Any, rtol: float) -> int:
    """The least p that meets the tolerance for queries z (3, n); -1 where none on offer does, or rounding does not.

    keys (4, n) with the masses in the last row.
    """
    mean, total = np.zeros(3), 0.0
    for j in range(keys.shape[1]):
        total += keys[3, j]
        for c in range(3):
            mean[c] += keys[3, j] * keys[c, j]
    floor, longest = np.inf, 0.0
    for i in range(z.shape[1]):
        along, square = 0.0, 0.0
        for c in range(3):
            along += z[c, i] * mean[c]
            square += z[c, i] * z[c, i]
        floor, longest = min(floor, along / total), max(longest, square)
    r = math.sqrt(longest)
    if not _ROUNDING * 2.3e-16 * math.exp(min(r - floor, 100.0)) <= 0.1 * SHARE * rtol:
        return -1
    allowed = SHARE * rtol * math.exp(floor)
    rest, found = 0.0, -1
    for degree in range(MOST_DEGREE + 30, 0, -1):
        log_term = degree * math.log(max(r, 1e-300)) + r * r / (4 * degree + 6)
        for odd in range(3, 2 * degree, 2):
            log_term -= math.log(float(odd))
        rest += math.exp(log_term)  # (2l + 1) i_l: the last odd factor cancels
        if rest > allowed:
            found = degree
            break
    if found == -1:
        return 0
    return found if found <= MOST_DEGREE else -1


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def turn(cosine: Any, sine: Any, x: Any, y: Any) -> None:
    """(c + i s) (x + i y), in place, of as many as x has: from m to m + 1."""
    for i in range(len(x)):
        turned = cosine[i] * x[i] - sine[i] * y[i]
        sine[i] = cosine[i] * y[i] + sine[i] * x[i]
        cosine[i] = turned


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def moments(keys: Any, first: int, last: int, degree: int, out: Any) -> None:
    """out[m, l, :] += sum_j m_j R_lm(k_j) (k_j, 1): four with cos(m phi), four with sin(m phi)."""
    wide()
    rows = np.empty((8, _BLOCK))
    cosine, sine, diagonal = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    before, now = np.empty(_BLOCK), np.empty(_BLOCK)
    for begin in range(first, last, _BLOCK):
        n = min(_BLOCK, last - begin)
        x, y, z = keys[0, begin : begin + n], keys[1, begin : begin + n], keys[2, begin : begin + n]
        mass = keys[3, begin : begin + n]
        for i in range(n):
            cosine[i], sine[i] = mass[i], 0.0
        scale = 1.0
        for m in range(degree + 1):
            if m > 0:
                turn(cosine, sine, x, y)
                scale = 1.0 if m == 1 else scale * math.sqrt((2.0 * m - 1.0) / (2.0 * m))
            for i in range(n):
                rows[0, i], rows[1, i], rows[2, i], rows[3, i] = (
                    cosine[i] * x[i],
                    cosine[i] * y[i],
                    cosine[i] * z[i],
                    cosine[i],
                )
                rows[4, i], rows[5, i], rows[6, i], rows[7, i] = (
                    sine[i] * x[i],
                    sine[i] * y[i],
                    sine[i] * z[i],
                    sine[i],
                )
                before[i], now[i] = 0.0, scale
            for power in range(m, degree + 1):
                if power > m:
                    by, back, over = 2.0 * power - 1.0, FACTOR[power - 1, m], 1.0 / FACTOR[power, m]
                    for i in range(n):
                        diagonal[i] = (by * z[i] * now[i] - back * before[i]) * over
                    for i in range(n):
                        before[i] = now[i]
                        now[i] = diagonal[i]
                s0, s1, s2, s3, s4, s5, s6, s7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
                for i in range(n):
                    q = now[i]
                    s0 += q * rows[0, i]
                    s1 += q * rows[1, i]
                    s2 += q * rows[2, i]
                    s3 += q * rows[3, i]
                    s4 += q * rows[4, i]
                    s5 += q * rows[5, i]
                    s6 += q * rows[6, i]
                    s7 += q * rows[7, i]
                to = out[m, power]
                to[0] += s0
                to[1] += s1
                to[2] += s2
                to[3] += s3
                to[4] += s4
                to[5] += s5
                to[6] += s6
                to[7] += s7


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def bessel_downwards(square: Any, n: int, degree: int, low: Any, high: Any, bessel: Any) -> None:
    """bessel[l] = b_l(r) of n squares r^2, 1 <= l <= degree, and low = b_0, up to one factor: all begin with 1."""
    wide()
    for i in range(n):
        low[i], high[i] = 1.0, 1.0
    for power in range(degree + BEYOND, 0, -1):
        if power <= degree:
            for i in range(n):
                bessel[power, i] = low[i]
        over = 1.0 / ((2.0 * power + 1.0) * (2.0 * power + 3.0))
        for i in range(n):
            following = low[i] + over * square[i] * high[i]
            high[i] = low[i]
            low[i] = following


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def attend_harmonics(
    first: int, last: int, z: Any, gathered: Any, degree: int, mean: Any, log_partition: Any
) -> None:
    """Means (n, 3) and log-partitions of some queries z (3, n) from the moments of all keys."""
    wide()
    bessel, square = np.empty((degree + 1, _BLOCK)), np.empty(_BLOCK)
    low, high, total = np.empty(_BLOCK), np.empty(_BLOCK), np.empty((4, _BLOCK))
    cosine, sine, before, now = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    part, weight = np.empty((8, _BLOCK)), np.empty(_BLOCK)
    for begin in range(first, last, _BLOCK):
        n = min(_BLOCK, last - begin)
        x, y, up = z[0, begin : begin + n], z[1, begin : begin + n], z[2, begin : begin + n]
        for i in range(n):
            square[i] = x[i] * x[i] + y[i] * y[i] + up[i] * up[i]
        bessel_downwards(square, n, degree, low, high, bessel)
        for i in range(n):
            bessel[0, i] = low[i]
        factor = 1.0
        for power in range(1, degree + 1):
            factor /= max(2.0 * power - 1.0, 1.0)  # (2l + 1)/(2l + 1)!!
            for i in range(n):
                bessel[power, i] *= factor
        for i in range(n):
            cosine[i], sine[i] = 1.0, 0.0
        total[:] = 0.0
        scale = 1.0
        for m in range(degree + 1):
            if m > 0:
                turn(cosine, sine, x, y)
                scale = 1.0 if m == 1 else scale * math.sqrt((2.0 * m - 1.0) / (2.0 * m))
            part[:] = 0.0
            for i in range(n):
                before[i], now[i] = 0.0, scale
            for power in range(m, degree + 1):
                if power > m:
                    by, back, over = 2.0 * power - 1.0, FACTOR[power - 1, m], 1.0 / FACTOR[power, m]
                    for i in range(n):
                        following = (by * up[i] * now[i] - back * square[i] * before[i]) * over
                        before[i] = now[i]
                        now[i] = following
                for i in range(n):
                    weight[i] = bessel[power, i] * now[i]
                g = gathered[m, power]
                for f in range(8 if m > 0 else 4):
                    value, to = g[f], part[f]
                    for i in range(n):
                        to[i] += value * weight[i]
            for f in range(4):
                to = total[f]
                for i in range(n):
                    to[i] += cosine[i] * part[f, i] + sine[i] * part[4 + f, i]
        # sum_l (2l + 1) i_l = e^r tells how large the b_l are that began with one.
        for i in range(n):
            low[i], high[i], weight[i] = 0.0, 1.0, math.sqrt(square[i])
        for power in range(degree + 1):
            for i in range(n):
                low[i] += bessel[power, i] * high[i]
                high[i] *= weight[i]
        for i in range(n):
            inverse = 1.0 / total[3, i]
            mean[begin + i, 0] = total[0, i] * inverse
            mean[begin + i, 1] = total[1, i] * inverse
            mean[begin + i, 2] = total[2, i] * inverse
            log_partition[begin + i] = math.log(total[3, i] / low[i]) + weight[i]
