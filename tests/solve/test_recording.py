"""A problem that remembers: the steps of a run as they were made, to the digits of a run without memory."""

import math

import pytest
import torch

import metastable as ms
from dense_runs import normal, relative
from metastable.errors import MetastableError
from metastable.solve import gradient
from metastable.solve.adjoint import record
from metastable.solve.methods import METHODS
from metastable.solve.problem import Problem, State
from metastable.solve.recording import Recording
from metastable.solve.runge_kutta import runge_kutta
from metastable.solve.stretches import steps
from metastable.solve.trace import Interval

FLOWS = {
    "softmax": lambda w: ms.SelfAttention(w, 4.0, kernel="fused"),
    "unnormalised": lambda w: ms.UnnormalizedAttention(w, 1.0, kernel="fused"),
    "causal": lambda w: ms.Causal(ms.SelfAttention(w, 4.0), alibi=1.0),
    "two heads": lambda w: ms.MultiHead([ms.SelfAttention(w, b, kernel="fused") for b in (1.0, 6.0)]),
    "scheduled": lambda w: ms.SelfAttention(ms.Schedule.layers([w, w], 0.6), 4.0),
    "euclidean": lambda w: ms.EuclideanAttention(w, 1.0, kernel="fused"),
}


def both(flow, points, method, t, step):
    """The states and tapes of a run, and its states without memory."""
    mass = torch.full((len(points),), 1 / len(points)).double()
    given = flow, mass, 1e-7, 1e-7, step, math.inf
    count = len(runge_kutta(METHODS[method]()).nodes)
    remembering = Recording(*given, count=count)
    made = [(step, remembering.tape(step)) for step in steps(remembering, METHODS[method](), State(0.0, points), t)]
    plain = Problem(*given)
    return remembering, made, plain, list(steps(plain, METHODS[method](), State(0.0, points), t))


@pytest.mark.parametrize("method", ["dop853", "adaptive", "rk4", "euler"])
@pytest.mark.parametrize("name", FLOWS)
def test_tapes_are_the_steps_of_the_run_made_again(name, method):
    flow = FLOWS[name](ms.AttentionWeights(V=normal(3, 3, scale=0.6), B=normal(3, 3, seed=1)))
    points, table = ms.sphere.uniform(40, 3, seed=2), runge_kutta(METHODS[method]())
    problem, made, plain, expected = both(flow, points, method, 0.6, 0.1 if method in ("rk4", "euler") else None)
    assert len(made) == len(expected) and problem.evaluations == plain.evaluations
    for (step, tape), other in zip(made, expected, strict=True):
        assert torch.equal(step.points, other.points) and step.t == other.t
        assert tape is not None and tape.points is step.points and tape.stages[0].points is step.start.points
        middle = (step.start.t + step.t) / 2
        ends = (0.0, 0.3) if middle < 0.3 else (0.3, 0.6)
        stretch = ends if name == "scheduled" else (-math.inf, math.inf)
        again = record(Problem(flow, plain.mass, 1e-7, 1e-7, None, math.inf), table, step.start.points,
                       Interval(step.start.t, step.t, *stretch))  # fmt: skip
        for one, two in zip((*tape.stages, tape), (*again.stages, again), strict=True):
            assert float((one.points - two.points).abs().max()) < 1e-14
            assert (one.length is None) == (two.length is None)
            if one.length is not None:
                assert one.length.shape == two.length.shape and float((one.length - two.length).abs().max()) < 1e-14
        for one, two in zip(tape.stages, again.stages, strict=True):
            assert float((one.pullback.drift.vector - two.pullback.drift.vector).abs().max()) < 1e-12


