"""Which cells a group of queries sees, with a rigorous bound of what that choice costs (the walk of
`sphere.cells`).

A group is a box of scaled queries z = beta q: centre z_c, orthonormal frame f, half-widths R. With the attended
mean k̄ at z_c, Jensen's inequality gives for every z of the box
    sum_j m_j e^{<z, k_j - k̄>} >= sum_j m_j e^{<z_c, k_j - k̄>} = G,
so whatever is left out or misjudged may be measured against G alone. The walk goes down the key tree and
- drops a cell if its mass times the largest e^{<z, k - k̄>} over its cone and the box is below a share of rtol
  G;
- takes p^2 proxies, with the least p for which the interpolation error of e^{<z, k>} over the cell is: for
  complex x the point k turns along a great circle by a complex angle psi, and Re <z, k> <= cosh(Im psi) max <z,
  k> over the real angles up to |Re psi|. Interpolation at p Chebyshev nodes errs by 4 rho^{1-p}/(rho - 1) times
  the largest value on the Bernstein ellipse rho, here e^{cosh(Im psi) max <z, k>} with the cell widened by |Re
  psi|; the best rho of a list is used;
- takes the keys themselves in a leaf.
The two kinds of error are summed as they occur.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.exp2 import LOG2_E, REDUCTION, exp2
from metastable.attention.sphere.proxies import proxy_points

_ELLIPSE = np.array([1.6, 2.2, 3.0, 4.0, 5.2, 7.0, 10.0, 16.0, 40.0, 400.0])
"""Parameters rho of the Bernstein ellipses that are tried: every one gives a bound, the best is used."""
_HALF_SUM = 0.5 * (_ELLIPSE + 1.0 / _ELLIPSE)
_HALF_DIFFERENCE = 0.5 * (_ELLIPSE - 1.0 / _ELLIPSE)
_LOG_ELLIPSE = np.log(_ELLIPSE)
# 4/(rho - 1), and one more Lebesgue constant (below 3.1 up to p = 24) for the second side.
_LOG_FRONT = np.log(4.0 / (_ELLIPSE - 1.0)) + math.log(1.0 + 3.1)
_LARGEST_TURN = 1.5
"""Largest |Im psi|: up to here the polynomial in `least_order` is above cosh - 1."""
_SLACK = 2.0
"""How far, as a logarithm, the first guess of a partition may be below its heaviest key."""


@njit(cache=True, nogil=True)
def _turns(x: float, y: float, h_x: float, h_y: float, r: int) -> tuple[float, float, float]:
    """Bounds of |Re psi| and |Im psi| for x on the ellipse r and y in the cell, and the angle of the half-side y.

    tan(angle along x) = x/s with s^2 = 1 + y^2, so that d psi/dx = s/(s^2 + x^2): first along the real axis to
    Re x, then upwards by b = h_x (rho - 1/rho)/2, where |s^2 + x^2| >= D^2 - b^2, D^2 = s^2 + (Re x)^2. Negative
    when b is too large.
    """
    near_x, near_y = max(x - h_x * _HALF_SUM[r], 0.0), max(y - h_y, 0.0)
    d_square = 1.0 + near_x * near_x + near_y * near_y
    rate = math.sqrt(1.0 + near_y * near_y) / d_square
    up = (h_x * _HALF_DIFFERENCE[r]) ** 2 / d_square
    if up > 0.8:
        return -1.0, 0.0, 0.0
    real = h_x * _HALF_SUM[r] * rate + 0.5 * up / (1.0 - up)
    imaginary = h_x * _HALF_DIFFERENCE[r] * rate * (1.0 + up / (3.0 - 3.0 * up))
    inner_x = max(x - h_x, 0.0)
    return real, imaginary, h_y * math.sqrt(1.0 + inner_x * inner_x) / (1.0 + inner_x * inner_x + near_y * near_y)


@njit(cache=True, nogil=True)
def least_order(
    base: float, along: float, size: float, direction: float, reach: float, cap: float, chart: Any, log_share: float
) -> tuple[float, float]:  # fmt: skip
    """(least p whose error is below e^{log_share}, slope of the log-error in p).

    base: log of mass e^{<z_c, c - k̄>} e^{reach of the box at c}/G; along = <z_c, c>; direction: angle of z_c and c;
    cap: the largest log of mass e^{<z, k - k̄>}/G of the box over all k of the sphere.
    """
    best, slope = np.inf, 0.0
    for r in range(len(_ELLIPSE)):
        turn, imaginary, other = _turns(chart[0], chart[1], chart[2], chart[3], r)
        turn_y, imaginary_y, other_y = _turns(chart[1], chart[0], chart[3], chart[2], r)
        imaginary = max(imaginary, imaginary_y)
        if min(turn, turn_y) < 0.0 or imaginary > _LARGEST_TURN:
            break
        turn, other = max(turn, turn_y), max(other, other_y)
        radius = math.sqrt(turn * turn + other * (other + 2.0 * chart[4] * turn))
        rise = size if radius >= direction else size * math.cos(direction - radius)
        square = imaginary * imaginary
        growth = 0.5 * square * (1.0 + square / 10.0)  # an upper bound of cosh - 1 up to 1.5
        value = min(base + rise - along + reach * radius, cap) + growth * (max(rise, 0.0) + reach) + _LOG_FRONT[r]
        needed = 1.0 + (value - log_share) / _LOG_ELLIPSE[r]
        if needed < best:
            best, slope = needed, _LOG_ELLIPSE[r]
    return best, slope


@njit(cache=True, nogil=True)
def _highest(
    tree: Any, cell: int, z: Any, size: float, reference: Any, frame: Any, widths: Any, log_floor: float
) -> tuple[float, float, float, float]:  # fmt: skip
    """(log of the largest share of a cell in G, the same at its centre, <z_c, c>, angle of z_c and c)."""
    c0, c1, c2, radius = tree.cone[cell, 0], tree.cone[cell, 1], tree.cone[cell, 2], tree.cone[cell, 3]
    d0, d1, d2 = c0 - reference[0], c1 - reference[1], c2 - reference[2]
    base = tree.log_mass[cell] - log_floor + z[0] * d0 + z[1] * d1 + z[2] * d2
    reach = 0.0
    for i in range(3):
        base += widths[i] * abs(frame[i, 0] * d0 + frame[i, 1] * d1 + frame[i, 2] * d2)
        reach += widths[i]
    along = z[0] * c0 + z[1] * c1 + z[2] * c2
    across = math.sqrt((z[0] - along * c0) ** 2 + (z[1] - along * c1) ** 2 + (z[2] - along * c2) ** 2)
    direction = math.atan2(across, along)
    rise = size if radius >= direction else size * math.cos(direction - radius)
    return base + rise - along + reach * radius, base, along, direction


@njit(cache=True, nogil=True)
def walk(
    tree: Any, z: Any, reference: Any, frame: Any, widths: Any, log_floor: float, log_share: float, limit: int,
    found: Any,
) -> tuple[Any, int, int, float]:  # fmt: skip
    """(cells, how many, how many points they hold, error bound) for a box of queries.

    Row 0 of `cells` is the cell, row 1 the index of its order, -1 for its keys. `log_floor` is a lower bound of
    log sum_j m_j e^{<z_c, k_j - reference>}; every dropped or interpolated cell may cost e^{log_share} of it.
    Stops with a negative number of points when more than `limit` are needed.
    """
    size = math.sqrt(z[0] ** 2 + z[1] ** 2 + z[2] ** 2)
    reach = widths[0] + widths[1] + widths[2]
    cap = -np.inf
    for corner in range(8):
        square, lift = 0.0, 0.0
        for c in range(3):
            entry = z[c]
            for i in range(3):
                entry += frame[i, c] * (widths[i] if (corner >> i) & 1 else -widths[i])
            square += entry * entry
            lift += entry * reference[c]
        cap = max(cap, math.sqrt(square) - lift - log_floor)
    dropped = math.exp(log_share)
    stack = np.empty(256, dtype=np.int64)
    stack[0] = 0
    depth = 1
    count = 0
    points = 0
    error = 0.0
    while depth > 0:
        depth -= 1
        cell = stack[depth]
        most = cap + tree.log_mass[cell]
        top, base, along, direction = _highest(tree, cell, z, size, reference, frame, widths, log_floor)
        share = math.exp(min(top, most, 700.0))
        if top > log_share and top < log_share + 8.0 and tree.children[cell] > 0:
            share = 0.0  # on the brink: ask its children
            for part in range(tree.child[cell], tree.child[cell] + tree.children[cell]):
                top = _highest(tree, part, z, size, reference, frame, widths, log_floor)[0]
                share += math.exp(min(top, cap + tree.log_mass[part], 700.0))
        if share < dropped:
            error += share
            continue
        chosen = -1
        if tree.order[cell] >= 0:
            needed, slope = least_order(base, along, size, direction, reach, most, tree.chart[cell], log_share)
            if needed <= tree.orders[tree.order[cell]]:
                chosen = 0
                while tree.orders[chosen] < needed:
                    chosen += 1
                error += math.exp(log_share - slope * (tree.orders[chosen] - needed))
        if chosen < 0 and tree.children[cell] > 0:
            if depth + 8 > len(stack):
                stack = np.concatenate((stack, stack))
            for part in range(tree.child[cell], tree.child[cell] + tree.children[cell]):
                stack[depth] = part
                depth += 1
            continue
        if count == found.shape[1]:
            found = np.concatenate((found, found), axis=1)
        found[0, count], found[1, count] = cell, chosen
        count += 1
        points += tree.stop[cell] - tree.start[cell] if chosen < 0 else tree.orders[chosen] ** 2
        if points > limit:
            return found, count, -1, error
    return found, count, points, error


@njit(cache=True, nogil=True)
def descend(tree: Any, z: Any, reference: Any) -> float:
    """A lower bound of log sum_j m_j e^{<z, k_j - reference>}, where `reference` becomes what gives it.

    Jensen: a cell of mass m and mean k̄ contributes at least m e^{<z, k̄>}. Goes down by that value, first the child
    where it is largest, and leaves out cells that cannot be e^{_SLACK} better than the best so far.
    """
    size = math.sqrt(z[0] ** 2 + z[1] ** 2 + z[2] ** 2)
    best = -np.inf
    log_mass = 0.0
    stack, highest = np.empty(256, dtype=np.int64), np.empty(256)
    stack[0], highest[0] = 0, np.inf
    depth = 1
    while depth > 0:
        depth -= 1
        cell = stack[depth]
        if highest[depth] <= best + _SLACK:
            continue
        value = tree.log_mass[cell] + _dot(z, tree.mean[cell])
        if value > best:
            best, log_mass = value, tree.log_mass[cell]
            reference[:] = tree.mean[cell]
        if tree.children[cell] == 0:
            for j in range(tree.start[cell], tree.stop[cell]):
                value = math.log(tree.keys[3, j]) + _dot(z, tree.keys[:, j])
                if value > best:
                    best, log_mass = value, math.log(tree.keys[3, j])
                    reference[:] = tree.keys[:3, j]
            continue
        if depth + 8 > len(stack):
            stack, highest = np.concatenate((stack, stack)), np.concatenate((highest, highest))
        first, promise = depth, -np.inf
        for part in range(tree.child[cell], tree.child[cell] + tree.children[cell]):
            stack[depth], highest[depth] = part, tree.log_mass[part] + _largest(z, size, tree.cone[part])
            depth += 1
            value = tree.log_mass[part] + _dot(z, tree.mean[part])
            if value > promise:
                first, promise = depth - 1, value
        stack[first], stack[depth - 1] = stack[depth - 1], stack[first]
        highest[first], highest[depth - 1] = highest[depth - 1], highest[first]
    return log_mass


@njit(cache=True, nogil=True)
def _largest(z: Any, size: float, cone: Any) -> float:
    """max <z, k> over the cone, or more."""
    along = _dot(z, cone)
    direction = math.acos(min(max(along / size, -1.0), 1.0)) if size > 0.0 else 0.0
    return size if cone[3] >= direction else size * math.cos(direction - cone[3])


@njit(cache=True, nogil=True)
def _dot(z: Any, k: Any) -> float:
    return z[0] * k[0] + z[1] * k[1] + z[2] * k[2]


@njit(cache=True, nogil=True)
def unpack(tree: Any, found: Any, count: int, points: int, reference: Any) -> Any:
    """(4 + columns, points): the keys and proxies of the cells found, minus `reference`, and their weights."""
    seen = np.empty((len(tree.keys), points))
    at = 0
    for i in range(count):
        cell, index = found[0, i], found[1, i]
        if index < 0:
            first = tree.start[cell]
            length = tree.stop[cell] - first
            seen[:, at : at + length] = tree.keys[:, first : first + length]
        else:
            length = tree.orders[index] ** 2
            proxy_points(tree, cell, tree.orders[index], seen[:3, at : at + length])
            first = tree.offset[cell]
            for other in tree.orders[:index]:
                first += other * other
            for column in range(len(tree.weights)):
                seen[3 + column, at : at + length] = tree.weights[column, first : first + length]
        at += length
    for c in range(3):
        for a in range(points):
            seen[c, a] -= reference[c]
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
