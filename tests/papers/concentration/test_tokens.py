import numpy as np
import pytest

from metastable.meanfield import nodes, reference_skew
from metastable.papers import Outcome, Setting
from metastable.papers.concentration.tokens import convergence_figure, nodes_experiment, observable, reference


def test_the_reference_does_not_depend_on_the_number_of_nodes():
    assert observable(nodes(reference_skew(), 2, 700, kind="equispaced")) == pytest.approx(reference(), abs=1e-9)


def test_nodes_converge_faster_than_any_low_order_rule():
    outcome = nodes_experiment(Setting(quick=True))
    assert outcome.measured > 4.0
    assert [row["n"] for row in outcome.table] == [32, 48, 64, 96, 128]


def test_iid_tokens_are_drawn_beside_their_law():
    n = np.array([100.0, 400.0])
    series = convergence_figure(Outcome(-0.5, curves={"n": n, "rms": np.array([0.1, 0.05])})).series
    assert [one.label for one in series] == ["iid tokens", "n^(−1/2)"]
    assert series[1].y == pytest.approx([0.1, 0.05])
    assert len(convergence_figure(Outcome(4.0, curves={"n": n, "error": n})).series) == 1
