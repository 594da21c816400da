import numpy as np
import pytest

from metastable.papers import Setting
from metastable.papers.concentration.modes import (
    HARMONIC_BETAS,
    MODE_BETAS,
    identity_experiment,
    identity_figure,
    mode_experiment,
    mode_figure,
)
from metastable.theory import growth_rate


@pytest.mark.parametrize(
    ("experiment", "figure", "betas", "d"),
    [(mode_experiment, mode_figure, MODE_BETAS, 2), (identity_experiment, identity_figure, HARMONIC_BETAS, 3)],
)
def test_measured_rates_are_the_exact_ones_and_lie_on_their_curves(experiment, figure, betas, d):
    outcome = experiment(Setting(small=True))
    for beta, rates in zip(betas, outcome.curves["measured"], strict=True):
        exact = [growth_rate(int(k), beta, d) for k in outcome.curves["k"]]
        assert rates == pytest.approx(exact, rel=1e-5)
    series = figure(outcome).series
    for line, points in zip(series[:-1:2], series[1:-1:2], strict=True):
        assert line.colour == points.colour and len(line.x) > len(points.x)
        assert np.interp(points.x, line.x, line.y) == pytest.approx(points.y, abs=2e-3)
