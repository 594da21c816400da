import numpy as np
import pytest

from metastable.drawing import Maps
from metastable.papers import Setting
from metastable.papers.perspective.phase_diagram import boundary, diagram_betas, draws, fractions
from small_claims import small_verdict


def test_boundaries_are_times_at_which_half_of_the_pairs_are_close():
    times = np.array([0.0, 1.0, 2.0])
    found = boundary(times, np.array([[0.0, 0.25, 0.75], [0.0, 0.1, 0.2]]))
    assert found.tolist() == [1.5, np.inf]


def test_a_full_run_has_the_published_resolution():
    assert len(diagram_betas(Setting())) == 90 and draws(Setting())[2] == 2048
    assert diagram_betas(Setting())[[0, -1]].tolist() == [0.1, 9.0]


def test_few_warm_tokens_meet_and_the_rest_of_the_fractions_are_shares():
    times = np.array([0.0, 4.0, 12.0])
    found = fractions(3, np.array([0.1]), 6, times, Setting())
    assert found.shape == (2, 1, 3) and found.min() >= 0
    assert found[:, 0, 0].max() < 0.05 and found[:, 0, -1] == pytest.approx(1.0)


def test_the_figure_has_the_curve_on_the_highest_dimension():
    figure = small_verdict("phase-diagram").figure
    assert isinstance(figure, Maps) and not figure.signed
    assert [len(panel.curves) for panel in figure.panels] == [0, 1]
    assert all(panel.values.shape == (len(figure.y), len(figure.x)) for panel in figure.panels)
