"""Proof that a cyclic plan is optimal for the chordal cost: potentials, and a search for pairs that break them.

Let h_high be the convex function that equals the chordal cost h up to its inflection t_0 and continues as its
tangent. The best shift for h_high comes with potentials u, v: u_i + v_j = h_high on the plan, u_i + v_j <=
h_high(x_i - y_j) for all pairs, by convexity. They prove optimality for h itself when u_i + v_j <= h(x_i - y_j)
also for the FAR pairs, those more than t_0 apart, where h < h_high. (If the optimal plan for h moves no token
beyond t_0 it is cyclic: for p = 2 two of its pairs satisfy sin(dx/2) sin(dy/2) cos(mean displacement) >= 0. So
this plan is then the only candidate.)

Far pairs are checked by blocks of neighbouring tokens: a block pair is settled when max u + max v is below the
smallest far cost between the blocks, and is split otherwise. Usually that ends after few blocks; the work is
capped.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from metastable.transport.shift import TIE, TURN, Quantiles, ShiftCost, displacement_cost, first_boundary

SLACK = 1e-13
"""Rounding allowed in u_i + v_j <= h; it is subtracted from the bound."""


def certified_lower_bound(source: Quantiles, target: Quantiles, shift: float, above: ShiftCost) -> float:
    """The dual value sum a u + sum b v - slack when (u, v) is feasible for the chordal cost, else -inf."""
    fields = (above.kind, float(above.p), above.cut, above.value, above.slope)
    u, v = _potentials(source.angle, source.level, target.angle, target.level, shift, *fields)
    if not (np.isfinite(u).all() and np.isfinite(v).all()):
        return -math.inf
    pyramid_u, starts_u = _pyramid(u)
    pyramid_v, starts_v = _pyramid(v)
    if not _far_pairs_hold(
        source.angle, pyramid_u, starts_u, target.angle, pyramid_v, starts_v, float(above.p), above.cut
    ):
        return -math.inf
    mass_u, mass_v = np.diff(source.level, prepend=0.0), np.diff(target.level, prepend=0.0)
    return float(mass_u @ u + mass_v @ v) - SLACK


@numba.njit(cache=True, nogil=True)
def _potentials(
    x: np.ndarray,
    x_level: np.ndarray,
    y: np.ndarray,
    y_level: np.ndarray,
    shift: float,
    kind: int,
    p: float,
    cut: float,
    value: float,
    slope: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Potentials along the chain of coupled pairs (i, j), walked twice around.

    Where only x advances, u grows by c(i+1, j) - c(i, j). Where both advance (a tie) the growth may be anything
    in [c(i+1, j+1) - c(i, j+1), c(i+1, j) - c(i, j)]; one share of all these intervals closes the turn, and the
    optimality of the shift is what makes that share lie in [0, 1]. NaN when it does not.
    """
    n, m = len(x), len(y)
    u = np.zeros(n)
    v = np.full(m, np.nan)
    share = 0.0
    for sweep in range(2):
        j, turns = first_boundary(y_level, shift)
        i = 0
        counted = 0
        fixed = 0.0
        least = 0.0
        room = 0.0
        height = 0.0
        while i < n or counted < m:
            xi = x[i] if i < n else x[i - n] + TURN
            ai = x_level[i] if i < n else x_level[i - n] + 1.0
            yj, bj = y[j] + TURN * turns, y_level[j] + turns + shift
            here = displacement_cost(xi - yj, kind, p, cut, value, slope)
            if sweep == 1:
                if i < n:
                    u[i] = height
                v[j] = here - height
            step_y = counted < m and bj <= ai + TIE
            step_x = not step_y or bj >= ai - TIE
            x_next = x[i + 1] if i + 1 < n else x[i + 1 - n] + TURN
            j_next = j + 1 if j + 1 < m else 0
            turns_next = turns if j + 1 < m else turns + 1
            y_next = y[j_next] + TURN * turns_next
            if step_x:
                high = displacement_cost(x_next - yj, kind, p, cut, value, slope) - here
                if step_y:
                    low = displacement_cost(x_next - y_next, kind, p, cut, value, slope) - displacement_cost(
                        xi - y_next, kind, p, cut, value, slope
                    )
                    least += low
                    room += high - low
                    height += low + share * (high - low)
                else:
                    fixed += high
                    height += high
                i += 1
            if step_y:
                counted += 1
                j, turns = j_next, turns_next
        if sweep == 0:
            share = -(fixed + least) / room if room > 0 else 0.0
            if not -1e-9 <= share <= 1 + 1e-9 or (room <= 0 and abs(fixed + least) > 1e-14):
                u[0] = np.nan
                return u, v
            share = min(max(share, 0.0), 1.0)
    return u, v


