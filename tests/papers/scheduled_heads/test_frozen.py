import numpy as np
import pytest

from metastable.papers import Setting
from metastable.papers.scheduled_heads.frozen import limit_times
from small_claims import small_verdict


def test_two_opposed_heads_raise_the_energy_under_their_mean_only():
    verdict = small_verdict("frozen-energy-falls", "scheduled-heads")
    mean, gradient = verdict.figure.series
    assert mean.y[-1] > mean.y[0] and gradient.y[-1] < 0.9 * gradient.y[0]


def test_dissipation_dies_out_where_weights_rest_and_goes_on_where_they_move():
    verdict = small_verdict("frozen-limits-rest", "scheduled-heads")
    resting, moving, bound = verdict.figure.series
    assert resting.y[-1] < bound.y[-1] < moving.y[-1]


def test_windows_double():
    times = limit_times(Setting(quick=True))
    assert times[0] == 0 and np.diff(np.log2(times[1:])) == pytest.approx(np.ones(len(times) - 2))
