import math

import numpy as np
import pytest

from metastable.papers.common_noise.limits import DIMENSION, remembered
from metastable.papers.common_noise.one_layer import NODES, chi_squared, kept_by_layer, kept_by_layers, strengths


@pytest.mark.parametrize(("width", "depth", "t"), [(4, 4, 0.5), (8, 2, 1.0), (None, 2, 1.0)])
def test_layers_keep_what_random_transformers_keep(width, depth, t):
    """40 000 transformers, seed 3, by 4 standard errors."""
    found, error = remembered(width, depth, t, 40_000, 3)
    assert abs(found - kept_by_layers(width, depth, t, DIMENSION)) < 4 * error


def test_moments_of_the_rules():
    place, weight = chi_squared(7, 12)
    assert (weight @ place, weight @ place**2) == pytest.approx((7.0, 63.0))
    place, weight = strengths(6, 12)
    assert weight.sum() == pytest.approx(1.0) and weight @ place == pytest.approx(0.5)
    assert weight @ place**2 == pytest.approx(0.25 + (1.5 - 0.25) / 6)


def test_more_nodes_change_nothing():
    for width in (4, 16, None):
        assert kept_by_layer(width, 0.5, 8, 2 * NODES) == pytest.approx(kept_by_layer(width, 0.5, 8), abs=2e-6)


def test_short_layers_tend_to_the_limit():
    """q^L -> e^{-(d-1) kappa(1) T/2}, with an error of order 1/L."""
    gaps = [kept_by_layers(8, depth, 0.5, 5) - math.exp(-4 * 0.5 * 0.5 / 2) for depth in (64, 128, 256)]
    assert np.divide(gaps[:-1], gaps[1:]) == pytest.approx(2.0, rel=0.02)


def test_known_exponents():
    """Of the approach to the limits in L and m (Y7)."""
    counts, limit = np.array([4, 8, 16]), math.exp(-7 / 8)
    for width, expected in ((4, -0.844), (8, -0.906)):
        gaps = [kept_by_layers(width, int(depth), 0.5, 8) - limit for depth in counts]
        assert np.polyfit(np.log(counts), np.log(gaps), 1)[0] == pytest.approx(expected, abs=1e-3)
    gaps = [kept_by_layers(int(m), 2, 1.0, 8) - kept_by_layers(None, 2, 1.0, 8) for m in counts]
    assert np.polyfit(np.log(counts), np.log(gaps), 1)[0] == pytest.approx(-0.909, abs=1e-3)
