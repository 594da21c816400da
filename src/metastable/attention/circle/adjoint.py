"""The transpose of the derivative of attention on the circle by Fourier series: O(n K), K modes, about 6 sqrt(|q|).

For keys y = e^{i theta} and queries q = r e^{i phi}, e^{<q, y> - r} = sum_k c_k(r) e^{ik (phi - theta)}, with
c_k(r) = e^{-r} I_k(r) > 0 that sum to one and fall faster than e^{-k^2/2r} does where k < r. Both sums of
`direct.adjoint`, in its letters, are series in one angle:

    by_query_i = E_i[y y^T] g_i - s_i E_i[y],   E_i[y^l] = (e^{r_i}/Z_i) sum_k c_k(r_i) e^{ik phi_i} mu_{l-k},
    by_key_j = m_j h'(theta_j) e_j,   h(theta) = sum_i (e^{r_i}/Z_i) e^{<q_i, y> - r_i} (<g_i, y> - s_i),

where mu_k = sum_j m_j e^{ik theta_j}, and e_j = (-sin, cos) theta_j: of by_key there is the part along the circle,
which is all that tokens on it can feel. Errors are relative to e^{r_i} in row i, hence e^{r_i}/Z_i times as large
beside Z_i: little where queries look at keys, too much where they look away from all of them, which `modes` says.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from metastable.attention.backwards import Backwards
from metastable.attention.exp2 import REDUCTION
from metastable.rowwise import inner
from metastable.threads import over_rows

ROUNDING = 2e-15
"""Rounding of a row relative to e^{r_i}, divided by 1 + r: turns by an angle are rounded some eps times a mode's
number, and by_query is a difference of moments that are r times as large. tests/attention/circle/test_adjoint.py
finds a fourth of it."""
MOST_MODES = 2000
"""Modes beyond which all pairs are taken: r of some 10^5, where rounding allows no more than two digits."""
PIECES = 8
"""Ranges of queries whose sums are kept apart until the end, so that the digits do not depend on the threads."""
_LANES = 64
"""Tokens that take a mode together: the ratios of their coefficients for 60 modes stay in the first cache. A tenth
faster than 32, up to 70 modes."""


def modes(
    queries: Float[Tensor, "n 2"], log_mass: Float[Tensor, "n"], log_partition: Float[Tensor, "n"], rtol: float
) -> int | None:
    """Modes for errors below rtol beside the partitions, None where rounding or `MOST_MODES` do not allow them."""
    length = inner(queries, queries).sqrt()
    longest, lost = float(length.max()), float((length - log_partition).max() + torch.logsumexp(log_mass, 0))
    rounding = ROUNDING * (1 + longest)
    if not lost < math.log(rtol / rounding):
        return None
    # Rounded to quarters of an octave and to powers of two, so that a run asks for few of them.
    octaves = math.ceil(4 * math.log2(max(longest, 1.0)))
    return _modes_of(2.0 ** (octaves / 4), 2.0 ** math.floor(math.log2(rtol / 4) - lost / math.log(2.0)))


@cache
def _modes_of(longest: float, least: float) -> int | None:
    """K such that the modes above err by `least` beside e^{r}, r <= longest, also in the slope of a series."""
    from scipy.special import ive

    # c_k(r) grows with r where k^2 > r, and sum_{l >= k} l c_l(r) = r (c_{k-1} + c_k)/2.
    k = np.arange(1, MOST_MODES)
    tail = (1 + longest) * (ive(k - 1, longest) + ive(k, longest))
    enough = np.flatnonzero(tail < least)
    return int(k[enough[0]]) + 2 if len(enough) else None


def circle_adjoint_cost(n: int, count: int) -> float:
    """Rough nanoseconds of one core."""
    return 1e5 + n * (60.0 + 3.0 * count)


def circle_adjoint(given: Backwards, count: int) -> tuple[Float[Tensor, "n 2"], Float[Tensor, "n 2"]]:
    """(by_query, by_key along the circle) for keys of unit length, with that many modes."""
    queries, keys, log_mass, log_partition, cotangent, shift, _ = given
    q, y, g, s = (np.ascontiguousarray(part.numpy()) for part in (queries, keys, cotangent, shift))
    n, top = len(q), float(log_mass.max())
    mass, log_scale = torch.exp(log_mass - top).numpy(), (top - log_partition).numpy()
    edges = [n * piece // PIECES for piece in range(PIECES + 1)]
    cost = circle_adjoint_cost(n, count) / 3
    moments, sums = np.zeros((PIECES, 2, count + 3)), np.zeros((PIECES, 6, count + 1))
    by_query, by_key = np.empty((n, 2)), np.empty((n, 2))

    def gather(start: int, stop: int) -> None:
        for piece in range(start, stop):
            _moments(y, mass, edges[piece], edges[piece + 1], moments[piece])

    over_rows(gather, PIECES, cost=cost)
    table = _pairs_of_modes(moments.sum(0))

    def look(start: int, stop: int) -> None:
        for piece in range(start, stop):
            _rows(q, log_scale, g, s, table, edges[piece], edges[piece + 1], sums[piece], by_query)

    over_rows(look, PIECES, cost=cost)
    series = _series(sums.sum(0))

    def answer(start: int, stop: int) -> None:
        _slopes(y, mass, series, start, stop, by_key)

    over_rows(answer, n, cost=cost)
    return torch.from_numpy(by_query), torch.from_numpy(by_key)


def _pairs_of_modes(moments: np.ndarray) -> np.ndarray:
    """(2, 4, K + 1): Re(a + b), Im(b - a), Im(a + b), Re(a - b) of a = mu_{l-k} and b = mu_{l+k}, l = 1 and 2."""
    mu = moments[0] + 1j * moments[1]
    count = len(mu) - 3
    k = np.arange(count + 1)
    table = np.empty((2, 4, count + 1))
    for row, l in enumerate((1, 2)):
        a, b = np.where(k <= l, mu[np.abs(l - k)], mu[np.abs(l - k)].conj()), mu[l + k]
        table[row] = (a + b).real, (b - a).imag, (a + b).imag, (a - b).real
        table[row, :, 0] *= 0.5
    return table


def _series(sums: np.ndarray) -> np.ndarray:
    """(2, K + 2): 2 i k h_k of h = sum_k h_k e^{ik theta}, from the series of g_1, g_2 and s that `_rows` sums."""
    along, across, less = (np.append(sums[2 * c] - 1j * sums[2 * c + 1], [0.0, 0.0]) for c in range(3))
    k = np.arange(1, len(along) - 1)
    h = 0.5 * (along[k - 1] + along[k + 1]) - 0.5j * (across[k - 1] - across[k + 1]) - less[k]
    slope = 2j * k * h
    return np.stack((np.append(0.0, slope.real), np.append(0.0, slope.imag)))


@njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
def _moments(keys: Any, mass: Any, start: int, stop: int, moments: Any) -> None:
    """mu_k += sum_j m_j e^{ik theta_j}, (cosine, sine)."""
    c, s, turn_c, turn_s = np.empty(_LANES), np.empty(_LANES), np.empty(_LANES), np.empty(_LANES)
    for first in range(start, stop, _LANES):
        size = min(_LANES, stop - first)
        for l in range(size):
            c[l], s[l] = mass[first + l], 0.0
            turn_c[l], turn_s[l] = keys[first + l, 0], keys[first + l, 1]
        for k in range(moments.shape[1]):
            real, imaginary = 0.0, 0.0
            for l in range(size):
                real += c[l]
                imaginary += s[l]
                c[l], s[l] = c[l] * turn_c[l] - s[l] * turn_s[l], s[l] * turn_c[l] + c[l] * turn_s[l]
            moments[0, k] += real
            moments[1, k] += imaginary


@njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
def _rows(
    queries: Any, log_scale: Any, g: Any, s: Any, table: Any, start: int, stop: int, sums: Any, by_query: Any
) -> None:
    """sums[2c : 2c + 2, k] += sum_i a_ik (cos, sin)(k phi_i) (g_1, g_2, s)_i[c], a_ik = e^{scale_i + r_i} c_k(r_i);
    by_query from E_i[e^{i theta}] and E_i[e^{2i theta}].

    c_k/c_{k-1} = r/(2k + r c_{k+1}/c_k), from the largest k on; their sum is one.
    """
    last = sums.shape[1] - 1
    ratio = np.empty((last + 1, _LANES))
    r, a, c, o = np.empty(_LANES), np.empty(_LANES), np.empty(_LANES), np.empty(_LANES)
    turn_c, turn_s = np.empty(_LANES), np.empty(_LANES)
    g_1, g_2, s_0 = np.empty(_LANES), np.empty(_LANES), np.empty(_LANES)
    m_0, m_1, m_2, m_3 = np.empty(_LANES), np.empty(_LANES), np.empty(_LANES), np.empty(_LANES)
    for first in range(start, stop, _LANES):
        size = min(_LANES, stop - first)
        for l in range(size):
            i = first + l
            g_1[l], g_2[l], s_0[l] = g[i, 0], g[i, 1], s[i]
            r[l] = math.sqrt(queries[i, 0] ** 2 + queries[i, 1] ** 2)
            inverse = 1.0 / max(r[l], 1e-300)
            turn_c[l], turn_s[l] = queries[i, 0] * inverse, queries[i, 1] * inverse
            o[l] = r[l] / (last + 1.0 + math.sqrt((last + 1.0) ** 2 + r[l] ** 2))
            a[l] = 0.0
        for k in range(last, 0, -1):
            for l in range(size):
                o[l] = r[l] / (2.0 * k + r[l] * o[l])
                ratio[k, l] = o[l]
                a[l] = o[l] * (1.0 + a[l])
        for l in range(size):
            a[l] = math.exp(log_scale[first + l] + r[l]) / (1.0 + 2.0 * a[l])
            c[l], o[l] = a[l], 0.0
            m_0[l] = m_1[l] = m_2[l] = m_3[l] = 0.0
        for k in range(last + 1):
            t_0, t_1, t_2, t_3 = table[0, 0, k], table[0, 1, k], table[0, 2, k], table[0, 3, k]
            u_0, u_1, u_2, u_3 = table[1, 0, k], table[1, 1, k], table[1, 2, k], table[1, 3, k]
            x_0 = x_1 = x_2 = x_3 = x_4 = x_5 = 0.0
            for l in range(size):
                x, z = c[l], o[l]
                x_0 += x * g_1[l]
                x_1 += z * g_1[l]
                x_2 += x * g_2[l]
                x_3 += z * g_2[l]
                x_4 += x * s_0[l]
                x_5 += z * s_0[l]
                m_0[l] += x * t_0 + z * t_1
                m_1[l] += x * t_2 + z * t_3
                m_2[l] += x * u_0 + z * u_1
                m_3[l] += x * u_2 + z * u_3
            sums[0, k] += x_0
            sums[1, k] += x_1
            sums[2, k] += x_2
            sums[3, k] += x_3
            sums[4, k] += x_4
            sums[5, k] += x_5
            if k < last:
                for l in range(size):
                    x, z, next_ = c[l], o[l], ratio[k + 1, l]
                    c[l] = next_ * (x * turn_c[l] - z * turn_s[l])
                    o[l] = next_ * (z * turn_c[l] + x * turn_s[l])
        for l in range(size):
            i = first + l
            x, z = g_1[l], g_2[l]
            by_query[i, 0] = 0.5 * (x + m_2[l] * x + m_3[l] * z) - s_0[l] * m_0[l]
            by_query[i, 1] = 0.5 * (z + m_3[l] * x - m_2[l] * z) - s_0[l] * m_1[l]


@njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
def _slopes(keys: Any, mass: Any, series: Any, start: int, stop: int, by_key: Any) -> None:
    """m_j e_j Re sum_k series_k e^{ik theta_j}, by Horner's rule in e^{i theta}."""
    real, imaginary, turn_c, turn_s = np.empty(_LANES), np.empty(_LANES), np.empty(_LANES), np.empty(_LANES)
    for first in range(start, stop, _LANES):
        size = min(_LANES, stop - first)
        for l in range(size):
            turn_c[l], turn_s[l] = keys[first + l, 0], keys[first + l, 1]
            real[l], imaginary[l] = 0.0, 0.0
        for k in range(series.shape[1] - 1, -1, -1):
            u, v = series[0, k], series[1, k]
            for l in range(size):
                x, z = real[l], imaginary[l]
                real[l] = u + x * turn_c[l] - z * turn_s[l]
                imaginary[l] = v + z * turn_c[l] + x * turn_s[l]
        for l in range(size):
            slope = mass[first + l] * real[l]
            by_key[first + l, 0], by_key[first + l, 1] = -turn_s[l] * slope, turn_c[l] * slope
