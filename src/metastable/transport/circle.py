"""Exact transport on the circle in O(n log n): cyclic quantiles, a search over the shift, and a certificate.

Let F^{-1}, G^{-1} be the quantile functions of the angles, continued by G^{-1}(s+1) = G^{-1}(s) + 2 pi. For a
ground cost h(x - y) that is convex on the covering line,

    W_p^p = min_alpha f(alpha),   f(alpha) = int_0^1 h( F^{-1}(s) - G^{-1}(s - alpha) ) ds,

f is convex and piecewise linear (`metastable.transport.shift`). That settles the
geodesic metric, h = |t|^p. One evaluation of f with both one-sided slopes is a merge of two sorted lists, O(n + m);
the search keeps a bracket and stops when the tangents prove the optimum to rounding.

The CHORDAL cost h = (2 sin(|t|/2))^p is convex only up to t_0 = 2 atan sqrt(p-1) (a quarter turn for p = 2) and
concave beyond, where optimal plans reverse the order, so the cyclic structure can fail [Gangbo, McCann, Quart.
Appl. Math. 58 (2000)]. Two convex functions enclose it: h_low <= h on [-pi, pi], equal up to t_1 (46.4 degrees
for p = 2) and then the line to (pi, 2^p); and h_high, equal up to t_0 and then its tangent. Hence

    lower  = min_alpha f_low   <=   W_p^p   <=   upper = cost of a shift plan,

and lower = upper whenever no token of the best plan travels more than t_1. Beyond that, up to t_0, the plan for
h_high is the only candidate, and its potentials decide (`metastable.transport.certificate`).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from metastable.errors import InvalidInput
from metastable.transport.arc import arc_cost, inflection
from metastable.transport.certificate import certified_lower_bound
from metastable.transport.distance import Bounds, Distance, bracket
from metastable.transport.exact import MAX_PAIRS, exact
from metastable.transport.ground import paired_cost
from metastable.transport.pair import Pair
from metastable.transport.shift import (
    CHORDAL,
    CONVEXIFIED,
    GEODESIC,
    Quantiles,
    ShiftCost,
    best_shift,
    quantiles,
    shift_cost,
)

RELATIVE_GAP = 1e-11
"""Lower and upper value that agree to this are one: rounding of sums over 1e6 tokens stays below it."""
NO_ANGLE = 1e-300
"""An angle that is none: the search for t_1, which tends to 0 as p tends to 1, starts here."""
ARCS = 2000
"""Arcs of equal mass into which a measure too large for the linear program is gathered for its bracket."""


def circle(pair: Pair, metric: str, p: float, *, max_pairs: int = MAX_PAIRS) -> Distance | Bounds:
    """W_p on the circle (d = 2).

    Geodesic: exact. Chordal: exact with a certificate; where the cyclic plan cannot be certified, the linear
    program up to `max_pairs` entries, and beyond that rigorous bounds from the linear program between 2000 arcs
    (about 1e-3 apart).
    """
    proven = exact_on_circle(pair, metric, p)
    if proven is not None:
        return proven
    if pair.pairs <= max_pairs:
        return exact(pair, metric, p, max_pairs=max_pairs)
    lower, upper = (max(value, 0.0) ** (1 / p) for value in enclose(*_both(pair), p))
    value, error = _coarse(pair, metric, p)
    names = ("circle: convex cost or arcs", "circle: cyclic plan or arcs")
    return bracket(max(lower, value - error), min(upper, value + error), names, metric, p)


def exact_on_circle(pair: Pair, metric: str, p: float) -> Distance | None:
    """W_p by the shift search, or None where the cyclic plan is not proven optimal for the chordal cost."""
    if pair.d != 2 or not pair.sphere:
        raise InvalidInput(f"method 'circle' needs tokens on the circle S^1 (d = 2), got d = {pair.d}")
    value = arc_cost(pair.x, pair.a, pair.y, pair.b, metric, p)
    if value is None and metric == "geodesic":
        value, _ = best_shift(*_both(pair), ShiftCost(GEODESIC, p))
    elif value is None:
        lower, value = enclose(*_both(pair), p)
        if value - lower > RELATIVE_GAP * value:
            return None
    return Distance(max(value, 0.0) ** (1 / p), method="circle", exact=True, metric=metric, p=p)


def _both(pair: Pair) -> tuple[Quantiles, Quantiles]:
    return quantiles(pair.x, pair.a), quantiles(pair.y, pair.b)


def _coarse(pair: Pair, metric: str, p: float) -> tuple[float, float]:
    """W_p between both measures gathered into arcs of equal mass, and a rigorous bound of what gathering moved.

    The error is at most W_p(a, a_gathered) + W_p(b, b_gathered), each of them at most the cost of gathering.
    """
    x, a, moved_a = _gathered(pair.x, pair.a, metric, p)
    y, b, moved_b = _gathered(pair.y, pair.b, metric, p)
    return float(exact(Pair(x, a, y, b, True), metric, p)), moved_a + moved_b


def _gathered(points: np.ndarray, mass: np.ndarray, metric: str, p: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Centres and masses of arcs of equal mass, and the cost^{1/p} of moving every token to its centre."""
    order = np.argsort(np.arctan2(points[:, 1], points[:, 0]))
    points, mass = points[order], mass[order]
    arc = np.minimum((np.cumsum(mass) * ARCS).astype(np.int64), ARCS - 1)
    arc = np.unique(arc, return_inverse=True)[1]
    centre = np.stack([np.bincount(arc, mass * points[:, c]) for c in range(2)], axis=1)
    length = np.linalg.norm(centre, axis=1, keepdims=True)
    first = points[np.searchsorted(arc, np.arange(len(centre)))]
    centre = np.where(length > 1e-9, centre / np.maximum(length, 1e-9), first)
    moved = float(mass @ paired_cost(points, centre[arc], metric, p)) ** (1 / p)
    return centre, np.bincount(arc, mass), moved


