"""Gentle scores on S^2, backwards: keys and queries gathered into spherical harmonics, each for all of the other.

In the letters of `direct.adjoint` and of `nearby.harmonics`, with D_lm = R_lm^cos + i R_lm^sin,

    by_query_i = E_i[y y^T] g_i - s_i E_i[y],    by_key_j = m_j grad H(y_j),
    H(y) = sum_i e^{<q_i, y>} (<g_i, y> - s_i)/Z_i.

Keys are gathered once, as sum_j m_j D_lm(y_j); times coordinates, twice, D_lm is made of its neighbours
(`nearby.ladder`), which gives the second moments that queries evaluate. Queries send (g, s)/Z times b_l D_lm(q), of
which the same neighbours make one series H, and three for its gradient, whose part along the sphere is right.

Cut off above degree p, e^{<q, y>} errs by sum_{l > p} (2l + 1) i_l(r), and its slope along the sphere by the sum of
l (2l + 1) i_l(r): that of a trigonometric polynomial of degree l is at most l times its size. Beside Z_i/M, M the
mass of all keys, the first is held below a part of rtol, the second below 1 + r times that, as q e^{<q, y>} is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.exp2 import LOG2_E, REDUCTION, exp2, wide
from metastable.attention.lanes import LANES
from metastable.attention.nearby.harmonics import FACTOR, bessel_downwards, turn
from metastable.attention.nearby.ladder import second_moments, slopes
from metastable.attention.nearby.lanes_harmonics import look, look_and_send
from metastable.threads import over_rows

MOST_DEGREE = 40
"""Largest p on offer: queries up to some 20 long, for log Z is known, and e^r rarely more than 2 r Z/M."""
SHARE = 0.4
"""Part of the tolerance for what is cut off: by_query errs by twice that, for its zz is one less xx and yy."""
_ROUNDING = 30.0
"""Rounding units of a sum of harmonics, relative to e^r, as of `nearby.harmonics`."""
_BLOCK = 256
"""Tokens that take an order together: 128 of them are as fast, 64 a fourth slower."""
_PIECE = 4096
"""Tokens whose sums are kept together, for any number of threads."""


@njit(cache=True, nogil=True, error_model="numpy")
def least_degree_of_adjoint(log_mass: float, z: Any, log_partition: Any, rtol: float) -> int:
    """The least p that meets the tolerance for queries z (3, n); -1 where none on offer does, or rounding does not.

    log_mass: of all keys together.
    """
    floor, longest = np.inf, 0.0
    for i in range(z.shape[1]):
        floor = min(floor, log_partition[i] - log_mass)
        longest = max(longest, z[0, i] * z[0, i] + z[1, i] * z[1, i] + z[2, i] * z[2, i])
    r = math.sqrt(longest)
    # Longer queries need more degrees than there are, and their e^r overflows in the end.
    if r > MOST_DEGREE or not _ROUNDING * 2.3e-16 * math.exp(min(r - floor, 100.0)) <= 0.1 * rtol:
        return -1
    allowed = SHARE * rtol * math.exp(floor)
    rest, slope = 0.0, 0.0
    for degree in range(MOST_DEGREE + 30, 0, -1):
        log_term = degree * math.log(max(r, 1e-300)) + r * r / (4 * degree + 6)
        for odd in range(3, 2 * degree, 2):
            log_term -= math.log(float(odd))
        rest += math.exp(log_term)  # (2l + 1) i_l: the last odd factor cancels
        slope += degree * math.exp(log_term)
        if rest > allowed or slope > (1.0 + r) * allowed:
            return degree if degree <= MOST_DEGREE else -1
    return 0


def adjoint_by_harmonics(
    keys: np.ndarray, z: np.ndarray, log_partition: np.ndarray, cotangent: np.ndarray, shift: np.ndarray,
    mean: np.ndarray, degree: int, by_query: np.ndarray, by_key: np.ndarray,
) -> None:  # fmt: skip
    """`adjoint_sorted` of that degree; pieces of the sums are the same for any number of threads."""
    n_q, n_k, cost = z.shape[1], keys.shape[1], harmonics_adjoint_cost(1, degree)
    of_keys = np.zeros((-(-n_k // _PIECE), degree + 3, degree + 3, 2))
    of_queries = np.zeros((-(-n_q // _PIECE), degree + 1, degree + 1, 8))

    def gather(first: int, last: int) -> None:
        for piece in range(first, last):
            _gather(keys, piece * _PIECE, min((piece + 1) * _PIECE, n_k), degree + 2, of_keys[piece])

    over_rows(gather, len(of_keys), cost=0.2 * cost * n_k)
    second = second_moments(of_keys.sum(axis=0), degree)

    def rows(first: int, last: int) -> None:
        for piece in range(first, last):
            here = piece * _PIECE, min((piece + 1) * _PIECE, n_q)
            _look(*here, z, log_partition, cotangent, shift, mean, second, degree, by_query, of_queries[piece])

    over_rows(rows, len(of_queries), cost=0.5 * cost * n_q)
    gradient = slopes(of_queries.sum(axis=0), degree)

    def answer(first: int, last: int) -> None:
        _answer(first, last, keys, gradient, degree, by_key)

    over_rows(answer, n_k, cost=0.3 * cost * n_k, quantum=_BLOCK)


def harmonics_adjoint_cost(n: int, degree: int) -> float:
    """Rough nanoseconds of one core, the order of the tokens included."""
    return (120.0 + 0.6 * (degree + 2) ** 2) * n


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _next(m: int, power: int, z: Any, square: Any, before: Any, now: Any) -> None:
    """From degree l - 1 to l = power, of as many as z has: R_lm without its part cos or sin(m phi)."""
    by, back, over = 2.0 * power - 1.0, FACTOR[power - 1, m], 1.0 / FACTOR[power, m]
    for i in range(len(z)):
        following = (by * z[i] * now[i] - back * square[i] * before[i]) * over
        before[i] = now[i]
        now[i] = following


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _gather(keys: Any, first: int, last: int, degree: int, out: Any) -> None:
    """out[m, l] += sum_j m_j D_lm(k_j), (cosine, sine)."""
    wide()
    cosine, sine = np.empty(_BLOCK), np.empty(_BLOCK)
    before, now, square = np.empty(_BLOCK), np.empty(_BLOCK), np.ones(_BLOCK)
    for begin in range(first, last, _BLOCK):
        n = min(_BLOCK, last - begin)
        x, y, z = keys[0, begin : begin + n], keys[1, begin : begin + n], keys[2, begin : begin + n]
        for i in range(n):
            cosine[i], sine[i] = keys[3, begin + i], 0.0
        scale = 1.0
        for m in range(degree + 1):
            if m > 0:
                turn(cosine, sine, x, y)
                scale = 1.0 if m == 1 else scale * math.sqrt((2.0 * m - 1.0) / (2.0 * m))
            for i in range(n):
                before[i], now[i] = 0.0, scale
            for power in range(m, degree + 1):
                if power > m:
                    _next(m, power, z, square, before, now)
                s0, s1 = 0.0, 0.0
                for i in range(n):
                    s0 += now[i] * cosine[i]
                    s1 += now[i] * sine[i]
                out[m, power, 0] += s0
                out[m, power, 1] += s1


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _share_of_e(t: float) -> float:
    """(1 - e^{-t})/t = sum_k (-t)^k/(k + 1)!, which is e^{-r} sinh(r)/r for t = 2 r."""
    series = 0.0
    for k in range(14, -1, -1):
        series = 1.0 - series * t / (k + 2.0)
    return series if t < 0.5 else (1.0 - exp2(max(-t * LOG2_E, -1000.0))) / t


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _look(
    first: int, last: int, z: Any, log_partition: Any, cotangent: Any, shift: Any, mean: Any, second: Any,
    degree: int, by_query: Any, out: Any,
) -> None:  # fmt: skip
    """by_query of some queries, and out[m, l] += sum_i (g_i, s_i) b_l D_lm(q_i)/Z_i: cosines, then sines."""
    wide()
    bessel, square = np.empty((degree + 1, _BLOCK)), np.empty(_BLOCK)
    low, high, total = np.empty(_BLOCK), np.empty(_BLOCK), np.empty((5, _BLOCK))
    x, y, up = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    cosine, sine, part, rows = np.empty(_BLOCK), np.empty(_BLOCK), np.empty((10, _BLOCK)), np.zeros((8, _BLOCK))
    gathered, series = np.empty((degree + 1, 8, LANES)), second.ravel()
    for begin in range(first, last, _BLOCK):
        length = min(_BLOCK, last - begin)
        n = -(-length // LANES) * LANES
        # Places beyond the last query are zero, and send nothing.
        for i in range(length):
            x[i], y[i], up[i] = z[0, begin + i], z[1, begin + i], z[2, begin + i]
        for i in range(length, n):
            x[i], y[i], up[i] = 0.0, 0.0, 0.0
        rows[:, length:n] = 0.0
        for i in range(n):
            square[i] = x[i] * x[i] + y[i] * y[i] + up[i] * up[i]
        bessel_downwards(square, n, degree, low, high, bessel)
        # b_0 = sinh(r)/r tells how large the b_l are that began with one.
        for i in range(n):
            r = math.sqrt(square[i])
            t = (r - log_partition[min(begin + i, last - 1)]) * LOG2_E
            bessel[0, i] = _share_of_e(2.0 * r) * exp2(min(max(t, -1000.0), 1000.0))
        for i in range(n):
            high[i] = bessel[0, i] / low[i]
        factor = 1.0
        for power in range(1, degree + 1):
            factor /= max(2.0 * power - 1.0, 1.0)  # (2l + 1)/(2l + 1)!!
            for i in range(n):
                bessel[power, i] *= factor * high[i]
        for i in range(n):
            cosine[i], sine[i] = 1.0, 0.0
        total[:] = 0.0
        scale = 1.0
        for m in range(degree + 1):
            if m > 0:
                turn(cosine[:n], sine[:n], x[:n], y[:n])
                scale = 1.0 if m == 1 else scale * math.sqrt((2.0 * m - 1.0) / (2.0 * m))
            for c in range(3):
                for i in range(length):
                    rows[c, i] = cosine[i] * cotangent[c, begin + i]
                    rows[4 + c, i] = sine[i] * cotangent[c, begin + i]
            for i in range(length):
                rows[3, i] = cosine[i] * shift[begin + i]
                rows[7, i] = sine[i] * shift[begin + i]
            gathered[m:] = 0.0
            look_and_send(
                m,
                degree,
                scale,
                series,
                up,
                square,
                bessel.ravel(),
                n,
                rows.ravel(),
                part.ravel(),
                gathered.ravel(),
            )
            for power in range(m, degree + 1):
                for f in range(8):
                    value = 0.0
                    for a in range(LANES):
                        value += gathered[power, f, a]
                    out[m, power, f] += value
            for f in range(5):
                to = total[f]
                for i in range(n):
                    to[i] += cosine[i] * part[f, i] + sine[i] * part[5 + f, i]
        for i in range(length):
            xx, yy, xy, xz, yz = total[0, i], total[1, i], total[2, i], total[3, i], total[4, i]
            at = begin + i
            g0, g1, g2 = cotangent[0, at], cotangent[1, at], cotangent[2, at]
            by_query[0, at] = xx * g0 + xy * g1 + xz * g2 - shift[at] * mean[0, at]
            by_query[1, at] = xy * g0 + yy * g1 + yz * g2 - shift[at] * mean[1, at]
            by_query[2, at] = xz * g0 + yz * g1 + (1.0 - xx - yy) * g2 - shift[at] * mean[2, at]


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _answer(first: int, last: int, keys: Any, gradient: Any, degree: int, by_key: Any) -> None:
    """by_key (3, n) of some keys: their masses times the series of the gradient."""
    wide()
    cosine, sine, total, part = np.empty(_BLOCK), np.empty(_BLOCK), np.empty((3, _BLOCK)), np.empty((6, _BLOCK))
    x, y, z, square, series = (
        np.empty(_BLOCK),
        np.empty(_BLOCK),
        np.empty(_BLOCK),
        np.ones(_BLOCK),
        gradient.ravel(),
    )
    for begin in range(first, last, _BLOCK):
        n = min(_BLOCK, last - begin)  # keys are filled up to a multiple of eight
        for i in range(n):
            x[i], y[i], z[i] = keys[0, begin + i], keys[1, begin + i], keys[2, begin + i]
            cosine[i], sine[i] = keys[3, begin + i], 0.0
        total[:] = 0.0
        scale = 1.0
        for m in range(degree + 1):
            if m > 0:
                turn(cosine[:n], sine[:n], x[:n], y[:n])
                scale = 1.0 if m == 1 else scale * math.sqrt((2.0 * m - 1.0) / (2.0 * m))
            look(m, degree, scale, series, z, square, n, part.ravel())
            for c in range(3):
                for i in range(n):
                    total[c, i] += cosine[i] * part[c, i] + sine[i] * part[3 + c, i]
        for c in range(3):
            for i in range(n):
                by_key[c, begin + i] = total[c, i]
