"""Arcs of the circle: sixteen proxies for the keys of one, sixteen nodes for its queries.

Keys k = cos(phi) u + sin(phi) u' of an arc |sin(phi)| <= s around u are gathered at Chebyshev nodes of sin(phi)/s,
and for queries z = A y, y on an arc, sum_j m_j e^{<z, k_j - u>} (k_j, 1) is interpolated from such nodes, u being
that of the arc of keys which counts most. A polynomial through p Chebyshev nodes of a function that is at most M on
the ellipse with foci -1, 1 and half-axes (rho +- 1/rho)/2 errs by at most 4 M rho^(1-p)/(rho - 1). With
a = s |<z, u'>| and b = s^2 |z|, e^{<z, k>} is at most e^{<z, u> + a w + 0.7 b w^2} there, w = (rho + 1/rho)/2, as
long as s w <= 0.9. What an arc errs thus counts with its share of the partition, of which Jensen's inequality gives
a bound over the arc of queries (`nearby.walk`): far arcs may err a lot. Arcs of keys that err too much are taken
key by key, arcs of queries query by query.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from metastable.attention.exp2 import LOG2_E, REDUCTION, log, wide
from metastable.attention.lanes import LANES
from metastable.attention.nearby.lanes import sums_in_the_plane

NODES = 16
"""Proxies and nodes of an arc: two vectors."""
SHARE = 0.15
"""Part of the tolerance for proxies, for nodes, and for arcs that are left out: together 0.45 of the partition, and
twice that of the mean."""
WIDEST = 0.24
"""Sine of the widest arc."""
_WIDTH = 0.5
"""Sine of an arc times sqrt(beta |q|) at a tolerance of 1e-9, with whose sixteenth root it grows: of 0.3 to 1.3,
for beta = 1 to 1000, the least time. The bound of wider ones exceeds what they may err, and they are taken key by
key."""
_SPARSE = 1.8
"""Times that width where arcs of it would hold less keys than proxies: then some of them are taken key by key."""
_STEEPEST = 300.0
"""Largest change of a score over an arc of queries: e to that must not overflow."""
_BLOCK = 64
"""Tokens whose polynomials are computed together."""
_RHO = np.array([1.5, 2.0, 3.0, 4.5, 7.0, 11.0, 17.0, 26.0])
_LOG_FACTOR = np.log(4.0 / (_RHO - 1.0)) - (NODES - 1) * np.log(_RHO)
_REACH = 0.5 * (_RHO + 1.0 / _RHO)
_AT = np.cos(math.pi * (np.arange(NODES) + 0.5) / NODES)
_TRANSFORM = np.cos(math.pi * np.outer(np.arange(NODES), np.arange(NODES) + 0.5) / NODES) * (2.0 / NODES)
_TRANSFORM[0] *= 0.5
"""[l, a]: values at nodes to Chebyshev coefficients, and, transposed, moments of T_l to masses of proxies."""


class Arcs(NamedTuple):
    """Tokens in the order of the circle, in runs."""

    first: np.ndarray
    """(runs + 1,): where each begins."""
    centre: np.ndarray
    """(2, runs): u."""
    sine: np.ndarray
    """(runs,): s."""
    mean: np.ndarray
    """(2, runs): of the keys, by mass."""
    log_mass: np.ndarray
    proxies: np.ndarray
    """(3, 16 runs): where they are, and their masses in the last row; the keys themselves where they are fewer."""
    exact: np.ndarray
    """(runs,): whether they are the keys."""
    at: np.ndarray
    """(n,): sin(phi)/s of every token."""


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def gather_arcs(keys: Any, n: int, widest: float) -> Arcs:
    """Of n keys (3, ...), with the masses in the last row, arcs of half-width up to asin(widest)."""
    wide()
    first = np.empty(n + 1, dtype=np.int64)
    runs, limit = 0, 1.0 - 2.0 * widest * widest
    x, y = 2.0, 0.0
    for i in range(n):
        if x > 1.5 or keys[0, i] * x + keys[1, i] * y < limit:
            first[runs] = i
            runs += 1
            x, y = keys[0, i], keys[1, i]
    first = first[: runs + 1].copy()
    first[runs] = n
    centre, sine, mean = np.empty((2, runs)), np.empty(runs), np.empty((2, runs))
    log_mass, proxies = np.empty(runs), np.zeros((3, NODES * runs))
    exact, at = np.zeros(runs, dtype=np.bool_), np.empty(n)
    moments, before, now = np.empty(NODES), np.empty(_BLOCK), np.empty(_BLOCK)
    for run in range(runs):
        start, stop = first[run], first[run + 1]
        x, y = keys[0, start], keys[1, start]
        low, high, total, mean_x, mean_y = 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(start, stop):
            across = x * keys[1, i] - y * keys[0, i]
            low, high = min(low, across), max(high, across)
            mass = keys[2, i]
            total += mass
            mean_x += mass * keys[0, i]
            mean_y += mass * keys[1, i]
        low, high = math.asin(max(low, -1.0)), math.asin(min(high, 1.0))
        turn = 0.5 * (low + high)
        u, v = x * math.cos(turn) - y * math.sin(turn), x * math.sin(turn) + y * math.cos(turn)
        s = math.sin(0.5 * (high - low)) * (1.0 + 1e-12) + 1e-15
        centre[0, run], centre[1, run], sine[run] = u, v, s
        mean[0, run], mean[1, run], log_mass[run] = mean_x / total, mean_y / total, math.log(total)
        inverse = 1.0 / s
        for i in range(start, stop):
            at[i] = (u * keys[1, i] - v * keys[0, i]) * inverse
        if stop - start <= NODES:
            exact[run] = True
            for i in range(NODES):
                j = min(start + i, stop - 1)
                proxies[0, NODES * run + i], proxies[1, NODES * run + i] = keys[0, j], keys[1, j]
                proxies[2, NODES * run + i] = keys[2, j] if start + i < stop else 0.0
            continue
        moments[:] = 0.0
        for begin in range(start, stop, _BLOCK):
            length = min(_BLOCK, stop - begin)
            here, mass = at[begin : begin + length], keys[2, begin : begin + length]
            for i in range(length):
                before[i], now[i] = mass[i], mass[i] * here[i]
            for power in range(NODES):
                value = 0.0
                for i in range(length):
                    value += before[i]
                    following = 2.0 * here[i] * now[i] - before[i]
                    before[i], now[i] = now[i], following
                moments[power] += value
        for a in range(NODES):
            value = 0.0
            for power in range(NODES):
                value += _TRANSFORM[power, a] * moments[power]
            t = s * _AT[a]
            c = math.sqrt(1.0 - t * t)
            proxies[0, NODES * run + a], proxies[1, NODES * run + a] = c * u - t * v, c * v + t * u
            proxies[2, NODES * run + a] = value
    return Arcs(first, centre, sine, mean, log_mass, proxies, exact, at)


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _log_error(a: float, b: float, sine: float) -> float:
    """log of the error relative to e^{<z, u>}: the best of some ellipses."""
    least = 1e300
    for r in range(len(_RHO)):
        w = _REACH[r]
        if sine * w <= 0.9:
            least = min(least, _LOG_FACTOR[r] + a * w + 0.7 * b * w * w)
    return least


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def attend_arcs(
    first_run: int, last_run: int, keys: Any, arcs: Any, z: Any, A: Any, rtol: float, mean: Any, log_partition: Any
) -> int:
    """Means (n, 2) and log-partitions of queries z = A y (2, n), of some arcs of y; returns the pairs it took."""
    wide()
    runs, pairs = len(arcs.sine), 0
    flat, length, near, long = keys.ravel(), keys.shape[1], arcs.proxies.ravel(), arcs.proxies.shape[1]
    score, begins, ends = np.empty(runs), np.empty(runs, dtype=np.int64), np.empty(runs, dtype=np.int64)
    by_proxy = np.empty(runs, dtype=np.bool_)
    lanes, found = np.empty(3 * LANES), np.empty(3 * LANES)
    at_nodes, coefficients = np.empty((3, NODES)), np.empty((3, NODES))
    before, now, value = np.empty(_BLOCK), np.empty(_BLOCK), np.empty((3, _BLOCK))
    cut = math.log(SHARE * rtol / runs)
    for run in range(first_run, last_run):
        start, stop = arcs.first[run], arcs.first[run + 1]
        c, d, sine = arcs.centre[0, run], arcs.centre[1, run], arcs.sine[run]
        zx, zy = A[0, 0] * c + A[0, 1] * d, A[1, 0] * c + A[1, 1] * d
        tx, ty = A[0, 1] * c - A[0, 0] * d, A[1, 1] * c - A[1, 0] * d
        size, turned = math.hypot(zx, zy), math.hypot(tx, ty)
        reach = turned * sine + size * (1.0 - math.sqrt(1.0 - sine * sine))
        # log Z(z) >= floor + <z - z_c, k>, k the mean of the means of the arcs.
        top, best = -1e300, 0
        for k in range(runs):
            score[k] = arcs.log_mass[k] + zx * arcs.mean[0, k] + zy * arcs.mean[1, k]
            if score[k] > top:
                top, best = score[k], k
        total, mx, my = 0.0, 0.0, 0.0
        for k in range(runs):
            if score[k] > top - 40.0:
                weight = math.exp(score[k] - top)
                total += weight
                mx += weight * arcs.mean[0, k]
                my += weight * arcs.mean[1, k]
        mx, my, floor = mx / total, my / total, top + math.log(total)
        ux, uy = arcs.centre[0, best], arcs.centre[1, best]
        off_mean = reach * math.hypot(ux - mx, uy - my)
        kept, of_proxies, of_nodes = 0, 0.0, 0.0
        for k in range(runs):
            px, py, s = arcs.centre[0, k], arcs.centre[1, k], arcs.sine[k]
            along, across = zx * px + zy * py, abs(zy * px - zx * py)
            bend = 1.0 - math.sqrt(1.0 - s * s)
            share = arcs.log_mass[k] + along - floor
            moved = share + reach * math.hypot(px - mx, py - my)
            a = s * (across + reach)
            if moved + a + (size + reach) * bend <= cut:
                continue
            begins[kept], ends[kept], by_proxy[kept] = NODES * k, NODES * (k + 1), True
            if not arcs.exact[k]:
                error = math.exp(min(moved + _log_error(a, s * s * (size + reach), s), 0.0))
                if of_proxies + error <= SHARE * rtol:
                    of_proxies += error
                else:
                    begins[kept], ends[kept], by_proxy[kept] = arcs.first[k], arcs.first[k + 1], False
            dx, dy = px - ux, py - uy
            a = sine * (abs(tx * dx + ty * dy) + turned * (s + bend))
            b = sine * sine * (abs(zx * dx + zy * dy) + size * (s + bend))
            exponent = share + s * across + size * bend + off_mean + _log_error(a, b, sine)
            of_nodes += math.exp(min(exponent, 0.0))
            kept += 1
        by_nodes = stop - start > NODES and of_nodes <= SHARE * rtol
        # Exponents of nodes are relative to u, so that what is interpolated varies little.
        at_centre = floor - (zx * ux + zy * uy)
        for begin in range(0, NODES if by_nodes else stop - start, LANES):
            for a in range(LANES):
                if by_nodes:
                    t = sine * _AT[begin + a]
                    cosine = math.sqrt(1.0 - t * t)
                    qx, qy = cosine * zx + t * tx, cosine * zy + t * ty
                    shift = at_centre + qx * ux + qy * uy
                else:
                    i = min(start + begin + a, stop - 1)
                    qx, qy = z[0, i], z[1, i]
                    shift = floor + (qx - zx) * mx + (qy - zy) * my
                lanes[a], lanes[LANES + a], lanes[2 * LANES + a] = qx * LOG2_E, qy * LOG2_E, -shift * LOG2_E
            found[:] = 0.0
            j = 0
            while j < kept:
                from_here = j
                j += 1
                while j < kept and by_proxy[j] == by_proxy[j - 1] and begins[j] == ends[j - 1]:
                    j += 1
                if by_proxy[from_here]:
                    sums_in_the_plane(near, long, begins[from_here], ends[j - 1], lanes, found)
                else:
                    sums_in_the_plane(flat, length, begins[from_here], ends[j - 1], lanes, found)
                pairs += LANES * (ends[j - 1] - begins[from_here])
            if by_nodes:
                for f in range(3):
                    for a in range(LANES):
                        at_nodes[f, begin + a] = found[f * LANES + a]
            else:
                for i in range(start + begin, min(start + begin + LANES, stop)):
                    a = i - start - begin
                    mean[i, 0] = found[a] / found[2 * LANES + a]
                    mean[i, 1] = found[LANES + a] / found[2 * LANES + a]
                    log_partition[i] = math.log(found[2 * LANES + a]) - lanes[2 * LANES + a] / LOG2_E
        if not by_nodes:
            continue
        for f in range(3):
            for power in range(NODES):
                part = 0.0
                for a in range(NODES):
                    part += _TRANSFORM[power, a] * at_nodes[f, a]
                coefficients[f, power] = part
        for begin in range(start, stop, _BLOCK):
            count = min(_BLOCK, stop - begin)
            here = arcs.at[begin : begin + count]
            for i in range(count):
                before[i], now[i] = 1.0, here[i]
                value[0, i], value[1, i], value[2, i] = 0.0, 0.0, 0.0
            for power in range(NODES):
                x, y, w = coefficients[0, power], coefficients[1, power], coefficients[2, power]
                for i in range(count):
                    value[0, i] += x * before[i]
                    value[1, i] += y * before[i]
                    value[2, i] += w * before[i]
                    following = 2.0 * here[i] * now[i] - before[i]
                    before[i], now[i] = now[i], following
            for i in range(count):
                inverse = 1.0 / value[2, i]
                mean[begin + i, 0] = value[0, i] * inverse
                mean[begin + i, 1] = value[1, i] * inverse
                log_partition[begin + i] = (
                    log(value[2, i]) + at_centre + z[0, begin + i] * ux + z[1, begin + i] * uy
                )
    return pairs


def arcs_for(keys: np.ndarray, n: int, sharpness: float, rtol: float) -> Arcs | None:
    """Arcs for queries of at most that length; None where they would hold less keys than proxies."""
    for factor in (1.0, _SPARSE):
        width = factor * _WIDTH * (1e9 * rtol) ** (1.0 / NODES) / math.sqrt(max(sharpness, 1e-300))
        widest = min(width, WIDEST)
        if 2.2 * sharpness * widest > _STEEPEST:
            return None
        arcs = gather_arcs(keys, n, widest)
        if NODES * len(arcs.sine) <= n:
            return arcs
    return None
