import numpy as np

from metastable.drawing import Portrait
from metastable.papers import Outcome, Setting
from metastable.papers.concentration.phases import in_order, portrait_experiment, portrait_figure


def test_order_of_phases():
    assert in_order(np.array([0, 0, 1, 1, 2, 2])) and in_order(np.array([0, 1, 0, 2]))
    assert (
        not in_order(np.array([0, 2, 1]))
        and not in_order(np.array([0, 1, 2, 1]))
        and not in_order(np.array([0, 1]))
    )


def test_tokens_on_the_sphere_go_to_E_and_then_to_the_top_of_V():
    outcome = portrait_experiment(Setting(quick=True))
    concentrated, terminal = outcome.table
    assert concentrated["t"] < terminal["t"] and outcome.measured < 0.35
    figure = portrait_figure(outcome)
    assert isinstance(figure, Portrait) and figure.points.shape == (61, 300, 3)
    assert [axis.phase for axis in figure.axes] == [1, 2] and len(figure.spectra.parts) == 2


def test_the_portrait_needs_only_what_is_stored():
    stored = {"t": np.zeros(1), "points": np.zeros((1, 4, 3), dtype=np.float32), "mass": np.full(4, 0.25)}
    assert portrait_figure(Outcome(0.0, curves=stored)).mass.tolist() == [0.25] * 4
