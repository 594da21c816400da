"""The transpose of a step in the order of a curve against the one that is made of tensor operations."""

import math

import numpy as np
import pytest
import torch

import metastable as ms
from dense_runs import normal, relative
from metastable.flows.plan import Plan
from metastable.rowwise import project_tangent
from metastable.solve import gradient
from metastable.solve.adjoint import record, transpose, velocity_back
from metastable.solve.methods import METHODS
from metastable.solve.problem import Problem, State
from metastable.solve.recording import Recording, StackedStages, Stage
from metastable.solve.runge_kutta import runge_kutta
from metastable.solve.sorted_transpose import sorted_transpose
from metastable.solve.trace import Interval

RTOL = 1e-9
"""Of attention and its transpose; what comes out errs by it times cotangents and sharpness of the scores."""


def attention(d, beta, rtol=RTOL):
    V, B = torch.eye(d) + normal(d, d, scale=0.3).float(), torch.eye(d) + normal(d, d, seed=1, scale=0.3).float()
    return ms.SelfAttention(ms.AttentionWeights(V=V.double(), B=B.double()), beta, rtol=rtol)


def given(n, d, beta, kind=Problem, rtol=RTOL, **more):
    mass = torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) + 0.1
    flow = attention(d, beta, rtol).for_run(Plan(0.0, 1.0, 1e-7, 1e-7))
    return kind(flow, mass / mass.sum(), 1e-8, 1e-10, None, math.inf, **more), ms.sphere.uniform(n, d, seed=2)


@pytest.mark.parametrize("method", ["dop853", "euler"])
@pytest.mark.parametrize(("n", "d", "beta"), [(1003, 2, 0.5), (1003, 2, 60.0), (1003, 3, 2.0), (1003, 3, 60.0)])
def test_a_step_and_a_velocity_are_taken_back_as_stage_by_stage(n, d, beta, method):
    fast, points = given(n, d, beta)
    exact, _ = given(n, d, beta, rtol=None)
    table, w = runge_kutta(METHODS[method]()), normal(n, d, seed=4)
    back = sorted_transpose(fast, points, table)
    tape = record(exact, table, points, Interval(0.0, 0.1, -math.inf, math.inf))
    allowed = 3 * RTOL * (1 + beta)
    for _ in range(2):  # memory is used again
        found, ((mine,),) = back.step_back(tape, w)
        expected, theirs = transpose(exact, table, tape, w)
        assert relative(project_tangent(points, found), project_tangent(points, expected)) < allowed
        V, B = (sum(getattr(heads[0], name) for heads in theirs) for name in ("V", "B"))
        assert relative(mine.V, V) < 1e-12
        assert float((mine.B - B).abs().max()) < allowed * max(float(B.abs().max()), 1.0)
        assert abs(mine.beta - sum(heads[0].beta for heads in theirs)) < allowed * max(
            float(B.abs().max()) * d, 1.0
        )
    stage = Stage(points, None, exact.pullback(0.0, points))
    found, expected = back.velocity_back(stage, w), velocity_back(stage, w)[0]
    assert relative(project_tangent(points, found), project_tangent(points, expected)) < allowed


@pytest.mark.parametrize(("d", "beta"), [(2, 20.0), (3, 3.0), (3, 100.0)])
def test_stages_of_a_recorded_step_are_those_of_their_points(d, beta):
    """Rows that are kept in the order of the curve come back in that of the tokens."""
    pair = METHODS["dop853"]()
    table = runge_kutta(pair)
    problem, points = given(1003, d, beta, Recording, count=len(table.nodes))
    exact, _ = given(1003, d, beta, rtol=None)
    made = pair.advance(problem, pair.begin(problem, State(0.0, points, step=0.05)), 1.0)
    tape = problem.tape(made)
    assert isinstance(tape.stages, StackedStages) and tape.stages.order is not None
    expected = record(exact, table, points, Interval(0.0, made.t, -math.inf, math.inf))
    assert len(tape.stages) == len(expected.stages)
    for one, other in zip(tape.stages, expected.stages, strict=True):
        assert float((one.points - other.points).abs().max()) < 10 * RTOL
        assert (one.length is None) == (other.length is None)
        if one.length is not None:
            assert float((one.length - other.length).abs().max()) < 10 * RTOL
        for name in ("mean", "log_partition"):
            mine, theirs = (getattr(each.pullback.attended, name) for each in (one, other))
            assert float((mine - theirs).abs().max()) < 10 * RTOL * (1 + beta)
    assert float((tape.length - expected.length).abs().max()) < 10 * RTOL
    assert torch.equal(tape.points, made.end.points)


@pytest.mark.parametrize(("d", "beta", "d_beta"), [(2, 30.0, 1e-3), (3, 3.0, 1e-3), (3, 30.0, 1e-3)])
def test_a_gradient_is_the_slope_of_the_run(d, beta, d_beta):
    """By central differences of `solve` with the same steps; the steps of a shorter attention tolerance."""
    points, c = ms.sphere.uniform(1003, d, seed=5), normal(1003, d, seed=6)
    tight = {"rtol": 1e-10, "atol": 1e-10}
    w = attention(d, beta).weights

    def value(b, x=points):
        end = ms.solve(ms.SelfAttention(w, b), x, 0.2, **tight).end.points
        return float((c * end).sum())

    found = gradient(ms.SelfAttention(w, beta), points, 0.2, lambda x: (c * x).sum(), **tight)
    steps = (value(beta + d_beta) - value(beta - d_beta)) / (2 * d_beta)
    assert abs(found.beta - steps) < 1e-5 * max(abs(steps), 1.0)
    way = normal(1003, d, seed=7)
    way -= (way * points).sum(1, keepdim=True) * points

    def moved(h):
        x = points + h * way
        return value(beta, x / x.norm(dim=1, keepdim=True))

    steps = (moved(1e-4) - moved(-1e-4)) / 2e-4
    assert abs(float((found.points * way).sum()) - steps) < 1e-5 * max(abs(steps), 1.0)


def test_no_step_is_made_twice(monkeypatch):
    """Stages that fit into memory are taken back as they were made: one evaluation for each."""
    from metastable.solve.sorted_trial import SortedTrial

    asked, evaluated = [], SortedTrial._evaluate
    monkeypatch.setattr(SortedTrial, "_evaluate", lambda *given: asked.append(1) or evaluated(*given))
    points = ms.sphere.uniform(1003, 2, seed=1)
    found = gradient(attention(2, 5.0, "auto"), points, 0.5, lambda x: x[0, 0], rtol=1e-6, atol=1e-6)
    assert found.steps >= 2 and len(asked) == 12 * found.steps - 1


def test_other_flows_have_none():
    table = runge_kutta(METHODS["dop853"]())
    problem, points = given(1003, 3, 2.0)
    assert sorted_transpose(problem, points, table) is not None
    w = problem.flow.weights_at(0.0)
    for flow in (
        ms.UnnormalizedAttention(w, 1.0),
        ms.Causal(ms.SelfAttention(w, 1.0)),
        ms.MultiHead([ms.SelfAttention(w, 1.0)]),
        ms.SelfAttention(w, 1.0, field=np.ones(3), rtol=RTOL),
        ms.SelfAttention(w, 1.0, rtol=None),
    ):
        assert sorted_transpose(Problem(flow, problem.mass, 1e-8, 1e-10, None, math.inf), points, table) is None
    few = Problem(problem.flow, problem.mass[:900], 1e-8, 1e-10, None, math.inf)
    assert sorted_transpose(few, points[:900], table) is None
