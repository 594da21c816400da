"""One box of queries against the cells it sees: row by row, or through a small grid of proxy queries (`sphere_cells`).

Relative to its centre a box of scaled queries needs the function
    g(z) = sum_a w_a e^{<z, k_a - k̄>} (1, k_a - k̄),
a sum of exponentials that are *linear* in z. Interpolation of e^{at}, |t| <= 1, at p Chebyshev nodes errs by at most
2 (a/2)^p/p! e^{|a|}; summed over all a with the weights |w_a| that is a rigorous bound for the box, side by side, against
which p_1, p_2, p_3 are chosen. On the grid the exponentials factor, e^{<z_ijl, k>} = e^{<z_c, k>} X_i Y_j U_l, and the sum
is a matrix product: a fraction of an exponential per pair.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.exp2 import REDUCTION, exp2
from metastable.attention.sphere_walk import LOG2_E, descend, powers_of_two, row_sums, row_top, unpack, walk

SPLIT, DONE = 0, 1
_ORDERS = np.array([1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20])
_LOG_FRONT = np.array([math.log(2.0) - p * math.log(2.0) - math.lgamma(p + 1.0) for p in _ORDERS])
_FRONT = np.exp(_LOG_FRONT)
_BLOCK = 64
_DIRECT_ROWS = 128


@njit(cache=True, nogil=True)
def attend_groups(
    tree: Any, queries: Any, groups: Any, rtol: float, most: int, mean: Any, log_partition: Any, status: Any,
    errors: Any,
) -> None:  # fmt: skip
    """Fills (n, 3) means and (n,) log-partitions of all queries of the groups, or marks a group as SPLIT."""
    found = np.empty(1024, dtype=np.int64)
    for g in range(len(groups)):
        group = groups[g]
        first, last = queries.start[group], queries.stop[group]
        status[g] = SPLIT
        leaf = queries.children[group] == 0
        if last - first > most and not leaf:
            continue
        found, done, error = _attend_box(tree, queries.points, first, last, leaf, rtol, mean, log_partition, found)
        if done:
            status[g] = DONE
            errors[g] = error
        elif leaf:
            for i in range(first, last):
                found, done, error = _attend_box(
                    tree, queries.points, i, i + 1, True, rtol, mean, log_partition, found
                )
                errors[g] = max(errors[g], error)
            status[g] = DONE


@njit(cache=True, nogil=True)
def _attend_box(
    tree: Any, points: Any, first: int, last: int, leaf: bool, rtol: float, mean: Any, log_partition: Any, found: Any
) -> tuple[Any, bool, float]:  # fmt: skip
    """(scratch, whether the box was done, bound of its relative error)."""
    rows = last - first
    centre, frame, widths = _box(points, first, last)
    nowhere = np.zeros(3)
    reference = np.empty(3)
    log_floor = descend(tree, centre, reference)
    found, count, size, error = _within(tree, centre, reference, frame, nowhere, log_floor, rtol, 1 << 60, found)
    seen = unpack(tree, found, count, size, reference)
    log_floor = max(log_floor, row_top(seen, centre) - 300.0)
    s0, s1, s2, total = row_sums(seen, centre[0], centre[1], centre[2], log_floor)
    shift = np.array([s0 / total, s1 / total, s2 / total])
    log_floor += math.log(total) - centre[0] * shift[0] - centre[1] * shift[1] - centre[2] * shift[2]
    reference += shift
    if rows == 1:
        log_z = log_floor
        for c in range(3):
            mean[first, c] = reference[c]
            log_z += centre[c] * reference[c]
        log_partition[first] = log_z
        return found, True, error
    limit = 4 * size + 1024
    found, count, size, error = _within(tree, centre, reference, frame, widths, log_floor, rtol, limit, found)
    if size < 0:
        return found, False, 0.0
    seen = unpack(tree, found, count, size, reference)
    orders, interpolation = _orders(seen, centre, frame, widths, log_floor, 0.4 * rtol)
    grid = orders[0] * orders[1] * orders[2]
    by_grid = size * (0.25 * grid + 0.6 * (orders[0] + orders[1] + orders[2])) + 0.25 * rows * grid
    if grid > 0 and (by_grid < 1.0 * rows * size):
        if rows > 4 * size + 4096 and not leaf:
            return found, False, 0.0
        coefficients = _grid(seen, centre, frame, widths, log_floor, orders)
        _interpolate(coefficients, orders, points, first, last, centre, frame, widths, reference, log_floor, mean, log_partition)
        return found, True, error + interpolation
    if rows > _DIRECT_ROWS and not leaf:
        return found, False, 0.0
    centre_floor = log_floor
    reaches_far = widths[0] + widths[1] + widths[2] > 100.0
    for i in range(first, last):
        z0, z1, z2 = points[0, i], points[1, i], points[2, i]
        if reaches_far:  # e^{<z, k - k̄>}/G may overflow
            log_floor = max(centre_floor, row_top(seen, points[:, i]) - 300.0)
        s0, s1, s2, total = row_sums(seen, z0, z1, z2, log_floor)
        mean[i, 0], mean[i, 1], mean[i, 2] = s0 / total, s1 / total, s2 / total
        for c in range(3):
            mean[i, c] += reference[c]
        log_partition[i] = (
            log_floor + math.log(total) + z0 * reference[0] + z1 * reference[1] + z2 * reference[2]
        )  # fmt: skip
    return found, True, error


@njit(cache=True, nogil=True)
def _within(
    tree: Any, z: Any, reference: Any, frame: Any, widths: Any, log_floor: float, rtol: float, limit: int, found: Any
) -> tuple[Any, int, int, float]:  # fmt: skip
    """`walk` with a share per cell that makes the sum of all errors at most 0.6 rtol (after four tries, at any rate)."""
    share = rtol / 32.0
    for _ in range(4):
        found, count, size, error = walk(tree, z, reference, frame, widths, log_floor, math.log(share), limit, found)
        if size < 0 or error <= 0.6 * rtol:
            break
        share *= 0.5 * rtol / error
    return found, count, size, error


@njit(cache=True, nogil=True)
def _box(points: Any, first: int, last: int) -> tuple[Any, Any, Any]:
    """Centre, frame (rows, widest first) and half-widths of the box of some points along their principal axes."""
    step = max((last - first) // 256, 1)
    average = np.zeros(3)
    spread = np.zeros((3, 3))
    used = 0
    for i in range(first, last, step):
        used += 1
        for c in range(3):
            average[c] += points[c, i] - points[c, first]
    average /= used
    for i in range(first, last, step):
        for c in range(3):
            for d in range(3):
                spread[c, d] += (points[c, i] - points[c, first] - average[c]) * (
                    points[d, i] - points[d, first] - average[d]
                )
    frame = np.eye(3)
    scale = spread[0, 0] + spread[1, 1] + spread[2, 2]
    if scale > 0.0 and scale < np.inf:
        frame = np.ascontiguousarray(np.linalg.eigh(spread / scale)[1].T[::-1])
    centre, widths = np.empty(3), np.empty(3)
    at = np.empty(3)
    for c in range(3):
        low, high = np.inf, -np.inf
        for i in range(first, last):
            t = frame[c, 0] * points[0, i] + frame[c, 1] * points[1, i] + frame[c, 2] * points[2, i]
            low, high = min(low, t), max(high, t)
        at[c], widths[c] = 0.5 * (low + high), 0.5 * (high - low)
    for c in range(3):
        centre[c] = frame[0, c] * at[0] + frame[1, c] * at[1] + frame[2, c] * at[2]
    if last - first == 1:
        for c in range(3):
            centre[c], widths[c] = points[c, first], 0.0
    return centre, frame, widths


@njit(cache=True, nogil=True)
def _orders(seen: Any, centre: Any, frame: Any, widths: Any, log_floor: float, tolerance: float) -> tuple[Any, float]:
    """Nodes per side of the grid and the bound of the interpolation error; zeros when no order suffices."""
    sums = np.zeros((3, len(_ORDERS)))
    largest = _order_sums(seen, centre, frame, widths, log_floor, sums)
    orders = np.zeros(3, dtype=np.int64)
    error = 0.0
    if largest > 250.0:
        return orders, error
    for side in range(3):
        for option in range(len(_ORDERS)):
            if sums[side, option] <= tolerance / 3.0:
                orders[side] = _ORDERS[option]
                error += sums[side, option]
                break
    if orders.min() == 0:
        orders[:] = 0
    return orders, error


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _order_sums(seen: Any, centre: Any, frame: Any, widths: Any, log_floor: float, sums: Any) -> float:
    """sums[side, option] = sum_a |w_a| e^{...} (g + g^2 + g^3/3), g = 2 (a/2)^p/p!; returns the largest exponent.

    Products of the three sides' errors are bounded by their second and third powers.
    """
    weight = np.empty(_BLOCK)
    along = np.empty((3, _BLOCK))
    power = np.empty(_BLOCK)
    largest = 0.0
    z0, z1, z2 = centre[0] * LOG2_E, centre[1] * LOG2_E, centre[2] * LOG2_E
    for start in range(0, seen.shape[1], _BLOCK):
        length = min(_BLOCK, seen.shape[1] - start)
        for a in range(length):
            x, y, z = seen[0, start + a], seen[1, start + a], seen[2, start + a]
            for side in range(3):
                along[side, a] = widths[side] * abs(frame[side, 0] * x + frame[side, 1] * y + frame[side, 2] * z)
            reach = along[0, a] + along[1, a] + along[2, a]
            largest = max(largest, reach)
            t = (reach - log_floor) * LOG2_E + z0 * x + z1 * y + z2 * z
            t = t if t > -1000.0 else -1000.0
            weight[a] = exp2(t if t < 1000.0 else 1000.0) * abs(seen[3, start + a])
        for side in range(3):
            for a in range(length):
                power[a] = 1.0
            reached = 0
            for option in range(len(_ORDERS)):
                while reached < _ORDERS[option]:
                    reached += 1
                    for a in range(length):
                        power[a] *= along[side, a]
                total = 0.0
                for a in range(length):
                    g = power[a] * _FRONT[option]
                    total += weight[a] * g * (1.0 + g * (1.0 + g / 3.0))
                sums[side, option] += total
    return largest


@njit(cache=True, nogil=True)
def _grid(seen: Any, centre: Any, frame: Any, widths: Any, log_floor: float, orders: Any) -> Any:
    """(p_3 p_1, 4 p_2): Chebyshev coefficients of (1, k - k̄) e^{<z, k - k̄> - log_floor} summed, over the box."""
    p, q, r = orders[0], orders[1], orders[2]
    values = np.zeros((4 * r * p, q))
    left = np.empty((4 * r * p, _BLOCK))
    right = np.empty((_BLOCK, q))
    exponent = np.empty(_BLOCK)
    channel = np.empty((4, _BLOCK))
    x_factor, u_factor = np.empty((p, _BLOCK)), np.empty((r, _BLOCK))
    nodes_p = np.cos((np.arange(p) + 0.5) * math.pi / p) * (widths[0] * LOG2_E)
    nodes_q = np.cos((np.arange(q) + 0.5) * math.pi / q) * (widths[1] * LOG2_E)
    nodes_r = np.cos((np.arange(r) + 0.5) * math.pi / r) * (widths[2] * LOG2_E)
    column = np.empty(q)
    f = frame
    for start in range(0, seen.shape[1], _BLOCK):
        length = min(_BLOCK, seen.shape[1] - start)
        k = seen[:, start : start + length]
        for a in range(length):
            exponent[a] = (centre[0] * k[0, a] + centre[1] * k[1, a] + centre[2] * k[2, a] - log_floor) * LOG2_E
        powers_of_two(exponent[:length], channel[0, :length])
        for a in range(length):
            channel[0, a] *= k[3, a]
            for c in range(3):
                channel[1 + c, a] = channel[0, a] * k[c, a]
        for i in range(p):
            for a in range(length):
                exponent[a] = nodes_p[i] * (f[0, 0] * k[0, a] + f[0, 1] * k[1, a] + f[0, 2] * k[2, a])
            powers_of_two(exponent[:length], x_factor[i, :length])
        for i in range(r):
            for a in range(length):
                exponent[a] = nodes_r[i] * (f[2, 0] * k[0, a] + f[2, 1] * k[1, a] + f[2, 2] * k[2, a])
            powers_of_two(exponent[:length], u_factor[i, :length])
        for a in range(length):
            along = f[1, 0] * k[0, a] + f[1, 1] * k[1, a] + f[1, 2] * k[2, a]
            for j in range(q):
                column[j] = nodes_q[j] * along
            powers_of_two(column, right[a])
        for c in range(4):
            for l in range(r):
                for i in range(p):
                    row = (c * r + l) * p + i
                    for a in range(length):
                        left[row, a] = channel[c, a] * u_factor[l, a] * x_factor[i, a]
        _accumulate(left, right, length, values)
    return _coefficients(values, p, q, r)


@njit(cache=True, nogil=True, fastmath={"contract"})
def _accumulate(left: Any, right: Any, length: int, out: Any) -> None:
    """out += left[:, :length] @ right[:length], four terms of the sum at a time."""
    q = out.shape[1]
    even = length - length % 4
    for row in range(out.shape[0]):
        for a in range(0, even, 4):
            w0, w1, w2, w3 = left[row, a], left[row, a + 1], left[row, a + 2], left[row, a + 3]
            for j in range(q):
                out[row, j] += (w0 * right[a, j] + w1 * right[a + 1, j]) + (
                    w2 * right[a + 2, j] + w3 * right[a + 3, j]
                )
        for a in range(even, length):
            for j in range(q):
                out[row, j] += left[row, a] * right[a, j]


@njit(cache=True, nogil=True)
def _coefficients(values: Any, p: int, q: int, r: int) -> Any:
    """Chebyshev coefficients (r p, 4 q) of grid values (4 r p, q), axis by axis."""
    first = np.zeros((4 * r * p, q))
    to_q, to_p, to_r = _to_coefficients(q), _to_coefficients(p), _to_coefficients(r)
    for row in range(4 * r * p):
        for b in range(q):
            for j in range(q):
                first[row, j] += values[row, b] * to_q[b, j]
    second = np.zeros((4 * r * p, q))
    for block in range(4 * r):
        for a in range(p):
            for i in range(p):
                factor = to_p[a, i]
                for j in range(q):
                    second[block * p + i, j] += factor * first[block * p + a, j]
    out = np.zeros((r * p, 4 * q))
    for c in range(4):
        for e in range(r):
            for l in range(r):
                factor = to_r[e, l]
                for i in range(p):
                    for j in range(q):
                        out[l * p + i, c * q + j] += factor * second[(c * r + e) * p + i, j]
    return out


@njit(cache=True, nogil=True)
def _to_coefficients(p: int) -> Any:
    """(p, p): row a holds the Chebyshev coefficients of the Lagrange polynomial of node a."""
    out = np.empty((p, p))
    for a in range(p):
        for k in range(p):
            out[a, k] = (1.0 if k == 0 else 2.0) / p * math.cos(k * (a + 0.5) * math.pi / p)
    return out


@njit(cache=True, nogil=True)
def _basis(t: float, values: Any) -> None:
    """values[k] = T_k(t) for t in [-1, 1]."""
    values[0] = 1.0
    if len(values) > 1:
        values[1] = t
    for k in range(2, len(values)):
        values[k] = 2.0 * t * values[k - 1] - values[k - 2]


@njit(cache=True, nogil=True, fastmath={"contract"})
def _interpolate(
    coefficients: Any, orders: Any, points: Any, first: int, last: int, centre: Any, frame: Any, widths: Any,
    reference: Any, log_floor: float, mean: Any, log_partition: Any,
) -> None:  # fmt: skip
    p, q, r = orders[0], orders[1], orders[2]
    t_p, t_q, t_r = np.empty(p), np.empty(q), np.empty(r)
    sums = np.empty(4 * q)
    rows = r * p
    even = rows - rows % 4
    factor = np.empty(rows)
    inverse = np.zeros(3)
    for c in range(3):
        if widths[c] > 0.0:
            inverse[c] = 1.0 / widths[c]
    for n in range(first, last):
        z0, z1, z2 = points[0, n], points[1, n], points[2, n]
        d0, d1, d2 = z0 - centre[0], z1 - centre[1], z2 - centre[2]
        for c in range(3):
            t = (frame[c, 0] * d0 + frame[c, 1] * d1 + frame[c, 2] * d2) * inverse[c]
            t = min(max(t, -1.0), 1.0)
            if c == 0:
                _basis(t, t_p)
            elif c == 1:
                _basis(t, t_q)
            else:
                _basis(t, t_r)
        for l in range(r):
            for i in range(p):
                factor[l * p + i] = t_r[l] * t_p[i]
        sums[:] = 0.0
        for row in range(0, even, 4):
            w0, w1, w2, w3 = factor[row], factor[row + 1], factor[row + 2], factor[row + 3]
            for j in range(4 * q):
                sums[j] += (w0 * coefficients[row, j] + w1 * coefficients[row + 1, j]) + (
                    w2 * coefficients[row + 2, j] + w3 * coefficients[row + 3, j]
                )
        for row in range(even, rows):
            for j in range(4 * q):
                sums[j] += factor[row] * coefficients[row, j]
        total, s0, s1, s2 = 0.0, 0.0, 0.0, 0.0
        for j in range(q):
            total += t_q[j] * sums[j]
            s0 += t_q[j] * sums[q + j]
            s1 += t_q[j] * sums[2 * q + j]
            s2 += t_q[j] * sums[3 * q + j]
        mean[n, 0], mean[n, 1], mean[n, 2] = (
            reference[0] + s0 / total,
            reference[1] + s1 / total,
            reference[2] + s2 / total,
        )
        log_partition[n] = (
            log_floor + math.log(total) + z0 * reference[0] + z1 * reference[1] + z2 * reference[2]
        )  # fmt: skip
