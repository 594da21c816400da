import math

import numpy as np
import pytest

from metastable.papers.lost_in_the_middle.sampling import PLACES, adjoint, explained, measured
from metastable.theory import token_profile


def test_derivatives_of_the_last_angle_sum_to_what_is_not_its_own():
    """The last angle moves with all others and itself: its own derivative is 1 less theirs."""
    start = np.random.default_rng(0).uniform(0, 2 * math.pi, (5, 12))
    end, derivative = adjoint(start, 0.7, 1.0, 1.0)
    turned = start.copy()
    turned[:, -1] += 1e-4
    own = (adjoint(turned, 0.7, 1.0, 1.0)[0][:, -1] - end[:, -1]) / 1e-4
    assert derivative.sum(1) == pytest.approx(1 - own, abs=0.02)


def test_little_depth_is_the_recursion():
    """At t -> 0 there are no correlations of more than two tokens, and the first angles explain nearly all."""
    n, t = 32, 0.05
    found = measured(n, t, 1.0, 1.0, 400, seed=3)
    part = np.arange(n - 1) * PLACES // n
    tokens = token_profile(n, t).numpy()
    expected = np.array([tokens[part == number].mean() for number in range(1, PLACES)])
    assert np.abs(found.predicted * (1 + found.deviation) / expected - 1).max() < 0.01
    assert found.error.max() < 0.006 and len(found.places) == PLACES - 1
    assert abs(found.mean - found.deviation.mean()) < 3 * found.mean_error + 1e-3


def test_what_is_explained_is_not_noise():
    rng = np.random.default_rng(1)
    known = rng.normal(size=(4000, 2))
    mean, error = explained(2.0 + known @ [3.0, -1.0] + 0.1 * rng.normal(size=4000), known)
    assert error == pytest.approx(0.1 / math.sqrt(4000), rel=0.05) and abs(mean - 2.0) < 4 * error
