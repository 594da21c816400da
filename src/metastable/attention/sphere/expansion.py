"""The local expansion of attention over a box of queries, and the bound of its error (`sphere.cells`).

Relative to the centre z_c of the box, with the attended mean k̄ there, a query z = z_c + d needs
    g(d) = sum_a W_a e^{<d, kappa_a>},   grad g(d) = sum_a W_a kappa_a e^{<d, kappa_a>},
kappa_a = k_a - k̄, W_a = w_a e^{<z_c, kappa_a>}; the mean is k̄ + grad g/g. In the frame of the box, whose
third side is thin because queries B^T x lie on a surface, g is expanded into
    g(d) = sum_{l < p_3} d_3^l/l! sum_a W_a kappa_3^l e^{d_1 kappa_1} e^{d_2 kappa_2},
interpolated at p_1 x p_2 Chebyshev nodes of (d_1, d_2), where the double sum is one matrix product over all a.
Interpolation of e^{at}, |t| <= 1, errs by at most g = 2 (a/2)^p/p! e^{|a|}, its derivative by p^2 g; these,
times |W_a|, are summed over all a and decide p_1, p_2, p_3. By Jensen's inequality g(d) >= g(0), so that the
sum bounds the relative error.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.exp2 import LOG2_E, NO_REASSOCIATION, REDUCTION, exp2
from metastable.attention.sphere.proxies import lagrange

_LEVELS, _LARGEST = 5, 24
"""Most terms in the thin direction, most nodes (an even number) in the others; boxes that need more are split."""
NARROWEST = 0.25
"""Boxes are widened to this half-width: derivatives are taken across them, and rounding is divided by it."""
_BLOCK = 128
"""Most keys and proxies whose factors are tabulated for one matrix product."""


@njit(cache=True, nogil=True)
def deviations(seen: Any, centre: Any, frame: Any, widths: Any, log_floor: float) -> float:
    """The larger of R_i times the standard deviation of kappa_i under attention at the centre, i = 1, 2."""
    total, square_u, square_v = 0.0, 0.0, 0.0
    for a in range(seen.shape[1]):
        x, y, z = seen[0, a], seen[1, a], seen[2, a]
        weight = seen[3, a] * math.exp(min(centre[0] * x + centre[1] * y + centre[2] * z - log_floor, 700.0))
        total += weight
        square_u += weight * (frame[0, 0] * x + frame[0, 1] * y + frame[0, 2] * z) ** 2
        square_v += weight * (frame[1, 0] * x + frame[1, 1] * y + frame[1, 2] * z) ** 2
    return math.sqrt(max(widths[0] ** 2 * square_u, widths[1] ** 2 * square_v, 0.0) / total)


@njit(cache=True, nogil=True)
def orders_for(
    seen: Any, centre: Any, frame: Any, widths: Any, log_floor: float, tolerance: float
) -> tuple[Any, float]:  # fmt: skip
    """(p_1, p_2, p_3), or zeros if none is enough; bound of the error of g plus half that of the mean."""
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
    else:
        error += 1e-15 * (orders[0] ** 2 / widths[0] + orders[1] ** 2 / widths[1])  # rounding, differentiated
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
def expand(seen: Any, row: int, centre: Any, frame: Any, widths: Any, log_floor: float, orders: Any) -> Any:
    """(p_3 p_1, p_2): Chebyshev coefficients in (d_1, d_2) of sum_a W_a kappa_3^l e^{...}, l = 0, ..., p_3 - 1.

    The weights are those of that row of what is seen, 3 for the masses.
    """
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
            weight[a] = exp2(t if t < 1000.0 else 1000.0) * seen[row, start + a]
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
def evaluate(
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
        basis((frame[0, 0] * d0 + frame[0, 1] * d1 + frame[0, 2] * d2) / widths[0], t_u, s_u)
        basis((frame[1, 0] * d0 + frame[1, 1] * d1 + frame[1, 2] * d2) / widths[1], t_v, s_v)
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
def basis(t: float, values: Any, slopes: Any) -> None:
    """T_k(t) and T_k'(t), t clipped to [-1, 1]: T_(k+1) = 2t T_k - T_(k-1), and its derivative."""
    t = min(max(t, -1.0), 1.0)
    values[0], values[1], slopes[0], slopes[1] = 1.0, t, 0.0, 1.0
    for k in range(2, len(values)):
        values[k] = 2.0 * t * values[k - 1] - values[k - 2]
        slopes[k] = 2.0 * values[k - 1] + 2.0 * t * slopes[k - 1] - slopes[k - 2]
