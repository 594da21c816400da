"""Whoever makes whole steps says what it made in one form."""

import numpy as np
import pytest

import metastable as ms
from metastable.solve.dop853 import Dop853
from metastable.solve.problem import Problem, State
from metastable.solve.small_system import small_system
from metastable.solve.trial import Made


def test_a_whole_trial_makes_what_the_stages_make():
    rho = ms.Measure(ms.sphere.uniform(12, 2, seed=0))
    flow = ms.SelfAttention(ms.AttentionWeights(V=np.eye(2), B=np.eye(2)), 3.0)
    pair, problem = Dop853(), Problem(flow, rho.mass, 1e-6, 1e-8, None, np.inf)
    state = pair.begin(problem, State(0.0, rho.points))
    made = small_system(problem, rho.points, pair)(rho.points, state.slope, 0.2)
    memory = pair._stage_memory(rho.points)
    memory[0] = state.slope
    staged = pair._staged(problem, state, memory, 0.2)
    assert isinstance(made, Made) and isinstance(staged, Made)
    assert float((made.points - staged.points).abs().max()) < 1e-15
    assert made.error == pytest.approx(staged.error, rel=1e-3)
    assert staged.velocity is None
    there = problem.velocity(0.2, made.points)
    assert float((made.velocity.vector - there.vector).abs().max()) < 1e-14
    assert made.velocity.rate == pytest.approx(there.rate, rel=1e-12)
