"""Patches of queries on the circle: which key cells matter to one, at which level, and the sums over their proxies.

A patch is a set of z = beta q with directions within `spread` of (x, y) and |z| in [low, high]. For every scanned
key cell c, the share is an upper bound over the patch of its part of F(z), from the comparison with the best cell b
at the same z,
    log share_c = log M_c - log M_b + |z| (cos(least angle to c) - cos(largest angle to b)).
Cells below the tolerance are left out. All functions that are interpolated are entire, so p Chebyshev nodes leave
an error of at most 4 G rho^(1-p) / (rho - 1) for every rho > 1, where G = sum_c share_c e^{range_c + growth_c}: the
range of the exponent over the interval (errors are relative to the least value, not to the largest) and its growth
from there to the ellipse of Bernstein with parameter rho. Orders and level are the least ones for which the best of
several rho meets the tolerance.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit

from metastable.attention.circle.keys import COARSEST, EMPTY, KeyCells, chebyshev_nodes
from metastable.attention.exp2 import REDUCTION, exp2

MOST = 28
"""Largest order of interpolation in a patch."""
_LOG2_E = math.log2(math.e)
_ELLIPSES = (1.5, 2.0, 2.7, 3.6, 4.8, 6.5, 9.0, 13.0, 20.0, 40.0, 100.0, 1e3, 1e5, 1e9, 1e14)


class Patches(NamedTuple):
    """Where the z of every patch are; `level` is that of the key cells which are scanned for it."""

    direction: np.ndarray
    """(patches, 2) unit vectors."""
    spread: np.ndarray
    low: np.ndarray
    high: np.ndarray
    many: np.ndarray
    """Number of queries."""
    level: int


def fresh(*shape: int, dtype: torch.dtype = torch.float64) -> np.ndarray:
    """An uninitialised array from torch's allocator.

    numpy asks for huge pages, and the wait until they are made can exceed the attention of a million tokens.
    """
    return torch.empty(shape, dtype=dtype).numpy()


def patch_level(sharpest: float) -> int:
    """Level of the patches: narrow enough that polynomials of degree ten to fifteen follow F over one."""
    return min(max(math.floor(math.log2(max(16.0 * math.sqrt(sharpest), 1.0))), COARSEST), 11)


def scanned_level(sharpest: float, finest: int, rtol: float) -> int:
    """Level whose cells are a quarter of the angle at which the weight e^{-|z| angle^2 / 2} falls to rtol."""
    window = math.sqrt(2.0 * (4.0 - math.log(rtol)) / max(sharpest, 1.0))
    return min(max(math.ceil(math.log2(8.0 * math.pi / window)), COARSEST), finest, 10)


@cache
def chebyshev_tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes [order, a]; coefficients from values at the nodes [order, k, a]; monomials of T_k [k, power]."""
    nodes, transform = np.zeros((MOST + 1, MOST)), np.zeros((MOST + 1, MOST, MOST))
    for order in range(1, MOST + 1):
        nodes[order, :order] = chebyshev_nodes(order)
        angle = np.arange(order)[:, None] * (2 * np.arange(order) + 1) * math.pi / (2 * order)
        transform[order, :order, :order] = np.cos(angle) * (2.0 / order)
        transform[order, 0, :order] *= 0.5
    monomials = np.zeros((MOST, MOST))
    for k in range(MOST):
        monomials[k, : k + 1] = np.polynomial.chebyshev.cheb2poly([0.0] * k + [1.0])
    return nodes, transform, monomials


