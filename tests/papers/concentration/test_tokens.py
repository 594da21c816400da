import numpy as np
import pytest

from metastable import sphere
from metastable.meanfield import nodes, reference_skew
from metastable.papers import Outcome, Setting
from metastable.papers.concentration.tokens import (
    convergence_figure,
    low_discrepancy,
    nodes_experiment,
    observable,
    reference,
)


def test_the_reference_does_not_depend_on_the_number_of_nodes():
    assert observable(nodes(reference_skew(), 2, 700, kind="equispaced")) == pytest.approx(reference(), abs=1e-9)


def test_nodes_converge_faster_than_any_low_order_rule():
    outcome = nodes_experiment(Setting(small=True))
    assert outcome.measured > 4.0 and max(outcome.rivals.values()) < 2.0
    assert [row["n"] for row in outcome.table] == [32, 48, 64, 96, 128]


def test_a_low_discrepancy_sequence_has_the_law_of_the_reference():
    fine = nodes(reference_skew(), 2, 2000, kind="equispaced")
    angle = sphere.angles(low_discrepancy(2000))
    for k in (1, 2):
        exact = float(np.cos(k * sphere.angles(fine.points).numpy()) @ fine.mass.numpy())
        assert float(np.cos(k * angle.numpy()).mean()) == pytest.approx(exact, abs=2e-3)


def test_iid_tokens_are_drawn_beside_their_law():
    n = np.array([100.0, 400.0])
    curves = {"n": n, "rms": np.array([0.1, 0.05]), "fine": n, "law": 1 / np.sqrt(n)}
    series = convergence_figure(Outcome(-0.5, curves=curves)).series
    assert [one.label for one in series] == ["iid tokens", "n^(−1/2)"]
    assert series[1].y == pytest.approx([0.1, 0.05]) and series[0].colour == series[1].colour
    assert len(convergence_figure(Outcome(4.0, curves={"n": n, "error": n, "sequence": n})).series) == 2
