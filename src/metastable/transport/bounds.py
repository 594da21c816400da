"""Rigorous bounds lower <= W_p <= upper in O(n log n), for when the exact distance is out of reach."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from metastable.arguments import integer
from metastable.measure import Measure
from metastable.transport.distance import Bounds, bracket
from metastable.transport.ground import check_metric, paired_cost
from metastable.transport.line import line_cost, monotone_coupling
from metastable.transport.pair import Pair, make_pair
from metastable.transport.subsphere import distance_to_subsphere

LEAF = 32
"""Tokens that are not cut any further: sorting them along one axis is as good a coupling there."""
FLAT = 1e-10
"""Points off a subspace by less lie in it; the lower bound is lowered by what they are off."""
LOPSIDED = 8
"""A cut that leaves less than an eighth of the tokens on one side is made at the middle token instead."""
EPSILON = float(np.finfo(np.float64).eps)
"""The rounding of a sum of masses that total one, per term."""


MOST_DIRECTIONS = 10**5
"""Most random directions: each costs a sort of all tokens, and far fewer decide the bound."""


def bounds(a: Any, b: Any, p: float = 2, metric: str = "chordal", *, directions: int = 16, seed: int = 0) -> Bounds:
    """Bounds (E3) of W_p(a, b), no cost matrix.

    Lower, the best of: the distance of the means; transport on lines, since <u, .> is 1-Lipschitz (u: the axes,
    the difference of the means, the top directions of the difference of the second moments, and `directions`
    random ones); and, when one measure lies on a subsphere E ∩ S, the distance of the other to E. Upper, the
    cheaper of two couplings: token i with token i when the masses agree one by one (synchronous), and the one
    in the order of a joint tree of median cuts. Geodesic lower bounds use W_geo >= 2 arcsin(W_chord/2), which
    is Jensen's inequality for p = 1, 2, 3, ...

    >>> lower, upper = bounds([[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]])
    >>> float(lower) <= 2**0.5 <= float(upper) + 1e-12
    True
    """
    p = check_metric(metric, p)
    directions, seed = (
        integer(directions, "directions", least=0, most=MOST_DIRECTIONS),
        integer(seed, "seed", least=0),
    )
    pair = make_pair(a, b, metric)
    lower, lower_name = max(_lower_bounds(pair, metric, p, directions, seed))
    upper, upper_name = min(_upper_bounds(pair, metric, p))
    names = (f"lower bound: {lower_name}", f"upper bound: {upper_name}")
    return bracket(pair.scale * lower, pair.scale * upper, names, metric, p)


def _lower_bounds(pair: Pair, metric: str, p: float, directions: int, seed: int) -> list[tuple[float, str]]:
    difference = pair.a @ pair.x - pair.b @ pair.y
    rounding = _rounding(pair)
    chordal = [(float(np.linalg.norm(difference)) - 2 * rounding, "means")]
    for direction in _directions(pair, difference, directions, seed):
        cost = line_cost(pair.x @ direction, pair.a, pair.y @ direction, pair.b, p)
        chordal.append((max(cost - rounding * 2**p, 0.0) ** (1 / p), "projection"))
    found = [(_to_metric(max(value, 0.0), metric, p), name) for value, name in chordal]
    if pair.sphere:
        for side in (pair, pair.swapped()):
            span, off = _flat_span(side.y, side.b)
            if span.shape[1] < pair.d:
                # Points off E by `off` can be nearer by that much.
                away = distance_to_subsphere(Measure(side.x, side.a), span, metric, p) - 2 * off
                found.append((max(float(away), 0.0), "subsphere"))
    return found


def _rounding(pair: Pair) -> float:
    """What rounding may move of the total mass: one unit per token."""
    return (len(pair.a) + len(pair.b)) * EPSILON


def _to_metric(value: float, metric: str, p: float) -> float:
    if metric == "chordal" or p != int(p):
        return value
    return 2 * math.asin(min(value / 2, 1.0))


def _flat_span(points: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, float]:
    """Orthonormal columns of the smallest space that holds the points to 1e-10, and how far off they are."""
    vectors, values, _ = np.linalg.svd(_moment(points, mass))
    rank = max(1, int((values > 1e-13).sum()))
    off = float(np.linalg.norm(points @ vectors[:, rank:], axis=1).max()) if rank < len(values) else 0.0
    return (vectors[:, :rank], off) if off <= FLAT else (vectors, 0.0)


def _moment(points: np.ndarray, mass: np.ndarray) -> np.ndarray:
    return (points * mass[:, None]).T @ points


def _directions(pair: Pair, difference: np.ndarray, count: int, seed: int) -> np.ndarray:
    _, vectors = np.linalg.eigh(_moment(pair.x, pair.a) - _moment(pair.y, pair.b))
    random = np.random.default_rng(seed).standard_normal((count, pair.d))
    axes = np.eye(pair.d)[: max(count, 3)]
    rows = np.vstack([difference[None], vectors.T[[0, -1]], axes, random])
    length = np.linalg.norm(rows, axis=1)
    return rows[length > 0] / length[length > 0, None]


def _upper_bounds(pair: Pair, metric: str, p: float) -> list[tuple[float, str]]:
    found = []
    most = _largest_cost(pair, metric, p)
    if len(pair.a) == len(pair.b):
        # What the masses at one place have in common stays together, the rest travels no farther than the farthest.
        shared = np.minimum(pair.a, pair.b)
        rest = 1 - float(shared.sum()) if (shared < pair.a).any() else 0.0
        cost = float(shared @ paired_cost(pair.x, pair.y, metric, p)) + max(rest, 0.0) * most
        found.append((cost ** (1 / p), "synchronous"))
    by_x, by_y = _tree_orders(pair)
    i, j, mass = monotone_coupling(pair.a[by_x], pair.b[by_y])
    tree = float(mass @ paired_cost(pair.x[by_x[i]], pair.y[by_y[j]], metric, p)) + _rounding(pair) * most
    found.append((tree ** (1 / p), "tree coupling"))
    return found


def _largest_cost(pair: Pair, metric: str, p: float) -> float:
    """A bound of d(x, y)^p over all pairs."""
    if metric == "geodesic":
        return math.pi**p
    return float(np.linalg.norm(pair.x, axis=1).max() + np.linalg.norm(pair.y, axis=1).max()) ** p


def _tree_orders(pair: Pair) -> tuple[np.ndarray, np.ndarray]:
    """Orders of both measures by the same cuts: halves of equal mass along the axis where the two spread most."""
    orders_x: list[np.ndarray] = []
    orders_y: list[np.ndarray] = []
    stack = [(np.arange(len(pair.a)), np.arange(len(pair.b)))]
    while stack:
        i, j = stack.pop()
        if len(i) == 0 or len(j) == 0:
            orders_x.append(i)
            orders_y.append(j)
            continue
        axis = int((pair.x[i].var(axis=0) + pair.y[j].var(axis=0)).argmax())
        i, j = i[np.argsort(pair.x[i, axis], kind="stable")], j[np.argsort(pair.y[j, axis], kind="stable")]
        if min(len(i), len(j)) <= LEAF:
            orders_x.append(i)
            orders_y.append(j)
            continue
        cut_i, cut_j = _cuts(pair.a[i], pair.b[j])
        stack.append((i[cut_i:], j[cut_j:]))
        stack.append((i[:cut_i], j[:cut_j]))
    return np.concatenate(orders_x), np.concatenate(orders_y)


def _cuts(a: np.ndarray, b: np.ndarray) -> tuple[int, int]:
    """Where to cut both lists of masses: at half of the mass, or at the middle token of `a` where few tokens of `a`
    have half of the mass; so every cut shortens `a` by a fixed share."""
    level_a, level_b = np.cumsum(a), np.cumsum(b)
    cut_a = int(np.searchsorted(level_a, level_a[-1] / 2)) + 1
    if not len(a) <= LOPSIDED * cut_a <= (LOPSIDED - 1) * len(a):
        cut_a = len(a) // 2
    share = level_a[cut_a - 1] / level_a[-1]
    return cut_a, int(np.searchsorted(level_b, share * level_b[-1] * (1 - 1e-12))) + 1
