import math

import numpy as np
import pytest

from metastable import sphere
from metastable.papers.lost_in_the_middle.sampling import PLACES
from metastable.papers.lost_in_the_middle.sampling import adjoint as adjoint_of_angles
from metastable.papers.lost_in_the_middle.sphere_sampling import (
    adjoint,
    linear_profile,
    linear_rate,
    measured_on_sphere,
)
from metastable.theory import bessel_ratio, retrieval_profile


def test_rates_are_those_of_the_circle_and_of_the_first_mode():
    assert linear_rate(2, 1.0, False) == pytest.approx(np.i0(1.0) * bessel_ratio(2, 1.0))
    assert linear_rate(5, 2.0, True) == pytest.approx(4 * bessel_ratio(5, 2.0) / 2)
    u, weight = np.polynomial.legendre.leggauss(40)
    assert linear_rate(3, 1.5, False) == pytest.approx(2 * 1.5 * (weight * u * np.exp(1.5 * u)).sum() / 2 / 1.5)


def test_the_profile_is_the_first_mode_of_the_circle():
    s = np.array([0.2, 0.6, 1.0])
    expected = np.asarray(retrieval_profile(s, 1.3, 1.0, 0.5, width=1e9, modes=1))
    assert linear_profile(s, 1.3 * linear_rate(2, 1.0, False), 0.5) == pytest.approx(expected)


def test_on_the_circle_it_is_the_adjoint_of_the_angles():
    start = np.random.default_rng(0).uniform(0, 2 * math.pi, (3, 8))
    points = sphere.from_angles(start.ravel()).numpy().reshape(3, 8, 2)
    end, v, pulled = adjoint(points, 0.7, 1.0, 1.0, False, 5)
    angles, derivative = adjoint_of_angles(start, 0.7, 1.0, 1.0)
    last = np.stack([-np.sin(angles[:, -1]), np.cos(angles[:, -1])], 1)
    across = np.stack([-np.sin(start), np.cos(start)], 2)
    assert np.abs(end[:, :, 0] - np.cos(angles)).max() < 1e-3
    found = (pulled * across).sum(2)[:, :-1] * (v * last).sum(1, keepdims=True)
    assert np.abs(found - derivative).max() < 2e-3


@pytest.mark.parametrize(("d", "normalized"), [(3, False), (4, True)])
def test_little_depth_is_what_the_last_token_attends_to(d, normalized):
    """At t -> 0 it is n w_s a t; the sums of softmax are those of a uniform context up to 1/n."""
    n, t, beta, alibi = 32, 0.02, 0.5, 1.0
    found = measured_on_sphere(n, d, t, beta, alibi, normalized, 300, seed=3)
    weight = np.exp(alibi * np.arange(n - 1) / n)
    expected = n * weight / weight.sum() * linear_rate(d, beta, normalized) * t
    part = np.arange(n - 1) * PLACES // n
    parts = np.array([expected[part == number].mean() for number in range(1, PLACES)])
    deviation = found.predicted * (1 + found.deviation) / parts - 1
    assert np.abs(deviation).max() < 5 * found.error.max() + (1 / n if normalized else 0.01)
    assert found.error.max() < 0.03
