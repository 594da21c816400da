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


@pytest.mark.parametrize("method", ["adaptive", "dop853", "rk4", "euler"])
def test_final_time_on_a_knot_uses_the_weights_before_it(method):
    layered = ms.SelfAttention(ms.Schedule.layers([W1, W2], 2.0), 3.0)
    path = ms.solve(layered, X0, 1.0, method=method)
    # Steps with constant weights are compiled as wholes, which sums in another order.
    torch.testing.assert_close(path.end.points, short_run(method=method).end.points, rtol=0, atol=1e-14)


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


def layered(count, t):
    """Layers that all differ, as one flow that counts its evaluations."""
    stack = [ms.AttentionWeights(V=(1 + k) * I2, B=[[1.0, 0.1 * k], [0.0, 1.0]]) for k in range(count)]

    class Counted(ms.SelfAttention):
        calls = 0

        def drift(self, t, points, mass):
            Counted.calls += 1
            return super().drift(t, points, mass)

    return Counted(ms.Schedule.layers(stack, t), 2.0), stack


@pytest.mark.parametrize("count", [3, 7, 12])
@pytest.mark.parametrize("t", [1.0, 0.7, 2.1])
@pytest.mark.parametrize("times", [None, "layers", "linspace"])
def test_layered_euler_evaluates_once_per_layer(count, t, times):
    """And is the network: x <- normalise(x + h P_x V_l m_l(x)), layer by layer."""
    flow, stack = layered(count, t)
    kept = {"layers": [t * l / count for l in range(count + 1)], "linspace": count + 1}.get(times)
    path = ms.solve(flow, X0, t, method="euler", step=t / count, times=kept)
    assert path.provenance["statistics"]["evaluations"] == count == flow.calls
    x, mass = X0, torch.full((9,), 1 / 9, dtype=torch.float64)
    for layer, w in enumerate(stack):
        if kept is not None:
            assert (path.points[layer] - x).abs().max() < 1e-14
        x = ms.sphere.normalize(x + t / count * ms.SelfAttention(w, 2.0).velocity(0.0, x, mass))
    assert (path.end.points - x).abs().max() < 1e-14


def test_between_layers_one_sees_the_cubic_and_counts_nothing():
    flow, _ = layered(4, 1.0)
    path = ms.solve(flow, X0, 1.0, method="euler", step=0.25, times=[0.1, 0.3, 1.0])
    assert path.provenance["statistics"]["evaluations"] == 4
    assert flow.calls == 6


def test_a_run_begins_at_t0():
    """A run from t0 is the rest of the run from 0, where weights depend on time, at a knot and inside a layer."""
    layers = ms.SelfAttention(ms.Schedule.layers([W1, W2, W1], 3.0), 3.0)
    smooth = ms.SelfAttention(ms.Schedule(lambda t: ms.AttentionWeights(V=(1 + t) * I2, B=I2)), 2.0)
    for flow in (layers, smooth):
        for t0 in (0.5, 1.0, 0.1 + 0.2):
            whole = ms.solve(flow, X0, 2.5, times=[t0, 2.5], rtol=1e-10, atol=1e-12)
            rest = ms.solve(flow, whole[0], 2.5, t0=t0, rtol=1e-10, atol=1e-12)
            assert rest.times.tolist() == [t0, 2.5] and rest.provenance["parameters"]["t0"] == t0
            assert (rest.end.points - whole.end.points).abs().max() < 1e-8
    late = ms.solve(ms.SelfAttention(W1, 3.0), X0, -1.0, t0=-2.0, times=3)
    assert late.times.tolist() == [-2.0, -1.5, -1.0]
    assert (late.end.points - ms.solve(ms.SelfAttention(W1, 3.0), X0, 1.0).end.points).abs().max() < 1e-8
    assert ms.solve(smooth, X0, 1.0, t0=1.0).end_time == 1.0


def test_the_field_at_a_start_that_rounding_separates_from_a_jump_is_the_one_after_it():
    flow = ms.SelfAttention(ms.Schedule.layers([W1, W2], 0.6, knots=[0.0, 0.1 + 0.2, 0.6]), 3.0)
    assert 0.1 + 0.2 > 0.3
    path = ms.solve(flow, X0, 0.6, t0=0.3, method="euler", step=0.3)
    once = ms.solve(ms.SelfAttention(W2, 3.0), X0, 0.3, method="euler", step=0.3)
    assert (path.end.points - once.end.points).abs().max() < 1e-14
