"""Modes of tokens on the circle, some hundred tokens at a time: moments, their sums by queries, slopes of a series.

In the letters of `circle.adjoint`. A query of length r has the coefficients c_k(r) = e^{-r} I_k(r) of its modes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.exp2 import REDUCTION, wide

_SHORTEST = 1e-15
"""Queries that are shorter count as this long: c_1 is half of it."""
_FIRST = 1e-200
"""Where the recurrence begins, of a query of length r with mode 16 + 10 sqrt(r) at most: there c_k is below 1e-18
of c_0, and for the shortest queries 1e-258 of it."""
_LANES = 256
"""Tokens that take a mode together: 30% faster than 64, as fast as 512, for 24 and 90 modes."""
_compiled: Any = njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")


@_compiled
def sum_moments(keys: Any, mass: Any, start: int, stop: int, moments: Any) -> None:
    """mu_k += sum_j m_j e^{ik theta_j}, (cosine, sine)."""
    wide()
    c, s, turn_c, turn_s = np.empty(_LANES), np.empty(_LANES), np.empty(_LANES), np.empty(_LANES)
    for first in range(start, stop, _LANES):
        size = min(_LANES, stop - first)
        for l in range(size):
            c[l], s[l] = mass[first + l], 0.0
            turn_c[l], turn_s[l] = keys[0, first + l], keys[1, first + l]
        for k in range(moments.shape[1]):
            real, imaginary = 0.0, 0.0
            for l in range(size):
                real += c[l]
                imaginary += s[l]
                c[l], s[l] = c[l] * turn_c[l] - s[l] * turn_s[l], s[l] * turn_c[l] + c[l] * turn_s[l]
            moments[0, k] += real
            moments[1, k] += imaginary


# Loops of few arrays each: where too many could overlap, LLVM makes no vectors of a loop.
@_compiled
def coefficients(r: Any, p: Any, start: Any, over: Any, after: Any, total: Any) -> None:
    """p[k] ~ c_k(r), and the sum of them: c_{k-1} = c_{k+1} + (2k/r) c_k downwards, from a mode `start` that is
    nothing beside the others."""
    last = len(p) - 2
    least = float(last)
    for l in range(len(r)):
        least = min(least, 16.0 + np.floor(10.0 * math.sqrt(r[l])))
    for l in range(len(r)):
        start[l] = min(16.0 + np.floor(10.0 * math.sqrt(r[l])), float(last))
    for l in range(len(r)):
        beyond = start[l] + 1.0
        after[l] = _FIRST * r[l] / (beyond + math.sqrt(beyond * beyond + r[l] * r[l]))
        total[l] = 0.0
    for l in range(len(r)):
        over[l] = 2.0 / r[l]
    for k in range(last + 1, -1, -1):
        row, mode = p[k], float(k)
        if k > last - 1:
            for l in range(len(r)):
                row[l] = 0.0
        else:
            one, two = p[k + 1], p[k + 2]
            for l in range(len(r)):
                row[l] = two[l] + (mode + 1.0) * over[l] * one[l]
        if mode >= least:
            for l in range(len(r)):
                at_end = _FIRST if start[l] == mode else (after[l] if start[l] + 1.0 == mode else 0.0)
                row[l] = row[l] if start[l] > mode else at_end
        if 0 < k <= last:
            for l in range(len(r)):
                total[l] += 2.0 * row[l]
    row = p[0]
    for l in range(len(r)):
        total[l] += row[l]


@_compiled
def _scaled(row: Any, c: Any, s: Any, x: Any, z: Any) -> None:
    for l in range(len(c)):
        x[l] = row[l] * c[l]
        z[l] = row[l] * s[l]


@_compiled
def _turned(c: Any, s: Any, turn_c: Any, turn_s: Any) -> None:
    for l in range(len(c)):
        turned = c[l] * turn_c[l] - s[l] * turn_s[l]
        s[l] = s[l] * turn_c[l] + c[l] * turn_s[l]
        c[l] = turned


@_compiled
def _added(x: Any, z: Any, g_1: Any, g_2: Any, s: Any, sums: Any, k: int) -> None:
    x_0 = x_1 = x_2 = x_3 = x_4 = x_5 = 0.0
    for l in range(len(x)):
        x_0 += x[l] * g_1[l]
        x_1 += z[l] * g_1[l]
        x_2 += x[l] * g_2[l]
        x_3 += z[l] * g_2[l]
        x_4 += x[l] * s[l]
        x_5 += z[l] * s[l]
    sums[0, k] += x_0
    sums[1, k] += x_1
    sums[2, k] += x_2
    sums[3, k] += x_3
    sums[4, k] += x_4
    sums[5, k] += x_5


@_compiled
def _looked(x: Any, z: Any, table: Any, k: int, real: Any, imaginary: Any) -> None:
    t_0, t_1, t_2, t_3 = table[0, k], table[1, k], table[2, k], table[3, k]
    for l in range(len(x)):
        real[l] += x[l] * t_0 + z[l] * t_1
        imaginary[l] += x[l] * t_2 + z[l] * t_3


@_compiled
def look_at_moments(
    queries: Any, log_scale: Any, g: Any, s: Any, table: Any, start: int, stop: int, sums: Any, by_query: Any
) -> None:
    """sums[2c : 2c + 2, k] += sum_i a_ik (cos, sin)(k phi_i) (g_1, g_2, s)_i[c], a_ik = e^{scale_i + r_i} c_k(r_i);
    by_query from E_i[e^{i theta}] and E_i[e^{2i theta}]."""
    wide()
    last = sums.shape[1] - 1
    held, p = np.empty((14, _LANES)), np.empty((last + 2, _LANES))
    for first in range(start, stop, _LANES):
        size = min(_LANES, stop - first)
        r, c, o, x, z, turn_c, turn_s = (
            held[0, :size], held[1, :size], held[2, :size], held[3, :size], held[4, :size], held[5, :size],
            held[6, :size],
        )  # fmt: skip
        m_0, m_1, m_2, m_3 = held[7, :size], held[8, :size], held[9, :size], held[10, :size]
        begins, over, after = held[11, :size], held[12, :size], held[13, :size]
        q_1, q_2 = queries[0, first : first + size], queries[1, first : first + size]
        g_1, g_2, s_0 = g[0, first : first + size], g[1, first : first + size], s[first : first + size]
        scale = log_scale[first : first + size]
        for l in range(size):
            r[l] = max(math.sqrt(q_1[l] * q_1[l] + q_2[l] * q_2[l]), _SHORTEST)
        for l in range(size):
            turn_c[l], turn_s[l] = q_1[l] / r[l], q_2[l] / r[l]
        coefficients(r, p, begins, over, after, x)
        for l in range(size):
            c[l] = math.exp(scale[l] + r[l]) / x[l]
        o[:], m_0[:], m_1[:], m_2[:], m_3[:] = 0.0, 0.0, 0.0, 0.0, 0.0
        for k in range(last + 1):
            _scaled(p[k], c, o, x, z)
            _turned(c, o, turn_c, turn_s)
            _added(x, z, g_1, g_2, s_0, sums, k)
            _looked(x, z, table[0], k, m_0, m_1)
            _looked(x, z, table[1], k, m_2, m_3)
        along, across = by_query[0, first : first + size], by_query[1, first : first + size]
        for l in range(size):
            along[l] = 0.5 * (g_1[l] + m_2[l] * g_1[l] + m_3[l] * g_2[l]) - s_0[l] * m_0[l]
        for l in range(size):
            across[l] = 0.5 * (g_2[l] + m_3[l] * g_1[l] - m_2[l] * g_2[l]) - s_0[l] * m_1[l]


@_compiled
def slopes(keys: Any, mass: Any, series: Any, start: int, stop: int, by_key: Any) -> None:
    """m_j e_j Re sum_k series_k e^{ik theta_j}, by Horner's rule in e^{i theta}."""
    wide()
    real, imaginary, turn_c, turn_s = np.empty(_LANES), np.empty(_LANES), np.empty(_LANES), np.empty(_LANES)
    for first in range(start, stop, _LANES):
        size = min(_LANES, stop - first)
        for l in range(size):
            turn_c[l], turn_s[l] = keys[0, first + l], keys[1, first + l]
            real[l], imaginary[l] = 0.0, 0.0
        for k in range(series.shape[1] - 1, -1, -1):
            u, v = series[0, k], series[1, k]
            for l in range(size):
                x, z = real[l], imaginary[l]
                real[l] = u + x * turn_c[l] - z * turn_s[l]
                imaginary[l] = v + z * turn_c[l] + x * turn_s[l]
        for l in range(size):
            slope = mass[first + l] * real[l]
            by_key[0, first + l], by_key[1, first + l] = -turn_s[l] * slope, turn_c[l] * slope
