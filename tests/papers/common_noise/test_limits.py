import math

import numpy as np
import pytest

from metastable.papers.common_noise.limits import harmonic, limit_value, power, remembered
from metastable.papers.own_error import CHANCE
from small_claims import small_verdict


def test_power_of_a_power_law():
    counts = np.array([2.0, 4.0, 8.0])
    exponent, error = power(counts, 3 / counts, 0.1 / counts)
    assert exponent == pytest.approx(-1.0) and 0 < error < 0.1


def test_harmonics_are_one_at_the_pole_and_average_out():
    u = np.random.default_rng(1).normal(size=(200_000, 5))
    u = (u / np.linalg.norm(u, axis=1, keepdims=True))[:, 0]
    for degree in (1, 2):
        assert harmonic(np.array(1.0), degree, 5) == 1.0
        assert abs(harmonic(u, degree, 5).mean()) < 0.01


def test_deep_transformers_are_near_the_limit():
    found, error = remembered(8, 64, 0.5, 4000, 3)
    assert abs(found - limit_value()) < 4 * error + 0.01
    assert limit_value() == pytest.approx(math.exp(-7 / 8))


@pytest.mark.parametrize("name", ["transformer-depth-limit", "transformer-width-limit", "annealed-law-is-heat"])
def test_tolerances_are_errors_of_the_run(name):
    verdict = small_verdict(name)
    systematic = verdict.tolerance - CHANCE * verdict.uncertainty
    assert 0 < systematic < 0.13 and f"{systematic:.2g} for" in verdict.reason