@njit(nogil=True, cache=True, fastmath=REDUCTION, error_model="numpy")
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
    middle = 0.5 * (low + high)
    value = np.empty(count)
    top = EMPTY
    for c in range(count):
        v = log_mass[first + c] + middle * (centre[first + c, 0] * x + centre[first + c, 1] * y)
        value[c] = v
        top = v if v > top else top
    best = first
    for c in range(count):
        if value[c] == top:
            best = first + c
            break
    u, v = centre[best]
    angle = math.atan2(abs(v * x - u * y), u * x + v * y) + half[best] + spread
    from_best = math.cos(min(angle, math.pi))
    for c in range(count):
        cosine = centre[first + c, 0] * x + centre[first + c, 1] * y
        sine = abs(centre[first + c, 1] * x - centre[first + c, 0] * y)
        wide = half[first + c] + spread
        # cos(angle - wide) <= cos(angle) + wide sin(angle) + wide^2 / 2 where the cosine is negative.
        nearest = cosine + sine * wide + (0.5 * wide * wide if cosine < 0.0 else 0.0)
        nearest = 1.0 if nearest > 1.0 or (cosine > 0.0 and sine <= wide) else nearest
        difference = nearest - from_best
        value[c] = log_mass[first + c] - log_mass[best] + (high if difference > 0.0 else low) * difference
    cells = np.empty(count, dtype=np.int64)
    found, least = 0, math.log(0.1 * rtol / count)
    for c in range(count):
        if value[c] > least:
            cells[found] = first + c
            value[found] = min(value[c], 0.0)
            found += 1
    return best, cells[:found], value[:found]


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
        e = (constant[i] + slope[i] * t + bend[i] * curve + plus) * _LOG2_E
        e = e if e > -1000.0 else -1000.0
        total += exp2(e if e < 432.0 else 432.0)
    return total


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
    half axes a, b, and the value k(theta) by h b. The shares are bounds and may sum to more than one: then the
    error at the steepest score is the better bound.
    """
    error = 0.0
    widest = 0.0
    slope = np.empty(cells.shape[0])
    for i in range(cells.shape[0]):
        c = cells[i]
        widest = max(widest, half[c])
        slope[i] = high * min(abs(centre[c, 1] * x - centre[c, 0] * y) + half[c] + spread, 1.0)
    for fine in range(level, finest + 1):
        h = 1.08 * widest / 2 ** (fine - level)
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
    return finest, error


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


@njit(nogil=True, cache=True, error_model="numpy")
def proxies(
    centre: Any, sine: Any, weight: Any, log_mass: Any, cells: Any, level: int, fine: int, nodes: Any, u: Any
) -> tuple[Any, Any, Any]:
    """(k - u as two columns, W) of all proxies at level `fine` inside the cells of `level` that matter."""
    p, ratio = nodes.shape[0], 2 ** (fine - level)
    first, above = 2**fine - 2**COARSEST, 2**level - 2**COARSEST
    count = p * ratio * cells.shape[0]
    dx, dy, w = np.empty(count), np.empty(count), np.empty(count)
    count = 0
    for c in cells:
        for child in range(first + (c - above) * ratio, first + (c - above + 1) * ratio):
            if log_mass[child] > EMPTY:
                x, y, s = centre[child, 0], centre[child, 1], sine[child]
                for a in range(p):
                    along = nodes[a] * s
                    up = math.sqrt(1.0 - along * along)
                    dx[count + a] = x * up - y * along - u[0]
                    dy[count + a] = y * up + x * along - u[1]
                    w[count + a] = weight[child, a]
                count += p
    return dx[:count], dy[:count], w[:count]


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


def sum_alone(
    keys: KeyCells,
    patches: Patches,
    queries: np.ndarray,
    beta: float,
    patch: np.ndarray,
    alone: np.ndarray,
    rtol: float,
    mean: np.ndarray,
    log_partition: np.ndarray,
) -> float:
    """(mean, log F) of the queries in the patches marked `alone`, over the proxies themselves; returns the error.

    Patch by patch: the cells that matter to one are found once for all its queries.
    """
    if not patches.many[alone].any():
        return 0.0
    rows = np.flatnonzero(alone[patch])
    rows = rows[np.argsort(patch[rows], kind="stable")]
    p_nodes = chebyshev_nodes(keys.weight.shape[1])
    return float(
        _sum_alone(
            *keys.cells,
            keys.weight,
            keys.log_mass,
            keys.finest,
            p_nodes,
            *patches,
            queries,
            beta,
            patch,
            rows,
            rtol,
            mean,
            log_partition,
        )
    )


@njit(nogil=True, cache=True, error_model="numpy")
def _sum_alone(
    centre: Any,
    half: Any,
    sine: Any,
    weight: Any,
    log_mass: Any,
    finest: int,
    p_nodes: Any,
    direction: Any,
    spread: Any,
    low: Any,
    high: Any,
    _many: Any,
    level: Any,
    queries: Any,
    beta: float,
    patch: Any,
    rows: Any,
    rtol: float,
    mean: Any,
    log_partition: Any,
) -> float:
    worst, place = 0.0, 0
    p = p_nodes.shape[0]
    while place < rows.shape[0]:
        c = patch[rows[place]]
        x, y = direction[c, 0], direction[c, 1]
        best, cells, log_share = scan(centre, half, log_mass, level, x, y, spread[c], low[c], high[c], rtol)
        fine, error = key_level(centre, half, cells, log_share, level, finest, p, x, y, spread[c], high[c], rtol)
        worst = max(worst, error + 0.1 * rtol)
        u = centre[best]
        dx, dy, w = proxies(centre, sine, weight, log_mass, cells, level, fine, p_nodes, u)
        while place < rows.shape[0] and patch[rows[place]] == c:
            i = rows[place]
            zx, zy = beta * queries[i, 0], beta * queries[i, 1]
            shift, total, first, second = _shifted_sums(zx, zy, dx, dy, w)
            mean[i, 0], mean[i, 1] = u[0] + first / total, u[1] + second / total
            log_partition[i] = math.log(total) + zx * u[0] + zy * u[1] + shift
            place += 1
    return worst


@njit(nogil=True, cache=True, fastmath=REDUCTION, error_model="numpy")
def _shifted_sums(x: float, y: float, dx: Any, dy: Any, w: Any) -> tuple[float, float, float, float]:
    """`proxy_sums` divided by e^shift, shift being their largest exponent: u may be far from best for one query."""
    x, y = x * _LOG2_E, y * _LOG2_E
    top = -1e300
    for j in range(w.shape[0]):
        t = x * dx[j] + y * dy[j]
        top = t if t > top else top
    total = first = second = 0.0
    for j in range(w.shape[0]):
        t = x * dx[j] + y * dy[j] - top
        e = exp2(t if t > -1000.0 else -1000.0) * w[j]
        total += e
        first += e * dx[j]
        second += e * dy[j]
    return top / _LOG2_E, total, first, second