@numba.njit(cache=True, nogil=True)
def _pyramid(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Maxima over aligned blocks of 1, 2, 4, ... values, one level after the other, and where each level starts."""
    levels = 1
    size = len(values)
    total = size
    while size > 1:
        size = (size + 1) // 2
        total += size
        levels += 1
    out = np.empty(total)
    starts = np.zeros(levels + 1, np.int64)
    out[: len(values)] = values
    size = len(values)
    for level in range(1, levels):
        below = starts[level - 1]
        starts[level] = below + size
        half = (size + 1) // 2
        for k in range(half):
            top = out[below + 2 * k]
            if 2 * k + 1 < size:
                top = max(top, out[below + 2 * k + 1])
            out[starts[level] + k] = top
        size = half
    starts[levels] = total
    return out, starts


@numba.njit(cache=True, inline="always")
def _round_angle(t: float) -> float:
    """The distance of t from the nearest multiple of a turn, in [0, pi]."""
    return abs(t - TURN * np.round(t / TURN))


@numba.njit(cache=True, nogil=True)
def _far_pairs_hold(
    x: np.ndarray,
    u: np.ndarray,
    u_starts: np.ndarray,
    y: np.ndarray,
    v: np.ndarray,
    v_starts: np.ndarray,
    p: float,
    cut: float,
) -> bool:
    """Whether u_i + v_j <= (2 sin(t/2))^p for all pairs more than `cut` apart; False when the work is too much."""
    n, m = len(x), len(y)
    stack = [(len(u_starts) - 2, 0, len(v_starts) - 2, 0)]
    work = 0
    while len(stack) > 0:
        level_x, block_x, level_y, block_y = stack.pop()
        work += 1
        if work > 200 * (n + m) + 10_000:
            return False
        first_x, last_x = block_x << level_x, min((block_x + 1) << level_x, n) - 1
        first_y, last_y = block_y << level_y, min((block_y + 1) << level_y, m) - 1
        low, high = x[first_x] - y[last_y], x[last_x] - y[first_y]
        # The farthest and the nearest displacement in [low, high], seen on the circle.
        far = max(_round_angle(low), _round_angle(high))
        if math.floor((high - math.pi) / TURN) >= math.ceil((low - math.pi) / TURN):
            far = math.pi
        if far <= cut:
            continue
        near = min(_round_angle(low), _round_angle(high))
        if math.floor(high / TURN) >= math.ceil(low / TURN):
            near = 0.0
        top = u[u_starts[level_x] + block_x] + v[v_starts[level_y] + block_y]
        if top <= (2 * math.sin(max(near, cut) / 2)) ** p + SLACK:
            continue
        if level_x == 0 and level_y == 0:
            return False
        if level_x >= level_y:
            stack.append((level_x - 1, 2 * block_x, level_y, block_y))
            if (2 * block_x + 1) << (level_x - 1) < n:
                stack.append((level_x - 1, 2 * block_x + 1, level_y, block_y))
        else:
            stack.append((level_x, block_x, level_y - 1, 2 * block_y))
            if (2 * block_y + 1) << (level_y - 1) < m:
                stack.append((level_x, block_x, level_y - 1, 2 * block_y + 1))
    return True
