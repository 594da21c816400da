import numpy as np
import pytest

from metastable.papers import Outcome, Setting
from metastable.papers.concentration.sources import ESTIMATE
from metastable.papers.concentration.terminal import CLAIMS, rotation_experiment, terminal_figure


def test_a_cluster_turns_with_the_frequency_of_V_and_not_of_M():
    outcome = rotation_experiment(Setting(small=True))
    assert outcome.measured == pytest.approx(1.0, abs=0.02)
    assert outcome.rivals["pair of M"] == pytest.approx(0.816, abs=0.02)


def test_the_rate_of_the_end_is_our_estimate():
    assert all(claim.source == ESTIMATE for claim in CLAIMS)


def test_the_law_of_the_end_is_drawn_in_the_colour_of_its_curve():
    t = np.arange(20.0)
    curves = {"t a": t, "distance a": np.exp(-t), "gap a": np.array([1.0])}
    line, law = terminal_figure(Outcome(1.0, curves=curves)).series
    assert line.colour == law.colour and law.y == pytest.approx(np.exp(-t)[1:], rel=1e-9)
