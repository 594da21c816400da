"""Which cells a group of queries sees, with a rigorous bound of what that choice costs (the walk of `sphere_cells`).

A group is a box of scaled queries z = beta q: centre z_c, orthonormal frame f, half-widths R. With the attended mean k̄
at z_c, Jensen's inequality gives for every z of the box
    sum_j m_j e^{<z, k_j - k̄>} >= sum_j m_j e^{<z_c, k_j - k̄>} = G,
so whatever is left out or misjudged may be measured against G alone. The walk goes down the key tree and
- drops a cell if its mass times the largest e^{<z, k - k̄>} over its cone and the box is below a share of rtol G;
- takes its p^2 proxies if the interpolation error of e^{<z, k>} over the cell is: on a Bernstein ellipse rho around a side
  of half-angle h, with A = (rho + 1/rho)/2, a point turns by a complex angle of at most Psi = hA/(1 - hA/D), thus
  |f - If| <= 4 rho^{1-p}/(rho - 1) e^{slope sinh Psi + |z|(cosh Psi - 1)} e^{<z, c>}, and the best rho of a list is used;
- takes the keys themselves in a leaf.
The two kinds of error are summed as they occur.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.exp2 import NO_REASSOCIATION, REDUCTION, exp2

LOG2_E = math.log2(math.e)
_ELLIPSE = np.array([1.3, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.3, 8.0, 10.0, 14.0, 20.0, 32.0, 64.0, 256.0, 4096.0])
_HALF_SUM = 0.5 * (_ELLIPSE + 1.0 / _ELLIPSE)
_LOG_ELLIPSE = np.log(_ELLIPSE)
_LOG_FRONT = np.log(4.0 / (_ELLIPSE - 1.0))
_LARGEST_TURN = 1.2


@njit(cache=True, nogil=True)
def log_side_error(p: int, slope: float, size: float, angle: float, ratio: float) -> float:
    """Log of the bound above, relative to e^{<z, c>}, for one side of a cell; +inf when no ellipse of the list fits."""
    best = np.inf
    for r in range(len(_ELLIPSE)):
        reach = ratio * _HALF_SUM[r]
        if reach >= 0.9:
            break
        turn = angle * _HALF_SUM[r] / (1.0 - reach)
        if turn > _LARGEST_TURN:
            break
        square = turn * turn
        # Upper bounds of sinh(turn) and cosh(turn) - 1 up to 1.2.
        value = slope * turn * (1.0 + square / 5.3) + size * 0.5 * square * (1.0 + square / 11.0)
        value += _LOG_FRONT[r] - (p - 1) * _LOG_ELLIPSE[r]
        if value > best:
            break
        best = value
    return best


@njit(cache=True, nogil=True)
def walk(
    tree: Any, z: Any, reference: Any, frame: Any, widths: Any, log_floor: float, log_share: float, limit: int,
    found: Any,
) -> tuple[Any, int, int, float]:  # fmt: skip
    """(cells, how many, how many points they hold, error bound) for a box of queries; proxied cells as ~cell.

    `log_floor` is a lower bound of log sum_j m_j e^{<z_c, k_j - reference>}; every dropped or interpolated cell may
    cost e^{log_share} of it. Stops with a negative number of points when more than `limit` are needed.
    """
    p = int(math.sqrt(tree.nodes.shape[2]) + 0.5)
    log_lebesgue = math.log(1.0 + 2.0 / math.pi * math.log(p + 1.0))
    size = math.sqrt(z[0] ** 2 + z[1] ** 2 + z[2] ** 2)
    reach = widths[0] + widths[1] + widths[2]
    stack = np.empty(256, dtype=np.int64)
    stack[0] = 0
    depth = 1
    count = 0
    points = 0
    error = 0.0
    while depth > 0:
        depth -= 1
        cell = stack[depth]
        c0, c1, c2 = tree.cone[cell, 0], tree.cone[cell, 1], tree.cone[cell, 2]
        d0, d1, d2 = c0 - reference[0], c1 - reference[1], c2 - reference[2]
        base = tree.log_mass[cell] - log_floor + z[0] * d0 + z[1] * d1 + z[2] * d2
        for i in range(3):
            base += widths[i] * abs(frame[i, 0] * d0 + frame[i, 1] * d1 + frame[i, 2] * d2)
        along = z[0] * c0 + z[1] * c1 + z[2] * c2
        across = math.sqrt((z[0] - along * c0) ** 2 + (z[1] - along * c1) ** 2 + (z[2] - along * c2) ** 2)
        cosine, sine = tree.cone[cell, 3], tree.cone[cell, 4]
        if tree.radius[cell] >= math.pi:
            rise = size - along
        elif along > 0.0 and across * cosine <= along * sine:
            rise = across * across / (size + along)
        else:
            rise = along * (cosine - 1.0) + across * sine
        top = base + rise + reach * tree.radius[cell]
        if top < log_share:
            error += math.exp(top)
            continue
        if tree.proxy[cell] >= 0:
            chart = tree.chart[cell]
            rise_x = abs(z[0] * chart[0] + z[1] * chart[1] + z[2] * chart[2])
            rise_y = abs(z[0] * chart[3] + z[1] * chart[4] + z[2] * chart[5])
            for i in range(3):
                rise_x += widths[i] * abs(frame[i, 0] * chart[0] + frame[i, 1] * chart[1] + frame[i, 2] * chart[2])
                rise_y += widths[i] * abs(frame[i, 0] * chart[3] + frame[i, 1] * chart[4] + frame[i, 2] * chart[5])
            longest = size + reach
            # How fast the slope along one side changes along the other: the tangent turns towards k by the
            # skewness of the chart, and within the tangent plane, where only the small part of z counts.
            turning = longest * chart[10] + across + reach + longest * tree.radius[cell]
            slope_x = rise_x / max(chart[6], 1e-300) + turning * chart[7]
            slope_y = rise_y / max(chart[7], 1e-300) + turning * chart[6]
            error_x = log_side_error(p, slope_x, longest, chart[6], chart[8])
            error_y = log_side_error(p, slope_y, longest, chart[7], chart[9])
            error_x += rise_y + 0.5 * longest * chart[7] ** 2
            error_y += rise_x + 0.5 * longest * chart[6] ** 2 + log_lebesgue
            cost = base + max(error_x, error_y) + math.log1p(math.exp(-abs(error_x - error_y)))
            if cost < log_share:
                error += math.exp(cost)
                if count == len(found):
                    found = np.concatenate((found, found))
                found[count] = ~cell
                count += 1
                points += p * p
                if points > limit:
                    return found, count, -1, error
                continue
        if tree.children[cell] == 0:
            if count == len(found):
                found = np.concatenate((found, found))
            found[count] = cell
            count += 1
            points += tree.stop[cell] - tree.start[cell]
            if points > limit:
                return found, count, -1, error
            continue
        if depth + 4 > len(stack):
            stack = np.concatenate((stack, stack))
        for part in range(tree.child[cell], tree.child[cell] + tree.children[cell]):
            stack[depth] = part
            depth += 1
    return found, count, points, error


@njit(cache=True, nogil=True)
def descend(tree: Any, z: Any, reference: Any) -> float:
    """A lower bound of log sum_j m_j e^{<z, k_j - reference>}, where `reference` becomes what gives it.

    Jensen: a cell of mass m and mean k̄ contributes at least m e^{<z, k̄>}. Follows the best child down to a key.
    """
    cell = 0
    leaf = 0
    chosen = 0
    best = -np.inf
    while True:
        value = tree.log_mass[cell]
        for c in range(3):
            value += z[c] * tree.mean[cell, c]
        if value > best:
            best, chosen = value, cell
        if tree.children[cell] == 0:
            leaf = cell
            break
        following, most = cell, -np.inf
        for part in range(tree.child[cell], tree.child[cell] + tree.children[cell]):
            value = tree.log_mass[part]
            for c in range(3):
                value += z[c] * tree.mean[part, c]
            if value > most:
                following, most = part, value
        cell = following
    log_mass = tree.log_mass[chosen]
    for c in range(3):
        reference[c] = tree.mean[chosen, c]
    for j in range(tree.start[leaf], tree.stop[leaf]):
        value = math.log(tree.keys[3, j])
        for c in range(3):
            value += z[c] * tree.keys[c, j]
        if value > best:
            best, log_mass = value, math.log(tree.keys[3, j])
            for c in range(3):
                reference[c] = tree.keys[c, j]
    return log_mass


@njit(cache=True, nogil=True)
def unpack(tree: Any, found: Any, count: int, points: int, reference: Any) -> Any:
    """(4, points): the keys and proxies of the cells found, minus `reference`, and their weights."""
    seen = np.empty((4, points))
    at = 0
    for i in range(count):
        cell = found[i]
        if cell < 0:
            source = tree.nodes[tree.proxy[~cell]]
            first, last = 0, source.shape[1]
        else:
            source = tree.keys
            first, last = tree.start[cell], tree.stop[cell]
        for j in range(first, last):
            seen[0, at + j - first] = source[0, j] - reference[0]
            seen[1, at + j - first] = source[1, j] - reference[1]
            seen[2, at + j - first] = source[2, j] - reference[2]
            seen[3, at + j - first] = source[3, j]
        at += last - first
    return seen


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def row_top(seen: Any, z: Any) -> float:
    """max_a <z, k_a>."""
    top = -1e300
    for a in range(seen.shape[1]):
        t = z[0] * seen[0, a] + z[1] * seen[1, a] + z[2] * seen[2, a]
        top = t if t > top else top
    return top


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def row_sums(seen: Any, z0: float, z1: float, z2: float, log_floor: float) -> tuple[float, float, float, float]:
    """sum_a w_a e^{<z, k_a> - log_floor} (k_a, 1)."""
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    z0, z1, z2, shift = z0 * LOG2_E, z1 * LOG2_E, z2 * LOG2_E, -log_floor * LOG2_E
    for a in range(seen.shape[1]):
        t = shift + z0 * seen[0, a] + z1 * seen[1, a] + z2 * seen[2, a]
        t = t if t > -1000.0 else -1000.0
        w = exp2(t if t < 1000.0 else 1000.0) * seen[3, a]
        s0 += w * seen[0, a]
        s1 += w * seen[1, a]
        s2 += w * seen[2, a]
        s3 += w
    return s0, s1, s2, s3


@njit(cache=True, nogil=True, fastmath=NO_REASSOCIATION, error_model="numpy")
def powers_of_two(exponents: Any, out: Any) -> None:
    """out = 2^exponents, entry by entry, clamped to what float64 holds."""
    for i in range(len(exponents)):
        t = exponents[i]
        t = t if t > -1000.0 else -1000.0
        out[i] = exp2(t if t < 1000.0 else 1000.0)
