"""Exact transport on the circle in O(n log n): cyclic quantiles, a search over the shift, and a certificate.

Let F^{-1}, G^{-1} be the quantile functions of the angles, continued by G^{-1}(s+1) = G^{-1}(s) + 2 pi. For a
ground cost h(x - y) that is convex on the covering line,

    W_p^p = min_alpha f(alpha),   f(alpha) = int_0^1 h( F^{-1}(s) - G^{-1}(s - alpha) ) ds,

f is convex and piecewise linear [Delon, Salomon, Sobolevski, SIAM J. Appl. Math. 70 (2010)]. That settles the
geodesic metric, h = |t|^p. One evaluation of f with both one-sided slopes is a merge of two sorted lists, O(n + m);
the search keeps a bracket and stops when the tangents prove the optimum to rounding.

The CHORDAL cost h = (2 sin(|t|/2))^p is convex only up to t_0 = 2 atan sqrt(p-1) (a quarter turn for p = 2) and
concave beyond, where optimal plans reverse the order, so the cyclic structure can fail [Gangbo, McCann, Quart.
Appl. Math. 58 (2000)]. Two convex functions enclose it: h_low <= h on [-pi, pi], equal up to t_1 (46.4 degrees
for p = 2) and then the line to (pi, 2^p); and h_high, equal up to t_0 and then its tangent. Hence

    lower  = min_alpha f_low   <=   W_p^p   <=   upper = cost of a shift plan,

and lower = upper whenever no token of the best plan travels more than t_1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
from jaxtyping import Float
from scipy import optimize

from metastable.errors import InvalidInput
from metastable.transport.distance import Distance
from metastable.transport.exact import MAX_PAIRS, exact
from metastable.transport.pair import Pair, equal_masses

GEODESIC, CONVEXIFIED, CHORDAL = 0, 1, 2
RELATIVE_GAP = 1e-13
TURN = 2 * math.pi


@dataclass(frozen=True, eq=False)
class Quantiles:
    """Sorted angles in [0, 2 pi) and the cumulative masses up to and including each, the last one being 1."""

    angle: Float[np.ndarray, "n"]
    level: Float[np.ndarray, "n"]


@dataclass(frozen=True)
class ShiftCost:
    """A cost of the displacement t for the merge: its kind, exponent, and where its linear part begins."""

    kind: int
    p: float
    cut: float = math.inf
    value: float = 0.0
    slope: float = 0.0


def circle(pair: Pair, metric: str, p: float, *, max_pairs: int = MAX_PAIRS) -> Distance:
    """W_p on the circle (d = 2).

    Geodesic: exact. Chordal: exact with a certificate; where the cyclic plan cannot be certified, the linear
    program up to `max_pairs` entries, and beyond that the upper bound with exact=False and error = upper - lower.
    """
    if pair.d != 2 or not pair.sphere:
        raise InvalidInput(f"method 'circle' needs tokens on the circle S^1 (d = 2), got d = {pair.d}")
    source, target = quantiles(pair.x, pair.a), quantiles(pair.y, pair.b)
    if metric == "geodesic":
        value, _ = best_shift(source, target, ShiftCost(GEODESIC, p))
        return Distance(value ** (1 / p), method="circle", exact=True, metric=metric, p=p)
    lower, upper = enclose(source, target, p)
    if upper - lower <= RELATIVE_GAP * upper:
        return Distance(upper ** (1 / p), method="circle", exact=True, metric=metric, p=p)
    if pair.pairs <= max_pairs:
        return exact(pair, metric, p, max_pairs=max_pairs)
    gap = upper ** (1 / p) - max(lower, 0.0) ** (1 / p)
    return Distance(upper ** (1 / p), method="circle", exact=False, error=gap, metric=metric, p=p)


def quantiles(points: Float[np.ndarray, "n 2"], mass: Float[np.ndarray, "n"]) -> Quantiles:
    """The quantile function of the angles."""
    angle = np.arctan2(points[:, 1], points[:, 0])
    angle[angle < 0] += TURN
    if equal_masses(mass):
        n = len(mass)
        return Quantiles(np.sort(angle), np.arange(1, n + 1) / n)
    order = np.argsort(angle)
    level = np.cumsum(mass[order])
    level /= level[-1]
    return Quantiles(angle[order], level)


def enclose(source: Quantiles, target: Quantiles, p: float) -> tuple[float, float]:
    """Rigorous bounds (lower, upper) of the chordal W_p^p from the convex functions below and above the cost."""
    true = ShiftCost(CHORDAL, p)
    lower, shift = best_shift(source, target, convex_below(p))
    upper = _merge(source.angle, source.level, target.angle, target.level, shift, *_arguments(true))[0]
    if upper - lower > RELATIVE_GAP * upper and p > 1:
        _, shift = best_shift(source, target, convex_above(p))
        upper = min(
            upper, _merge(source.angle, source.level, target.angle, target.level, shift, *_arguments(true))[0]
        )
    return lower, upper


def convex_below(p: float) -> ShiftCost:
    """The largest convex function below (2 sin(t/2))^p on [0, pi]: the cost up to t_1, then a line to (pi, 2^p)."""
    if p == 1:
        return ShiftCost(CONVEXIFIED, p, 0.0, 0.0, 2 / math.pi)

    def tangency(t: float) -> float:
        side = 2 * math.sin(t / 2)
        return side**p + p * side ** (p - 1) * math.cos(t / 2) * (math.pi - t) - 2**p

    cut = optimize.brentq(tangency, 1e-12, inflection(p), xtol=1e-15)
    # A slope rounded down keeps the function below the cost.
    value = (2 * math.sin(cut / 2)) ** p
    return ShiftCost(CONVEXIFIED, p, cut, value, (2**p - value) / (math.pi - cut))


def convex_above(p: float) -> ShiftCost:
    """The cost up to its inflection t_0, then the tangent there: convex, and above the cost."""
    cut = inflection(p)
    side = 2 * math.sin(cut / 2)
    return ShiftCost(CONVEXIFIED, p, cut, side**p, p * side ** (p - 1) * math.cos(cut / 2))


def inflection(p: float) -> float:
    """t_0 = 2 atan sqrt(p - 1), where (2 sin(t/2))^p turns from convex to concave."""
    return 2 * math.atan(math.sqrt(p - 1))


def best_shift(source: Quantiles, target: Quantiles, cost: ShiftCost) -> tuple[float, float]:
    """(min_alpha f(alpha), a minimiser), by a bracketed secant on the slopes of the convex function f.

    At alpha = -1 every displacement is <= 0 and at +1 every one is >= 0, so a minimiser lies between.
    """
    fixed = (source.angle, source.level, target.angle, target.level)
    arguments = _arguments(cost)

    def evaluate(shift: float) -> tuple[float, float, float, float]:
        value, left, right = _merge(*fixed, shift, *arguments)
        return shift, value, left, right

    low, high, middle = evaluate(-1.0), evaluate(1.0), evaluate(0.0)
    best = min(low, high, middle, key=lambda e: e[1])
    weight_low = weight_high = 1.0
    for step in range(200):
        if middle[2] <= 0 <= middle[3]:
            return middle[1], middle[0]
        if middle[3] < 0:
            low, weight_low, weight_high = middle, 1.0, weight_high / 2
        else:
            high, weight_high, weight_low = middle, 1.0, weight_low / 2
        best = min(best, middle, key=lambda e: e[1])
        width = high[0] - low[0]
        rise_low, rise_high = low[3], high[2]
        # f lies above its tangents, so their crossing bounds the minimum from below.
        if rise_high - rise_low <= 0:
            break
        crossing = low[1] + rise_low * (high[1] - low[1] - rise_high * width) / (rise_low - rise_high)
        if best[1] - crossing <= 1e-15 * best[1]:
            break
        if step % 4 == 3:
            guess = low[0] + width / 2
        else:
            left, right = weight_low * -rise_low, weight_high * rise_high
            guess = low[0] + width * left / (left + right)
        if not low[0] < guess < high[0]:
            guess = low[0] + width / 2
            if not low[0] < guess < high[0]:
                break
        middle = evaluate(guess)
    return best[1], best[0]


def _arguments(cost: ShiftCost) -> tuple[int, float, float, float, float]:
    return cost.kind, float(cost.p), cost.cut, cost.value, cost.slope


@numba.njit(cache=True, inline="always")
def _power(side: float, p: float) -> float:
    if p == 2.0:
        return side * side
    if p == 1.0:
        return side
    return side**p


@numba.njit(cache=True, inline="always")
def _cost(t: float, kind: int, p: float, cut: float, value: float, slope: float) -> float:
    size = abs(t)
    if kind == GEODESIC:
        return _power(size, p)
    if kind == CONVEXIFIED and size > cut:
        return value + slope * (size - cut)
    return _power(2 * abs(math.sin(size / 2)), p)


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
) -> tuple[float, float, float]:
    """(f(shift), left slope, right slope).

    The boundary between the masses of y_j and y_{j+1} sits at the level y_level[j] + shift. Moving it to the right
    gives more of the x found there to y_j and less to y_{j+1}. Exactly m boundaries are counted per turn.
    """
    n, m = len(x), len(y)
    turns = math.floor(-shift)
    j = int(np.searchsorted(y_level, -shift - turns, side="right"))
    while j > 0 and y_level[j - 1] + turns + shift > 0:
        j -= 1
    if j >= m:
        j -= m
        turns += 1
    i = 0
    counted = 0
    before = 0.0
    total = 0.0
    left = 0.0
    right = 0.0
    xi, ai = x[0], x_level[0]
    yj, bj = y[j] + TURN * turns, y_level[j] + turns + shift
    here = _cost(xi - yj, kind, p, cut, value, slope)
    while i < n or counted < m:
        upto = min(ai, bj, 1.0)
        if upto > before:
            total += (upto - before) * here
            before = upto
        if counted < m and bj <= ai:
            j += 1
            if j == m:
                j = 0
                turns += 1
            y_next = y[j] + TURN * turns
            after = _cost(xi - y_next, kind, p, cut, value, slope)
            left += here - after
            if bj == ai:
                i += 1
                x_next = x[i] if i < n else x[i - n] + TURN
                ai = x_level[i] if i < n else x_level[i - n] + 1.0
                corner = _cost(x_next - yj, kind, p, cut, value, slope)
                after = _cost(x_next - y_next, kind, p, cut, value, slope)
                right += corner - after
                xi = x_next
            else:
                right += here - after
            counted += 1
            yj = y_next
            bj = y_level[j] + turns + shift
            here = after
        else:
            i += 1
            xi = x[i] if i < n else x[i - n] + TURN
            ai = x_level[i] if i < n else x_level[i - n] + 1.0
            here = _cost(xi - yj, kind, p, cut, value, slope)
    return total, left, right
