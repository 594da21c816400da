"""The shift search: transport on the circle for a cost of the displacement that is convex on the covering line.

With the quantile functions F^{-1}, G^{-1} of the angles, continued by G^{-1}(s+1) = G^{-1}(s) + 2 pi,

    min_alpha f(alpha),   f(alpha) = int_0^1 h( F^{-1}(s) - G^{-1}(s - alpha) ) ds,

is the optimal cost, and f is convex and piecewise linear [Delon, Salomon, Sobolevski, SIAM J. Appl. Math. 70
(2010)]. One evaluation of f with both one-sided slopes is a merge of two sorted lists, O(n + m); when all
masses are equal it is a sum over i of h(x_i - y_{i-k}) with an integer k. The search keeps a bracket and ends
at a proven optimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from jaxtyping import Float

from metastable.transport.pair import equal_masses

GEODESIC, CONVEXIFIED, CHORDAL = 0, 1, 2
TURN = 2 * math.pi
TIE = 2e-15
"""Levels that agree to this are one level: below it a mass is rounding, and matching it would cost 1e-8 in W2."""


@dataclass(frozen=True, eq=False)
class Quantiles:
    """Sorted angles in [0, 2 pi) and the cumulative masses up to and including each, the last one being 1."""

    angle: Float[np.ndarray, "n"]
    level: Float[np.ndarray, "n"]
    equal: bool


@dataclass(frozen=True)
class ShiftCost:
    """A cost h(t) of the displacement: |t|^p, (2 |sin(t/2)|)^p, or the latter continued by a line beyond `cut`."""

    kind: int
    p: float
    cut: float = math.inf
    value: float = 0.0
    slope: float = 0.0


class Evaluation(NamedTuple):
    """f at a shift, its one-sided slopes, and how far it is linear on either side."""

    shift: float
    value: float
    left: float
    right: float
    free_left: float
    free_right: float


def quantiles(points: Float[np.ndarray, "n 2"], mass: Float[np.ndarray, "n"]) -> Quantiles:
    """The quantile function of the angles."""
    angle = np.arctan2(points[:, 1], points[:, 0])
    angle[angle < 0] += TURN
    if equal_masses(mass):
        angle.sort()
        return Quantiles(angle, np.arange(1, len(mass) + 1) / len(mass), True)
    order = np.argsort(angle)
    level = np.cumsum(mass[order])
    level /= level[-1]
    return Quantiles(angle[order], level, False)


def best_shift(
    source: Quantiles, target: Quantiles, cost: ShiftCost, *, breakpoint: bool = False
) -> tuple[float, float]:
    """(min_alpha f(alpha), a minimiser) for a convex cost.

    The value is the minimum to rounding. breakpoint: go on until the minimiser itself is a breakpoint of f,
    which the potentials of `metastable.transport.certificate` need. At alpha = -1 every displacement is <= 0
    and at +1 every one is >= 0, so a minimiser lies between.
    """
    if source.equal and target.equal and len(source.angle) == len(target.angle):
        return _best_integer_shift(source, target, cost)
    return _best_real_shift(source, target, cost, breakpoint)


def shift_cost(
    source: Quantiles, target: Quantiles, shift: float, cost: ShiftCost
) -> tuple[float, float, float, float, float]:
    """(f(shift), left slope, right slope, room to the next breakpoint on the left, on the right); any cost."""
    return _merge(
        source.angle,
        source.level,
        target.angle,
        target.level,
        shift,
        cost.kind,
        float(cost.p),
        cost.cut,
        cost.value,
        cost.slope,
    )


def _best_real_shift(
    source: Quantiles, target: Quantiles, cost: ShiftCost, breakpoint: bool
) -> tuple[float, float]:
    """Bracketed secant on the slopes of f.

    The slopes are constant up to the next breakpoint, which an evaluation knows; so the bracket shrinks by at
    least one breakpoint each time, and the search ends AT the breakpoint where the slope changes sign.
    """

    def evaluate(shift: float) -> Evaluation:
        return Evaluation(shift, *shift_cost(source, target, shift, cost))

    low, high, middle = evaluate(-1.0), evaluate(1.0), evaluate(0.0)
    if low.right >= 0 or high.left <= 0:  # coincident tokens: an end of the range is the minimiser
        end = low if low.right >= 0 else high
        return end.value, end.shift
    weight_low = weight_high = 1.0
    width = math.inf
    for step in range(300):
        if middle.left <= 0 <= middle.right:
            break
        if middle.right < 0:
            low, weight_low, weight_high = middle, 1.0, weight_high / 2
        else:
            high, weight_high, weight_low = middle, 1.0, weight_low / 2
        first, last = low.shift + low.free_right, high.shift - high.free_left
        if last - first <= TIE:
            middle = min(evaluate(first), evaluate(last), low, high, key=lambda e: e.value)
            break
        best = min(low, high, key=lambda e: e.value)
        # f lies above its tangents, so where they cross bounds the minimum from below.
        crossing = (low.value - high.value + high.left * (high.shift - low.shift)) / (high.left - low.right)
        if not breakpoint and best.value - (low.value + low.right * crossing) <= 1e-15 * best.value:
            middle = best
            break
        fall, rise = -weight_low * low.right, weight_high * high.left
        guess = low.shift + (high.shift - low.shift) * fall / (fall + rise)
        if step % 3 == 2 and high.shift - low.shift > width / 2:
            guess = (first + last) / 2
        width = high.shift - low.shift if step % 3 == 2 else width
        middle = evaluate(min(max(guess, first), last))
    return middle.value, middle.shift


def _best_integer_shift(source: Quantiles, target: Quantiles, cost: ShiftCost) -> tuple[float, float]:
    """The first k at which f((k+1)/n) - f(k/n) is >= 0, found as the root of an increasing sequence."""
    n = len(source.angle)
    # Three turns of the target and one token more on either side, so that no index is ever wrapped.
    around = np.empty(3 * n + 2)
    np.subtract(target.angle, TURN, out=around[1 : n + 1])
    around[n + 1 : 2 * n + 1] = target.angle
    np.add(target.angle, TURN, out=around[2 * n + 1 : -1])
    around[0], around[-1] = around[n] - TURN, around[2 * n + 1] + TURN

    def evaluate(k: int) -> tuple[float, float]:
        value, after = _integer_shift(
            source.angle, around, n + 1 - k, cost.kind, float(cost.p), cost.cut, cost.value, cost.slope
        )
        return value / n, after / n - value / n

    low, high = -n, n
    (_, low_rise), (value, high_rise) = evaluate(low), evaluate(high)
    if low_rise >= 0:
        return evaluate(low)[0], low / n
    weight_low = weight_high = 1.0
    guess, step = 0, 0
    while high - low > 1:
        found, rise = evaluate(guess)
        if rise < 0:
            low, low_rise, weight_low, weight_high = guess, rise, 1.0, weight_high / 2
        else:
            high, high_rise, value, weight_high, weight_low = guess, rise, found, 1.0, weight_low / 2
        step += 1
        share = weight_low * low_rise / (weight_low * low_rise - weight_high * high_rise)
        guess = (low + high) // 2 if step % 5 == 4 else low + round((high - low) * share)
        guess = min(max(guess, low + 1), high - 1)
    return value, high / n


@numba.njit(cache=True, inline="always")
def _power(side: float, p: float) -> float:
    if p == 2.0:
        return side * side
    if p == 1.0:
        return side
    return side**p


@numba.njit(cache=True, inline="always")
def displacement_cost(t: float, kind: int, p: float, cut: float, value: float, slope: float) -> float:
    """h(t) of a `ShiftCost` given by its fields."""
    size = abs(t)
    if kind == GEODESIC:
        return _power(size, p)
    if kind == CONVEXIFIED and size > cut:
        return value + slope * (size - cut)
    return _power(2 * abs(math.sin(size / 2)), p)


@numba.njit(cache=True, nogil=True)
def _integer_shift(
    x: np.ndarray, around: np.ndarray, first: int, kind: int, p: float, cut: float, value: float, slope: float
) -> tuple[float, float]:
    """sum_i h(x_i - y_{i-k}) and sum_i h(x_i - y_{i-k-1}), in blocks so that rounding does not grow with n."""
    n = len(x)
    total = 0.0
    after = 0.0
    for start in range(0, n, 1024):
        block_total = 0.0
        block_after = 0.0
        stop = min(start + 1024, n)
        if kind == GEODESIC and p == 2.0:
            for i in range(start, stop):
                block_total += (x[i] - around[first + i]) ** 2
                block_after += (x[i] - around[first + i - 1]) ** 2
        else:
            for i in range(start, stop):
                block_total += displacement_cost(x[i] - around[first + i], kind, p, cut, value, slope)
                block_after += displacement_cost(x[i] - around[first + i - 1], kind, p, cut, value, slope)
        total += block_total
        after += block_after
    return total, after


@numba.njit(cache=True, nogil=True)
def first_boundary(y_level: np.ndarray, shift: float) -> tuple[int, int]:
    """(j, turns): the first boundary y_level[j] + turns + shift that lies right of level 0, ties to the left."""
    m = len(y_level)
    turns = math.floor(-shift)
    j = int(np.searchsorted(y_level, -shift - turns, side="right"))
    while j > 0 and y_level[j - 1] + turns + shift > TIE:
        j -= 1
    while j < m and y_level[j] + turns + shift <= TIE:
        j += 1
    if j >= m:
        j -= m
        turns += 1
    return j, turns


@numba.njit(cache=True, nogil=True)
def _merge(
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
) -> tuple[float, float, float, float, float]:
    """(f(shift), left slope, right slope, distances to the next breakpoints on the left and on the right).

    The boundary between the masses of y_j and y_{j+1} sits at the level y_level[j] + shift. Moving it to the right
    gives more of the x found there to y_j and less to y_{j+1}. Exactly m boundaries are counted per turn.
    """
    n, m = len(x), len(y)
    j, turns = first_boundary(y_level, shift)
    i = 0
    counted = 0
    before = 0.0
    total = 0.0
    left = 0.0
    right = 0.0
    free_left = 2.0
    free_right = 2.0
    passed = 0.0
    xi, ai = x[0], x_level[0]
    yj, bj = y[j] + TURN * turns, y_level[j] + turns + shift
    here = displacement_cost(xi - yj, kind, p, cut, value, slope)
    while i < n or counted < m:
        upto = min(ai, bj, 1.0)
        if upto > before:
            total += (upto - before) * here
            before = upto
        if counted < m and bj <= ai + TIE:
            j += 1
            if j == m:
                j = 0
                turns += 1
            y_next = y[j] + TURN * turns
            after = displacement_cost(xi - y_next, kind, p, cut, value, slope)
            left += here - after
            if bj >= ai - TIE:
                free_left = min(free_left, ai - passed)
                passed = ai
                i += 1
                x_next = x[i] if i < n else x[i - n] + TURN
                ai = x_level[i] if i < n else x_level[i - n] + 1.0
                corner = displacement_cost(x_next - yj, kind, p, cut, value, slope)
                after = displacement_cost(x_next - y_next, kind, p, cut, value, slope)
                right += corner - after
                free_right = min(free_right, ai - passed)
                xi = x_next
            else:
                right += here - after
                free_left = min(free_left, bj - passed)
                free_right = min(free_right, ai - bj)
            counted += 1
            yj = y_next
            bj = y_level[j] + turns + shift
            here = after
        else:
            passed = ai
            i += 1
            xi = x[i] if i < n else x[i - n] + TURN
            ai = x_level[i] if i < n else x_level[i - n] + 1.0
            here = displacement_cost(xi - yj, kind, p, cut, value, slope)
    return total, left, right, max(free_left, 0.0), max(free_right, 0.0)
