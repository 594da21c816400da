"""Random measures for the transport tests: uniform, clustered, antipodal, duplicate; equal or random masses."""

import math

import numpy as np
from hypothesis import strategies as st

from metastable.measure import Measure
from metastable.transport.pair import make_pair
from metastable.transport.shift import Quantiles, quantiles

METRIC = st.sampled_from(["chordal", "geodesic"])
P = st.sampled_from([1, 2, 3])
KINDS = ("uniform", "cluster", "antipodal", "duplicate", "arc")


def cloud(n: int, d: int, kind: str, weighted: bool, seed: int) -> Measure:
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n, d))
    pole = rng.standard_normal(d)
    if kind == "cluster":
        points = pole + 0.2 * points
    elif kind == "antipodal":
        points = rng.choice([-1.0, 1.0], n, p=[0.3, 0.7])[:, None] * pole + 0.1 * points
    elif kind == "duplicate":
        points = points[rng.integers(0, max(1, n // 3), n)]
    elif kind == "arc":
        angle = rng.uniform(0, math.pi, n)
        points[:, 0], points[:, 1] = 3 * np.cos(angle), 3 * np.sin(angle)
    mass = rng.random(n) + 1e-3 if weighted else np.ones(n)
    return Measure(points, mass / mass.sum())


def clouds(d: int | None = None, max_n: int = 30) -> st.SearchStrategy[tuple[Measure, Measure]]:
    """Pairs of measures in one dimension."""

    @st.composite
    def draw_pair(draw: st.DrawFn) -> tuple[Measure, Measure]:
        dimension = draw(st.sampled_from([2, 3, 5])) if d is None else d
        weighted = draw(st.booleans())
        n = draw(st.integers(1, max_n))
        m = n if draw(st.booleans()) else draw(st.integers(1, max_n))
        seed = draw(st.integers(0, 2**32 - 1))
        first, second = draw(st.sampled_from(KINDS)), draw(st.sampled_from(KINDS))
        return cloud(n, dimension, first, weighted, seed), cloud(m, dimension, second, weighted, seed + 1)

    return draw_pair()


def both_quantiles(a: Measure, b: Measure) -> tuple[Quantiles, Quantiles]:
    """Source and target on the circle, sorted by angle."""
    pair = make_pair(a, b)
    return quantiles(pair.x, pair.a), quantiles(pair.y, pair.b)
