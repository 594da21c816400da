"""One box of queries against the cells it sees: row by row, or through one local expansion (`sphere_cells`).

Relative to the centre z_c of the box, with the attended mean k̄ there, a query z = z_c + d needs
    g(d) = sum_a W_a e^{<d, kappa_a>},   grad g(d) = sum_a W_a kappa_a e^{<d, kappa_a>},
kappa_a = k_a - k̄, W_a = w_a e^{<z_c, kappa_a>}; the mean is k̄ + grad g/g. In the frame of the box, whose third side is thin
because queries B^T x lie on a surface, g is expanded into
    g(d) = sum_{l < p_3} d_3^l/l! sum_a W_a kappa_3^l e^{d_1 kappa_1} e^{d_2 kappa_2},
interpolated at p_1 x p_2 Chebyshev nodes of (d_1, d_2), where the double sum is one matrix product over all a.
Interpolation of e^{at}, |t| <= 1, errs by at most g = 2 (a/2)^p/p! e^{|a|}, its derivative by p^2 g; these, times |W_a|, are
summed over all a and decide p_1, p_2, p_3. By Jensen's inequality g(d) >= g(0), so that the sum bounds the relative error.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.exp2 import NO_REASSOCIATION, REDUCTION, exp2
from metastable.attention.sphere_tree import lagrange
from metastable.attention.sphere_walk import LOG2_E, descend, row_sums, row_top, unpack, walk

SPLIT, DONE = 0, 1
_LEVELS, _LARGEST = 5, 24
"""Most terms in the thin direction, most nodes (an even number) in the others."""
_NARROWEST = 0.1
"""Boxes are widened to this half-width: derivatives are taken across them."""
_BLOCK = 128
_DIRECT_ROWS = 128


@njit(cache=True, nogil=True)
def attend_groups(
    tree: Any, queries: Any, groups: Any, rtol: float, most: int, mean: Any, log_partition: Any, status: Any,
    errors: Any,
) -> None:  # fmt: skip
    """Fills (n, 3) means and (n,) log-partitions of all queries of the groups, or marks a group as SPLIT."""
    found = np.empty((2, 1024), dtype=np.int64)
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
    # With its centre known to a relative error e, Jensen's inequality holds for the box up to e + 2 e reach.
    reach = widths[0] + widths[1] + widths[2]
    rough = rtol if rows == 1 else max(rtol, 0.02 / (1.0 + reach))
    found, count, size, error = _within(tree, centre, reference, frame, nowhere, log_floor, rough, 1 << 60, found)
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
    log_floor -= 1.1 * rough * (1.0 + 2.0 * reach)
    limit = 16 * size + 4096
    found, count, size, error = _within(tree, centre, reference, frame, widths, log_floor, rtol, limit, found)
    if size < 0:
        return found, False, 0.0
    seen = unpack(tree, found, count, size, reference)
    orders, cut_off = _orders(seen, centre, frame, widths, log_floor, 0.4 * rtol)
    terms = orders[0] * orders[1] * orders[2]
    # Nanoseconds: an expansion costs its error bound, exponentials and matrix product; a row one exponential per key.
    expansion = size * (25.0 + orders[0] + orders[1] + 0.2 * orders[0] * orders[2] + 0.12 * terms) + 0.25 * rows * terms
    if terms > 0 and expansion < 1.0 * rows * size:
        if rows > 8 * size + 4096 and not leaf:
            return found, False, 0.0
        coefficients = _expand(seen, centre, frame, widths, log_floor, orders)
        _evaluate(
            coefficients, orders, points, first, last, centre, frame, widths, reference, log_floor, mean, log_partition
        )  # fmt: skip
        return found, True, error + cut_off
    if rows > _DIRECT_ROWS and not leaf:
        return found, False, 0.0
    centre_floor = log_floor
    reaches_far = reach > 100.0
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
    widths[0], widths[1] = max(widths[0], _NARROWEST), max(widths[1], _NARROWEST)
    return centre, frame, widths


@njit(cache=True, nogil=True)
def _orders(
    seen: Any, centre: Any, frame: Any, widths: Any, log_floor: float, tolerance: float
) -> tuple[Any, float]:  # fmt: skip
    """(p_1, p_2, p_3) and the bound of the relative error of g plus half the error of the mean; zeros if none is enough."""
    sums, squares, levels = np.zeros((2, _LARGEST // 2)), np.zeros((2, _LARGEST // 2)), np.zeros(_LEVELS + 1)
    largest = _cut_off(seen, centre, frame, widths, log_floor, sums, squares, levels)
    orders = np.zeros(3, dtype=np.int64)
    error = 0.0
    if largest > 250.0:
        return orders, error
    crossed = _LARGEST**2 / min(widths[0], widths[1])
    for side in range(2):
        for step in range(_LARGEST // 2):
            p = 2 * step + 2
            derivative = 2.0 + p * p / widths[side]
            # Twice, for all terms in the thin direction together.
            cut = 2.0 * (derivative * sums[side, step] + (derivative + crossed) * squares[side, step])
            if cut <= 0.35 * tolerance:
                orders[side] = p
                error += cut
                break
    scale = 1.0  # R_3^l/l!
    for l in range(1, _LEVELS + 1):
        rest = (0.5 * scale + scale * widths[2] / l) * levels[l]
        if rest <= 0.3 * tolerance:
            orders[2] = l
            error += rest
            break
        scale *= widths[2] / l
    if orders.min() == 0:
        orders[:] = 0
    return orders, error


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _cut_off(
    seen: Any, centre: Any, frame: Any, widths: Any, log_floor: float, sums: Any, squares: Any, levels: Any
) -> float:  # fmt: skip
    """sums, squares[side, p/2 - 1] = sum_a |W_a| e^{...} (g, g^2), levels[l] = sum_a |W_a| e^{...} |kappa_3|^l.

    Here g = 2 (a/2)^p/p!, a = R_side |kappa_side|. Returns the largest exponent.
    """
    weight, power, third = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    quarter = np.empty((2, _BLOCK))
    largest = 0.0
    z0, z1, z2 = centre[0] * LOG2_E, centre[1] * LOG2_E, centre[2] * LOG2_E
    for start in range(0, seen.shape[1], _BLOCK):
        length = min(_BLOCK, seen.shape[1] - start)
        for a in range(length):
            x, y, z = seen[0, start + a], seen[1, start + a], seen[2, start + a]
            u = widths[0] * abs(frame[0, 0] * x + frame[0, 1] * y + frame[0, 2] * z)
            v = widths[1] * abs(frame[1, 0] * x + frame[1, 1] * y + frame[1, 2] * z)
            third[a] = abs(frame[2, 0] * x + frame[2, 1] * y + frame[2, 2] * z)
            quarter[0, a], quarter[1, a] = 0.25 * u * u, 0.25 * v * v
            reach = u + v + widths[2] * third[a]
            largest = max(largest, reach)
            t = (reach - log_floor) * LOG2_E + z0 * x + z1 * y + z2 * z
            t = t if t > -1000.0 else -1000.0
            weight[a] = exp2(t if t < 1000.0 else 1000.0) * abs(seen[3, start + a])
        for side in range(2):
            for a in range(length):
                power[a] = 2.0
            for step in range(sums.shape[1]):
                factor = 1.0 / ((2.0 * step + 1.0) * (2.0 * step + 2.0))
                total, square = 0.0, 0.0
                for a in range(length):
                    power[a] *= quarter[side, a] * factor
                    part = weight[a] * power[a]
                    total += part
                    square += part * power[a]
                sums[side, step] += total
                squares[side, step] += square
        for l in range(1, len(levels)):
            total = 0.0
            for a in range(length):
                weight[a] *= third[a]
                total += weight[a]
            levels[l] += total
    return largest


@njit(cache=True, nogil=True, fastmath=NO_REASSOCIATION, error_model="numpy")
def _expand(seen: Any, centre: Any, frame: Any, widths: Any, log_floor: float, orders: Any) -> Any:
    """(p_3 p_1, p_2): Chebyshev coefficients in (d_1, d_2) of sum_a W_a kappa_3^l e^{...}, l = 0, ..., p_3 - 1."""
    p, q, levels = orders[0], orders[1], orders[2]
    # Small enough for the BLAS to stay on one thread, which is what it does below 2^18 multiplications.
    block = min(max((1 << 18) // (levels * p * q) // 8 * 8, 16), _BLOCK)
    total, product = np.zeros((levels * p, q)), np.empty((levels * p, q))
    left, right = np.empty((levels * p, block)), np.empty((q, block))
    u, v, w, weight = np.zeros(block), np.zeros(block), np.zeros(block), np.zeros(block)
    nodes_p = np.cos((np.arange(p) + 0.5) * math.pi / p) * (widths[0] * LOG2_E)
    nodes_q = np.cos((np.arange(q) + 0.5) * math.pi / q) * (widths[1] * LOG2_E)
    z0, z1, z2 = centre[0] * LOG2_E, centre[1] * LOG2_E, centre[2] * LOG2_E
    for start in range(0, seen.shape[1], block):
        length = min(block, seen.shape[1] - start)
        for a in range(length):
            x, y, z = seen[0, start + a], seen[1, start + a], seen[2, start + a]
            u[a] = frame[0, 0] * x + frame[0, 1] * y + frame[0, 2] * z
            v[a] = frame[1, 0] * x + frame[1, 1] * y + frame[1, 2] * z
            w[a] = frame[2, 0] * x + frame[2, 1] * y + frame[2, 2] * z
            t = z0 * x + z1 * y + z2 * z - log_floor * LOG2_E
            t = t if t > -1000.0 else -1000.0
            weight[a] = exp2(t if t < 1000.0 else 1000.0) * seen[3, start + a]
        for a in range(length, block):
            weight[a] = 0.0
        for i in range(p):
            node = nodes_p[i]
            for a in range(block):
                left[i, a] = weight[a] * exp2(node * u[a])
        for i in range(p, levels * p):
            for a in range(block):
                left[i, a] = left[i - p, a] * w[a]
        for j in range(q):
            node = nodes_q[j]
            for a in range(block):
                right[j, a] = exp2(node * v[a])
        np.dot(left, right.T, product)
        total += product
    to_p, to_q = lagrange(p), lagrange(q)
    for l in range(levels):
        half = np.dot(to_p.T, total[l * p : (l + 1) * p])
        product[l * p : (l + 1) * p] = np.dot(half, to_q)
    return product


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _evaluate(
    coefficients: Any, orders: Any, points: Any, first: int, last: int, centre: Any, frame: Any, widths: Any,
    reference: Any, log_floor: float, mean: Any, log_partition: Any,
) -> None:  # fmt: skip
    """Means and log-partitions of the rows of a box from its expansion."""
    p, q, levels = orders[0], orders[1], orders[2]
    t_u, s_u, t_v, s_v = np.empty(p), np.empty(p), np.empty(q), np.empty(q)
    for n in range(first, last):
        z0, z1, z2 = points[0, n], points[1, n], points[2, n]
        d0, d1, d2 = z0 - centre[0], z1 - centre[1], z2 - centre[2]
        w = frame[2, 0] * d0 + frame[2, 1] * d1 + frame[2, 2] * d2
        _basis((frame[0, 0] * d0 + frame[0, 1] * d1 + frame[0, 2] * d2) / widths[0], t_u, s_u)
        _basis((frame[1, 0] * d0 + frame[1, 1] * d1 + frame[1, 2] * d2) / widths[1], t_v, s_v)
        g, g_u, g_v, g_w = 0.0, 0.0, 0.0, 0.0
        here, below = 1.0, 0.0  # d_3^l/l! and its derivative
        for l in range(levels):
            level, level_u, level_v = 0.0, 0.0, 0.0
            for i in range(p):
                value, slope = 0.0, 0.0
                for j in range(q):
                    value += coefficients[l * p + i, j] * t_v[j]
                    slope += coefficients[l * p + i, j] * s_v[j]
                level += t_u[i] * value
                level_u += s_u[i] * value
                level_v += t_u[i] * slope
            g += here * level
            g_u += here * level_u
            g_v += here * level_v
            g_w += below * level
            below, here = here, here * w / (l + 1.0)
        g_u, g_v = g_u / widths[0], g_v / widths[1]
        for c in range(3):
            mean[n, c] = reference[c] + (frame[0, c] * g_u + frame[1, c] * g_v + frame[2, c] * g_w) / g
        log_partition[n] = (
            log_floor + math.log(g) + z0 * reference[0] + z1 * reference[1] + z2 * reference[2]
        )  # fmt: skip


@njit(cache=True, nogil=True)
def _basis(t: float, values: Any, slopes: Any) -> None:
    """T_k(t) and T_k'(t), t clipped to [-1, 1]: T_(k+1) = 2t T_k - T_(k-1), and its derivative."""
    t = min(max(t, -1.0), 1.0)
    values[0], values[1], slopes[0], slopes[1] = 1.0, t, 0.0, 1.0
    for k in range(2, len(values)):
        values[k] = 2.0 * t * values[k - 1] - values[k - 2]
        slopes[k] = 2.0 * values[k - 1] + 2.0 * t * slopes[k - 1] - slopes[k - 2]
