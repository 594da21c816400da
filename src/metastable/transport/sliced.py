"""Sliced distances: transport averaged over random projections, a distance of its own."""

from __future__ import annotations

import numpy as np

from metastable.transport.arc import arc_cost
from metastable.transport.distance import Distance
from metastable.transport.line import line_cost
from metastable.transport.pair import Pair
from metastable.transport.shift import GEODESIC, ShiftCost, best_shift, quantiles

PROJECTIONS = 128
"""Default number of projections: a standard error of about a tenth of the spread between projections."""


def sliced(pair: Pair, metric: str, p: float, *, projections: int = PROJECTIONS, seed: int = 0) -> Distance:
    """( E_U W_p^p(U#a, U#b) )^{1/p} over random projections U; O(projections * n log n) in any dimension.

    geodesic: U x = U^T x/|U^T x| onto a random great circle, geodesic transport there [Bonet, Berg, Courty,
    Septier, Drumetz, Pham, "Spherical sliced-Wasserstein", ICLR 2023]. chordal: U x = <u, x> onto a random
    line; this one is never above the chordal W_p. Both vanish only for equal measures but are NOT W_p: exact is
    False, and `error` is one standard error of the average over the projections, not the difference from W_p.
    """
    generator = np.random.default_rng(seed)
    costs = np.array([_projected_cost(pair, metric, p, generator) for _ in range(projections)])
    mean = float(costs.mean())
    value = mean ** (1 / p)
    spread = float(costs.std(ddof=1)) / np.sqrt(projections)
    error = value * spread / (p * mean) if mean > 0 else 0.0
    return Distance(value, method="sliced", exact=False, error=error, metric=metric, p=p)


def _projected_cost(pair: Pair, metric: str, p: float, generator: np.random.Generator) -> float:
    if metric == "chordal":
        direction = generator.standard_normal(pair.d)
        direction /= np.linalg.norm(direction)
        return line_cost(pair.x @ direction, pair.a, pair.y @ direction, pair.b, p)
    plane, _ = np.linalg.qr(generator.standard_normal((pair.d, 2)))
    x, y = pair.x @ plane, pair.y @ plane
    short = arc_cost(x, pair.a, y, pair.b, metric, p)
    if short is not None:
        return short
    return best_shift(quantiles(x, pair.a), quantiles(y, pair.b), ShiftCost(GEODESIC, p))[0]
