"""One patch of queries on the circle: which key cells matter, at which level, and F e^{-<z, u>} at its nodes.

A patch is the set of z with angle in a cell and |z| in [low, high]. For every scanned key cell c, the share is an
upper bound over the patch of its part of F(z), from the comparison with the best cell b at the same z,
    log share_c = log M_c - log M_b + |z| (cos(least angle to c) - cos(largest angle to b)).
Cells below the tolerance are left out. All functions that are interpolated are entire, so p Chebyshev nodes leave
an error of at most 4 G rho^(1-p) / (rho - 1) for every rho > 1, where G = sum_c share_c e^{range_c + growth_c}: the
range of the exponent over the interval (errors are relative to the least value, not to the largest) and its growth
from there to the ellipse of Bernstein with parameter rho. Orders and level are the least ones for which the best of
several rho meets the tolerance.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.circle_keys import COARSEST
from metastable.attention.exp2 import REDUCTION, exp2

MOST = 28
"""Largest order of interpolation in a patch."""
_LOG2_E = math.log2(math.e)
_ELLIPSES = (1.5, 2.0, 2.7, 3.6, 4.8, 6.5, 9.0, 13.0, 20.0, 40.0, 100.0, 1e3, 1e5, 1e9, 1e14)


@njit(nogil=True, cache=True, error_model="numpy")
def scan(
    centre: Any,
    half: Any,
    log_mass: Any,
    level: int,
    x: float,
    y: float,
    spread: float,
    low: float,
    high: float,
    rtol: float,
) -> tuple[int, Any, Any]:
    """(best cell, cells that matter, log of their shares) among the key cells of `level`, for a patch at (x, y)."""
    first, count = 2**level - 2**COARSEST, 2**level
    best, best_value = first, -np.inf
    for c in range(first, first + count):
        if log_mass[c] > -np.inf:
            value = log_mass[c] + 0.5 * (low + high) * (centre[c, 0] * x + centre[c, 1] * y)
            if value > best_value:
                best, best_value = c, value
    u, v = centre[best]
    angle = math.atan2(abs(v * x - u * y), u * x + v * y) + half[best] + spread
    from_best = math.cos(min(angle, math.pi))
    cells, log_share = np.empty(count, dtype=np.int64), np.empty(count)
    found, least = 0, math.log(0.1 * rtol / count)
    for c in range(first, first + count):
        if log_mass[c] > -np.inf:
            cosine, sine = centre[c, 0] * x + centre[c, 1] * y, abs(centre[c, 1] * x - centre[c, 0] * y)
            wide = half[c] + spread
            # cos(angle - wide) <= cos(angle) + wide sin(angle) + wide^2 / 2 where the cosine is negative.
            nearest = 1.0
            if cosine <= 0.0 or sine > wide:
                nearest = min(cosine + sine * wide + (0.5 * wide * wide if cosine < 0.0 else 0.0), 1.0)
            difference = nearest - from_best
            share = log_mass[c] - log_mass[best] + max(low * difference, high * difference)
            if share > least:
                cells[found] = c
                log_share[found] = min(share, 0.0)
                found += 1
    return best, cells[:found], log_share[:found]


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


@njit(nogil=True, cache=True, error_model="numpy")
def key_level(
    centre: Any,
    half: Any,
    cells: Any,
    log_share: Any,
    level: int,
    finest: int,
    p: int,
    x: float,
    y: float,
    spread: float,
    high: float,
    rtol: float,
) -> tuple[int, float]:
    """Least level at which the proxies of the cells that matter are accurate enough, and their error there.

    Along theta the exponent |z| cos(theta - phi) grows by |z| (slope h (a - 1) + cosh(h b) - 1) to the ellipse with
    half axes a, b, and the value k(theta) by h b.
    """
    error = 0.0
    widest = 0.0
    for c in cells:
        widest = max(widest, half[c])
    for fine in range(level, finest + 1):
        h = 1.08 * widest / 2 ** (fine - level)
        error = np.inf
        for rho in _ELLIPSES:
            a, b = 0.5 * (rho + 1.0 / rho), 0.5 * (rho - 1.0 / rho)
            if b * h > 1.0:
                break
            bend = high * (math.cosh(h * b) - 1.0) + h * b - (p - 1) * math.log(rho)
            total = 0.0
            for i in range(cells.shape[0]):
                c = cells[i]
                slope = min(abs(centre[c, 1] * x - centre[c, 0] * y) + half[c] + spread, 1.0)
                total += math.exp(min(log_share[i] + bend + high * slope * h * (a + 1.0), 50.0))
                if 4.0 * total > error * (rho - 1.0):
                    break
            error = min(error, 4.0 * total / (rho - 1.0))
        if error <= 0.2 * rtol:
            return fine, error
    return finest, error


@njit(nogil=True, cache=True, error_model="numpy")
def proxies(
    centre: Any, half: Any, weight: Any, log_mass: Any, cells: Any, level: int, fine: int, nodes: Any, u: Any
) -> tuple[Any, Any, Any]:
    """(k - u as two columns, W) of all proxies at level `fine` inside the cells of `level` that matter."""
    p, ratio = nodes.shape[0], 2 ** (fine - level)
    first, above = 2**fine - 2**COARSEST, 2**level - 2**COARSEST
    count = 0
    for c in cells:
        for child in range(first + (c - above) * ratio, first + (c - above + 1) * ratio):
            count += p if log_mass[child] > -np.inf else 0
    dx, dy, w = np.empty(count), np.empty(count), np.empty(count)
    count = 0
    for c in cells:
        for child in range(first + (c - above) * ratio, first + (c - above + 1) * ratio):
            if log_mass[child] > -np.inf:
                x, y, sine = centre[child, 0], centre[child, 1], math.sin(half[child])
                for a in range(p):
                    along = nodes[a] * sine
                    up = math.sqrt(1.0 - along * along)
                    dx[count] = x * up - y * along - u[0]
                    dy[count] = y * up + x * along - u[1]
                    w[count] = weight[child, a]
                    count += 1
    return dx, dy, w


@njit(nogil=True, cache=True, fastmath=REDUCTION, error_model="numpy")
def proxy_sums(x: float, y: float, dx: Any, dy: Any, w: Any) -> tuple[float, float, float]:
    """sum W e^{<z, k - u>} (1, k - u)."""
    x, y = x * _LOG2_E, y * _LOG2_E
    total = first = second = 0.0
    for j in range(w.shape[0]):
        t = x * dx[j] + y * dy[j]
        e = exp2(t if t > -1000.0 else -1000.0) * w[j]
        total += e
        first += e * dx[j]
        second += e * dy[j]
    return total, first, second


@njit(nogil=True, cache=True, error_model="numpy")
def direct(
    centre: Any,
    half: Any,
    weight: Any,
    log_mass: Any,
    finest: int,
    nodes: Any,
    level: int,
    x: float,
    y: float,
    rtol: float,
    found: Any,
) -> float:
    """(mean, log F) of one query as found[0:3], straight from the proxies; returns the error."""
    size = math.sqrt(x * x + y * y)
    cx, cy = (x / size, y / size) if size > 0.0 else (1.0, 0.0)
    best, cells, log_share = scan(centre, half, log_mass, level, cx, cy, 0.0, size, size, rtol)
    u = centre[best]
    fine, error = key_level(centre, half, cells, log_share, level, finest, nodes.shape[0], cx, cy, 0.0, size, rtol)
    dx, dy, w = proxies(centre, half, weight, log_mass, cells, level, fine, nodes, u)
    total, first, second = proxy_sums(x, y, dx, dy, w)
    found[0], found[1] = u[0] + first / total, u[1] + second / total
    found[2] = math.log(total) + x * u[0] + y * u[1]
    return error + 0.1 * rtol


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
        curve = math.cosh(spread * b) - 1.0
        total = 0.0
        for i in range(log_share.shape[0]):
            total += math.exp(min(log_share[i] + ranges[i] * (a - 1.0) + bends[i] * curve, 300.0))
        least = min(least, 1.0 + math.log(100.0 * total / ((rho - 1.0) * rtol)) / math.log(rho))
    return max(math.ceil(least), 1)


@njit(nogil=True, cache=True, error_model="numpy")
def interpolate(
    x: float,
    y: float,
    spread: float,
    low: float,
    high: float,
    rows: int,
    columns: int,
    nodes: Any,
    dx: Any,
    dy: Any,
    w: Any,
    coefficients: Any,
) -> float:
    """Coefficients of rows x columns Chebyshev polynomials; returns the size of the last ones relative to F."""
    at_nodes = np.empty((3, rows, columns))
    least = np.inf
    for r in range(rows):
        size = 0.5 * (low + high) + 0.5 * (high - low) * nodes[rows, r] * (rows > 1)
        for a in range(columns):
            along = nodes[columns, a] * math.sin(spread)
            up = math.sqrt(1.0 - along * along)
            sums = proxy_sums(size * (x * up - y * along), size * (y * up + x * along), dx, dy, w)
            at_nodes[0, r, a], at_nodes[1, r, a], at_nodes[2, r, a] = sums
            least = min(least, sums[0])
    across, along_z = np.empty((columns, columns)), np.empty((rows, rows))
    for k in range(columns):
        for a in range(columns):
            across[k, a] = math.cos(k * (2 * a + 1) * math.pi / (2 * columns)) * (1.0 if k == 0 else 2.0) / columns
    for l in range(rows):
        for r in range(rows):
            along_z[l, r] = math.cos(l * (2 * r + 1) * math.pi / (2 * rows)) * (1.0 if l == 0 else 2.0) / rows
    tail = 0.0
    for f in range(3):
        for k in range(columns):
            for l in range(rows):
                value = 0.0
                for r in range(rows):
                    inner = 0.0
                    for a in range(columns):
                        inner += across[k, a] * at_nodes[f, r, a]
                    value += along_z[l, r] * inner
                coefficients[f, l, k] = value
                if (columns > 2 and k == columns - 1) or (rows > 2 and l == rows - 1):
                    tail += abs(value)
    return tail / least


@njit(nogil=True, cache=True, error_model="numpy")
def solve_patch(
    centre: Any,
    half: Any,
    weight: Any,
    log_mass: Any,
    finest: int,
    p_nodes: Any,
    level: int,
    patch: int,
    low: float,
    high: float,
    many: int,
    rtol: float,
    nodes: Any,
    coefficients: Any,
    towards: Any,
    orders: Any,
) -> float:
    """Chebyshev coefficients of F e^{-<z,u>} and of its gradient there; returns the error of the patch.

    orders = (rows in |z|, columns in angle), or (0, 0) when the queries of the patch are better summed one by one.
    """
    x, y = centre[patch]
    spread = 1.08 * half[patch]
    best, cells, log_share = scan(centre, half, log_mass, level, x, y, spread, low, high, rtol)
    u = centre[best]
    towards[:] = u
    angular, bends, radial = np.empty(cells.shape[0]), np.empty(cells.shape[0]), np.empty(cells.shape[0])
    reach, toward_u = np.empty(cells.shape[0]), u[0] * x + u[1] * y
    for i in range(cells.shape[0]):
        c = cells[i]
        away = math.hypot(centre[c, 0] - u[0], centre[c, 1] - u[1]) + half[c]
        bends[i] = high * away
        angular[i] = high * away * spread
        radial[i] = abs(centre[c, 0] * x + centre[c, 1] * y - toward_u) + spread * away + half[c]
        radial[i] *= 0.5 * (high - low)
        reach[i] = log_share[i] + 2.0 * (angular[i] + radial[i])
    columns = least_order(reach, angular, bends, spread, rtol)
    rows = least_order(reach, radial, bends, 0.0, rtol) if high > low else 1
    orders[:] = 0
    most_rows = min(MOST, coefficients.shape[1])
    if columns > MOST or rows > most_rows or 2 * rows * columns > many:
        return 0.0
    fine, error = key_level(
        centre, half, cells, log_share, level, finest, p_nodes.shape[0], x, y, spread, high, rtol
    )
    dx, dy, w = proxies(centre, half, weight, log_mass, cells, level, fine, p_nodes, u)
    tail = interpolate(x, y, half[patch], low, high, rows, columns, nodes, dx, dy, w, coefficients)
    if tail > 0.5 * rtol:
        return 0.0
    orders[0], orders[1] = rows, columns
    return error + 0.3 * rtol + tail
