"""Where the field jumps, the stepper begins anew; times that only rounding separates are one."""

from dataclasses import replace

import pytest
import torch

import metastable as ms
from metastable.errors import SolveError
from metastable.solve.methods import choose_stepper
from metastable.solve.problem import Problem, State, Step
from metastable.solve.stepper import Stepper
from metastable.solve.stretches import steps, stretches
from small_runs import short_run, small_run, weights

W1 = weights()
W2 = ms.AttentionWeights(V=-5 * torch.eye(2), B=-torch.eye(2))
X0 = ms.sphere.uniform(9, 2, seed=4)
I2 = torch.eye(2, dtype=torch.float64)


@pytest.mark.parametrize("method", ["adaptive", "rk4", "euler"])
def test_final_time_on_a_knot_uses_the_weights_before_it(method):
    layered = ms.SelfAttention(ms.Schedule.layers([W1, W2], 2.0), 3.0)
    path = ms.solve(layered, X0, 1.0, method=method)
    assert torch.equal(path.end.points, short_run(method=method).end.points)


def test_knots_one_rounding_apart_are_one():
    ms.solve(ms.SelfAttention(ms.Schedule.layers([W1] * 5 + [W2] * 5, 1.0), 3.0), X0, 3 * 0.1)
    knots = [0.1 * k for k in range(11)]
    heads = [ms.Schedule.layers([W1] * 10, 1.0), ms.Schedule.layers([W1] * 10, 1.0, knots=knots)]
    path = ms.solve(ms.MultiHead([ms.SelfAttention(h, 3.0) for h in heads], "mean"), X0, 1.0)
    assert (path.end.points - short_run().end.points).abs().max() < 1e-8


def test_a_run_that_cannot_go_on_says_so():
    with pytest.raises(SolveError, match="max_steps = 2 steps ended"):
        small_run(max_steps=2)


def test_no_step_crosses_a_jump():
    layered = ms.SelfAttention(ms.Schedule.layers([W1, W2, W1], 1.0), 3.0)
    problem = Problem(layered, torch.full((9,), 1 / 9).double(), 1e-8, 1e-10, None, 1.0)
    ends = [step.t for step in steps(problem, choose_stepper(layered, "adaptive", None), State(0.0, X0), 1.0)]
    assert {1 / 3, 2 / 3, 1.0} <= set(ends)
    assert ends == sorted(ends)


def test_jumps_outside_the_run_do_not_count():
    assert stretches([-1.0, 0.0, 0.5, 1.0, 2.0], 1.0) == [0.0, 0.5, 1.0]
    assert stretches([], 0.0) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("to", "said"), [(lambda t, end: t, "got one to t = 0"), (lambda t, end: end + 5, "got one to t = 6")]
)
def test_a_stepper_must_get_on_and_keep_within_its_limit(to, said):
    class Own(Stepper):
        name, order = "own", 1

        def advance(self, problem, state, limit):
            return Step(state, replace(state, t=to(state.t, limit)), lambda times: [])

    with pytest.raises(SolveError, match=f"the method 'own' must make a Step from t = 0 to at most 1, {said}"):
        ms.solve(ms.ZeroTemperature(ms.AttentionWeights(V=I2, B=I2)), I2, 1.0, method=Own(), max_steps=5)


def test_what_a_stepper_makes_must_be_a_step():
    class Nothing(Stepper):
        name, order = "nothing", 1

        def advance(self, problem, state, limit):
            return None

    with pytest.raises(SolveError, match="must make a Step from t = 0 to at most 1, got NoneType"):
        ms.solve(ms.ZeroTemperature(ms.AttentionWeights(V=I2, B=I2)), I2, 1.0, method=Nothing())
