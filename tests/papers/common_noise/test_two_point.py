import numpy as np
import pytest

from metastable.papers import Setting
from metastable.papers.common_noise.two_point import KINDS, OVERLAPS, cases, drift_error, fitted, variance_error
from small_claims import small_verdict


def test_the_fit_weighs_by_errors():
    predicted = np.array([1.0, 2.0, -1.0])
    factor, error = fitted(1.1 * predicted, np.array([0.1, 0.2, 0.1]), predicted)
    assert factor == pytest.approx(1.1) and error == pytest.approx(0.1 / np.sqrt(3))


def test_expected_errors_are_those_of_the_experiment():
    for name, expected in (("two-point-drift", drift_error), ("two-point-variance", variance_error)):
        assert small_verdict(name).uncertainty == pytest.approx(expected(Setting(small=True)), rel=0.3)


def test_every_kind_at_every_overlap():
    motions, overlaps = cases()
    assert (
        len(motions) == len(overlaps) == len(KINDS) * len(OVERLAPS) == len(small_verdict("two-point-drift").table)
    )
