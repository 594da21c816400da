"""Rigorous bounds: they enclose the exact distance."""

import numpy as np
import pytest
from hypothesis import given, settings

from metastable.errors import InvalidInput
from metastable.measure import Measure
from metastable.transport import bounds, wasserstein
from transport.clouds import METRIC, P, clouds


@settings(max_examples=60, deadline=None)
@given(clouds(), METRIC, P)
def test_bounds_enclose(pair: tuple[Measure, Measure], metric: str, p: int) -> None:
    a, b = pair
    lower, upper = bounds(a, b, p, metric)
    exact = wasserstein(a, b, p, metric)
    assert lower**p - 1e-12 <= exact**p <= upper**p + 1e-12


@pytest.mark.parametrize("n", [40, 3000])
def test_a_token_that_outweighs_half(n: int) -> None:
    """An arc against itself: every cut of the tree shortens it, whatever the masses."""
    rng = np.random.default_rng(n)
    angles = np.sort(rng.uniform(0, 2, n))
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    for mass in (np.r_[100.0 * n, np.ones(n - 1)], np.r_[np.ones(n - 1), 1e9], 0.5 ** np.arange(n)):
        a = Measure(points, mass / mass.sum())
        lower, upper = bounds(a, a)
        assert lower == upper == 0
        order = rng.permutation(n)
        shuffled = Measure(a.points[order], a.mass[order])
        lower, upper = bounds(a, shuffled)
        assert lower == 0 and upper**2 < 1e-10


def test_masses_that_differ_in_the_last_digits() -> None:
    """1e-13 of mass that crosses the circle costs W2 = 6e-7: the coupling token by token has to say so."""
    points = np.repeat([[1.0, 0.0], [-1.0, 0.0]], 50, axis=0)
    mass = np.full(100, 0.01)
    a, b = Measure(points, mass), Measure(points, mass * np.repeat([1 + 2e-13, 1 - 2e-13], 50))
    found = bounds(a, b)
    assert found.lower <= wasserstein(a, b) <= found.upper


@pytest.mark.parametrize("arguments", [{"directions": -1}, {"directions": 2.5}, {"seed": "0"}, {"p": None}])
def test_nonsense_is_refused(arguments: dict) -> None:
    with pytest.raises(InvalidInput):
        bounds(np.eye(2), np.eye(2), **arguments)