def enclose(source: Quantiles, target: Quantiles, p: float) -> tuple[float, float]:
    """Rigorous bounds (lower, upper) of the chordal W_p^p; they meet when a cyclic plan is proven optimal."""
    true = ShiftCost(CHORDAL, p)
    lower, shift = best_shift(source, target, convex_below(p))
    upper = shift_cost(source, target, shift, true)[0]
    if upper - lower > RELATIVE_GAP * upper and p > 1:
        above = convex_above(p)
        _, shift = best_shift(source, target, above, breakpoint=True)
        upper = min(upper, shift_cost(source, target, shift, true)[0])
        lower = max(lower, certified_lower_bound(source, target, shift, above))
    return lower, upper


@lru_cache(maxsize=8)
def convex_below(p: float) -> ShiftCost:
    """The largest convex function below (2 sin(t/2))^p on [0, pi]: the cost up to t_1, then a line to (pi, 2^p)."""

    def tangency(t: float) -> float:
        side = 2 * math.sin(t / 2)
        return side**p + p * side ** (p - 1) * math.cos(t / 2) * (math.pi - t) - 2**p

    if p == 1 or tangency(NO_ANGLE) >= 0:  # t_1 below it: the line alone is above the cost by less than NO_ANGLE
        return ShiftCost(CONVEXIFIED, p, 0.0, 0.0, 2**p / math.pi)
    from scipy.optimize import brentq

    cut = brentq(tangency, NO_ANGLE, inflection(p), xtol=1e-15)
    # A slope rounded down keeps the function below the cost.
    value = (2 * math.sin(cut / 2)) ** p
    return ShiftCost(CONVEXIFIED, p, cut, value, (2**p - value) / (math.pi - cut))


def convex_above(p: float) -> ShiftCost:
    """The cost up to its inflection t_0, then the tangent there: convex, and above the cost."""
    cut = inflection(p)
    side = 2 * math.sin(cut / 2)
    return ShiftCost(CONVEXIFIED, p, cut, side**p, p * side ** (p - 1) * math.cos(cut / 2))
