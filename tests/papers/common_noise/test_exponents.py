import math

import numpy as np
import pytest

from metastable.papers import Setting
from metastable.papers.common_noise.exponents import dimension_error, expected_error, exponent, rms
from metastable.theory import TwoPointMotion
from small_claims import small_verdict


def test_exponents_of_one_case():
    """In units of kappa(1), by 4 standard errors."""
    found, error = exponent("constant", 3, 800, 5)
    assert abs(found - TwoPointMotion("constant", 3).lyapunov) < 4 * error + 0.05
    assert rms(np.array([3.0, 4.0])) == pytest.approx(math.sqrt(12.5))


def test_expected_error_is_that_of_the_experiment():
    found = small_verdict("synchronisation-dimension").uncertainty
    assert found == pytest.approx(dimension_error(Setting(small=True)), rel=0.6)


def test_table_of_exponents():
    for row in small_verdict("lyapunov-exponent").table:
        assert row["standard error"] < 2 * expected_error(Setting(small=True))
        assert row["growth of the mean/κ(1)"] > row["Λ/κ(1)"]
