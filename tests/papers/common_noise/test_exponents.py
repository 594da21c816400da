import math

import numpy as np
import pytest

from metastable.papers.common_noise.exponents import TIME, exponent, rms, root
from metastable.theory import TwoPointMotion
from small_claims import small_verdict


def test_exponents_of_one_case():
    """In units of kappa(1), by 4 standard errors."""
    found, error, left = exponent("constant", 3, 800, 5)
    assert abs(found - TwoPointMotion("constant", 3).lyapunov) < 4 * error + abs(left) and abs(left) < 0.05
    assert rms(np.array([3.0, 4.0])) == pytest.approx(math.sqrt(12.5))


def test_the_root_of_a_line_and_its_error():
    """Against 2000 noisy lines: the error of a standard deviation is 1.6%."""
    x, error = np.array([1.0, 2.0, 4.0]), np.array([0.03, 0.01, 0.02])
    line = 0.5 * (x - 3)
    assert root(x, line, error)[0] == pytest.approx(3.0)
    noisy = line + error * np.random.default_rng(1).standard_normal((2000, 3))
    assert np.std([root(x, y, error)[0] for y in noisy]) == pytest.approx(root(x, line, error)[1], rel=0.07)


def test_table_of_exponents():
    """The variance of log(1 - g) is 4 (kappa(1) + kappa'(1)) t: 8 TIME for linear and ReLU, 700 pairs."""
    for row in small_verdict("lyapunov-exponent").table:
        assert row["standard error"] < 2 * math.sqrt(8 / (TIME * 700)) and abs(row["left by the steps"]) < 0.1
        assert row["growth of the mean/κ(1)"] > row["Λ/κ(1)"]
