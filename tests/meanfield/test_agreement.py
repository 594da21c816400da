import math

import numpy as np
import pytest

from metastable.errors import SolveError
from metastable.meanfield.agreement import agree
from metastable.meanfield.panel_run import FlowMap

TIMES = np.array([1.0, 2.0])


def test_it_stops_when_two_runs_agree():
    asked = []

    def run(accuracy):
        asked.append(accuracy.mass)
        return FlowMap(steps=len(asked))

    found = agree(run, lambda coarse, fine: np.array([1e-9, 100.0**-fine.steps]), TIMES, 1e-5)
    assert found.converged and found.errors == pytest.approx([1e-9, 1e-6]) and found.fine.steps == 3
    assert asked == sorted(asked, reverse=True)


def test_torn_runs_go_on_with_the_square_of_tol():
    """A misplaced mass dp costs 2 sqrt(dp)."""
    asked = []

    def run(accuracy):
        asked.append(accuracy.mass)
        return FlowMap(torn=True)

    agree(run, lambda *_: np.zeros(2), TIMES, 1e-5)
    assert asked == pytest.approx([1e-8, 3e-11], rel=1e-12)


def test_what_was_not_resolved_is_in_the_error():
    found = agree(lambda _: FlowMap(unresolved=1e-6), lambda *_: np.zeros(2), TIMES, 1e-4)
    assert not found.converged and found.errors == pytest.approx([2 * math.sqrt(1e-6)] * 2)
    assert found.reason == "raise max_nodes or tol"


def test_a_run_that_ends_early_leaves_the_one_before():
    runs = iter([FlowMap(steps=1)])

    def run(accuracy):
        found = next(runs, None)
        if found is None:
            raise SolveError("too many steps")
        return found

    found = agree(run, lambda *_: np.zeros(2), TIMES, 1e-3)
    assert found.fine.steps == 1 and not found.converged and "ended early, too many steps" in found.reason
