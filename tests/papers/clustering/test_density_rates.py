import numpy as np
import pytest

from metastable.papers import Setting
from metastable.papers.clustering.density_rates import (
    critical_figure,
    inverse_gap,
    rates_figure,
    softmax_cases,
    softmax_experiment,
    unnormalized_cases,
)
from metastable.theory import synchronisation_rate
from small_claims import small_verdict


def test_cases_lie_on_both_sides_of_the_crossing():
    for setting in (Setting(), Setting(quick=True), Setting(small=True)):
        slower = {
            synchronisation_rate(d, beta, False) < 2 * np.exp(beta) for d, beta in unnormalized_cases(setting)
        }
        assert slower == {True, False}
        assert {synchronisation_rate(d, beta) for d, beta in softmax_cases(setting)} == {1.0, 2.0}


@pytest.mark.parametrize("name", ["density-rate-softmax", "density-rate-unnormalised"])
def test_rates_are_good_to_a_part_in_a_thousand(name):
    assert small_verdict(name).measured == pytest.approx(1.0, abs=2e-3)


def test_the_local_rate_of_a_power_times_an_exponential():
    t = np.linspace(4, 9, 400)
    for power in (1, 2):
        middle, inverse = inverse_gap(t, t**power * np.exp(-2 * t))
        assert inverse == pytest.approx(middle / power, rel=1e-4)
    assert small_verdict("density-rate-critical").measured == pytest.approx(1.0, abs=0.01)
    series = small_verdict("density-rate-critical").figure.series
    assert [one.style for one in series] == ["points", "dashed"] * (len(series) // 2)
    assert callable(critical_figure)


def test_the_expected_rate_is_drawn_in_the_colour_of_its_curve():
    outcome = softmax_experiment(Setting(small=True))
    series = rates_figure(outcome).series
    for curve, law in zip(series[::2], series[1::2], strict=True):
        assert curve.colour == law.colour and law.style == "dashed"
        inside = (curve.y > 1e-7) & (curve.y < 1e-5)
        assert np.interp(curve.x[inside], law.x, np.log(law.y)) == pytest.approx(np.log(curve.y[inside]), abs=0.05)
