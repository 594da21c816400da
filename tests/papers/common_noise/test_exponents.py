import math

import numpy as np
import pytest

from metastable.papers import Setting
from metastable.papers.common_noise.exponents import dimension_error, expected_error, exponent, mean_error, rms
from metastable.theory import TwoPointMotion
from small_claims import small_verdict


def test_exponents_of_one_case():
    """In units of kappa(1), by 4 standard errors."""
    found, error = exponent("constant", 3, 800, 5)
    assert abs(found - TwoPointMotion("constant", 3).lyapunov) < 4 * error + 0.05
    assert rms(np.array([3.0, 4.0])) == pytest.approx(math.sqrt(12.5))


@pytest.mark.parametrize(
    ("name", "expected"), [("synchronisation-dimension", dimension_error), ("mean-grows", mean_error)]
)
def test_expected_errors_are_those_of_the_experiments(name, expected):
    assert small_verdict(name).uncertainty == pytest.approx(expected(Setting(small=True)), rel=0.6)


def test_table_of_exponents():
    for row in small_verdict("lyapunov-exponent").table:
        assert row["standard error"] < 2 * expected_error(Setting(small=True))
        assert row["growth of the mean/κ(1)"] > row["Λ/κ(1)"]