def test_steps_that_were_rejected_leave_no_stages():
    flow = ms.SelfAttention(ms.AttentionWeights(V=4 * torch.eye(2), B=torch.eye(2)), 400.0, kernel="fused")
    points = ms.sphere.uniform(30, 2, seed=2)
    _, made, _, expected = both(flow, points, "dop853", 4.0, None)
    assert made[-1][0].end.rejected > 0 and made[-1][0].end.rejected == expected[-1].end.rejected
    assert all(tape is not None and len(tape.stages) == 12 for _, tape in made)


def test_steps_that_are_made_as_wholes_have_no_tape():
    flow = ms.SelfAttention(ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2)), 4.0)
    _, made, _, _ = both(flow, ms.sphere.uniform(30, 2, seed=2), "dop853", 0.4, None)
    assert all(tape is None for _, tape in made)


@pytest.mark.parametrize("d", [5, 20])
def test_wide_steps_tell_of_their_stages(d):
    n = 560
    w = ms.AttentionWeights(V=normal(d, d, scale=d**-0.5), B=normal(d, d, seed=1, scale=d**-0.5))
    points, flow = ms.sphere.uniform(n, d, seed=2), ms.SelfAttention(w, 4.0)
    problem, made, plain, expected = both(flow, points, "dop853", 0.5, None)
    assert len(made) == len(expected) and problem.evaluations == plain.evaluations
    for (step, tape), other in zip(made, expected, strict=True):
        assert torch.equal(step.points, other.points) and tape is not None
        for stage in tape.stages:
            scores = 4.0 * (stage.points @ w.B) @ stage.points.T
            mean = torch.softmax(scores, 1) @ stage.points
            assert float((stage.pullback.drift.vector - mean @ w.V.T).abs().max()) < 1e-13


def test_the_field_of_a_gradient_is_asked_as_often_as_that_of_its_run(monkeypatch):
    """Where all stages fit into memory: no step is made again, and growth asks for nothing new."""
    asked, found_by = [], ms.SelfAttention.attention
    monkeypatch.setattr(ms.SelfAttention, "attention", lambda *given: asked.append(1) or found_by(*given))
    w = ms.AttentionWeights(V=torch.eye(3), B=torch.eye(3))
    points = ms.sphere.uniform(600, 3, seed=1)
    found = gradient(ms.SelfAttention(w, 2.0), points, 0.5, lambda x: x[0, 0], rtol=1e-6, atol=1e-6)
    assert found.steps >= 1 and len(asked) == 12 * found.steps + 1


@pytest.mark.parametrize(("n", "d", "method"), [(20, 9, "dop853"), (530, 6, "dop853"), (520, 2, "adaptive")])
def test_steps_that_were_kept_and_steps_that_are_made_again_give_one_gradient(monkeypatch, n, d, method):
    w = ms.AttentionWeights(V=normal(d, d, scale=d**-0.5), B=normal(d, d, seed=1, scale=d**-0.5))
    flow, c, tape = ms.SelfAttention(w, 3.0), normal(n, d, seed=2), Recording.tape

    def found():
        points = ms.sphere.uniform(n, d, seed=3)
        return gradient(flow, points, 0.5, lambda x: (c * x).sum(), method=method, max_step=0.1, rtol=1e-5)

    kept, again = [found()], []
    monkeypatch.setattr("metastable.solve.trace.LITTLE", 0)
    monkeypatch.setattr("metastable.solve.trace.MORE", 1.0)  # three of five or more
    kept.append(found())
    monkeypatch.setattr(Recording, "tape", lambda self, step: (again.append(tape(self, step)), None)[1])
    expected = found()
    assert kept[0].steps >= 5 and all(one is not None for one in again)
    for one in kept:
        for part in ("V", "B", "points"):
            assert relative(getattr(one, part), getattr(expected, part)) < 1e-12
        assert abs(one.beta - expected.beta) < 1e-12 * float(expected.B.abs().max()) * d


def test_it_counts_stages():
    w = ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2))
    with pytest.raises(MetastableError):
        Recording(ms.SelfAttention(w, 1.0), torch.ones(1), 1e-7, 1e-7, None, math.inf, count=0)
