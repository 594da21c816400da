"""A short arc is the line: all digits of small distances, and None where mass might travel around."""

import math

import numpy as np
import pytest

from metastable.transport import wasserstein
from metastable.transport.arc import arc_cost, inflection


def directions(angles: np.ndarray) -> np.ndarray:
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


@pytest.mark.parametrize("metric", ["chordal", "geodesic"])
@pytest.mark.parametrize("size", [1e-9, 1e-6, 0.7])
def test_digits_of_small_clusters(metric: str, size: float) -> None:
    """Two clusters across angle 0, where angles jump: the error is that of the points."""
    rng = np.random.default_rng(1)
    t, s = size * rng.uniform(-1, 1, 30), size * rng.uniform(-1, 1, 30)
    apart = np.abs(np.sort(t) - np.sort(s))
    expected = np.sqrt(np.mean((apart if metric == "geodesic" else 2 * np.sin(apart / 2)) ** 2))
    found = wasserstein(directions(t), directions(s), metric=metric)
    assert found.exact and found.method == "circle" and found == pytest.approx(expected, abs=1e-15)


def test_long_arcs_are_left_to_the_shift_search() -> None:
    one = np.ones(1)
    x = directions(np.array([0.0]))
    quarter, more = directions(np.array([math.pi / 2 - 1e-9])), directions(np.array([math.pi / 2 + 1e-9]))
    assert inflection(2) == pytest.approx(math.pi / 2)
    assert arc_cost(x, one, quarter, one, "chordal", 2) == pytest.approx(2, abs=1e-8)
    assert arc_cost(x, one, more, one, "chordal", 2) is None
    assert arc_cost(x, one, quarter, one, "chordal", 1) is None
    assert arc_cost(x, one, -x, one, "geodesic", 2) is None


def test_one_row_far_from_many_is_found_among_them() -> None:
    t = np.full(1000, 0.1)
    t[777] = 3.0
    x, mass = directions(t), np.full(1000, 1e-3)
    assert arc_cost(x, mass, x[:1], np.ones(1), "chordal", 2) is None
    assert arc_cost(x, mass, x[:1], np.ones(1), "geodesic", 2) == pytest.approx(1e-3 * 2.9**2, rel=1e-12)
