"""The transpose of a wide step in few passes against the one that is made of tensor operations."""

import math

import pytest
import torch

import metastable as ms
from dense_runs import normal, relative
from metastable.solve.adjoint import record, transpose, velocity_back
from metastable.solve.methods import METHODS
from metastable.solve.problem import Problem
from metastable.solve.recording import Stage
from metastable.solve.runge_kutta import runge_kutta
from metastable.solve.trace import Interval
from metastable.solve.wide_transpose import wide_transpose


def problem(n, d, kind="full"):
    V, B = normal(d, d, scale=d**-0.5), normal(d, d, seed=1, scale=d**-0.5)
    V = torch.diag(V.diagonal()) if kind in ("diagonal V", "both") else V
    B = torch.diag(B.diagonal()) if kind in ("diagonal B", "both") else B
    mass = torch.rand(n, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) + 0.1
    flow = ms.SelfAttention(ms.AttentionWeights(V=V, B=B), 3.0)
    return Problem(flow, mass / mass.sum(), 1e-8, 1e-10, None, math.inf), ms.sphere.uniform(n, d, seed=2)


@pytest.mark.parametrize("method", ["dop853", "euler"])
@pytest.mark.parametrize("kind", ["full", "diagonal V", "diagonal B", "both"])
@pytest.mark.parametrize(("n", "d"), [(1, 9), (130, 10), (257, 33)])
def test_a_step_and_a_velocity_are_taken_back_as_stage_by_stage(kind, n, d, method):
    given, points = problem(n, d, kind)
    table, w = runge_kutta(METHODS[method]()), normal(n, d, seed=4)
    wide = wide_transpose(given, points, table)
    tape = record(given, table, points, Interval(0.0, 0.3, -math.inf, math.inf))
    for _ in range(2):  # memory is used again
        found, ((mine,),) = wide.step_back(tape, w)
        expected, theirs = transpose(given, table, tape, w)
        assert relative(found, expected) < 1e-13
        V, B = (sum(getattr(heads[0], name) for heads in theirs) for name in ("V", "B"))
        beta = sum(heads[0].beta for heads in theirs)
        assert relative(mine.V, V) < 1e-12
        # One token feels nothing of B: what is left of it is rounding.
        assert float((mine.B - B).abs().max()) < 1e-13 * (float(B.abs().max()) + 1)
        assert abs(mine.beta - beta) < 1e-13 * (float(B.abs().max()) * d + 1)
    stage = Stage(points, None, given.pullback(0.0, points))
    assert relative(wide.velocity_back(stage, w), velocity_back(stage, w)[0]) < 1e-13


def test_other_flows_have_none():
    given, points = problem(20, 9)
    table = runge_kutta(METHODS["dop853"]())
    assert wide_transpose(given, points, table) is not None
    w = given.flow.weights_at(0.0)
    few, narrow = problem(20, 3)
    assert wide_transpose(few, narrow, table) is None
    plain, layers = ms.SelfAttention(w, 1.0), ms.Schedule.layers([w, w], 1.0)
    others = [
        ms.UnnormalizedAttention(w, 1.0),
        ms.Causal(plain),
        ms.EuclideanAttention(w, 1.0),
        ms.MultiHead([plain]),
    ]
    others += [ms.SelfAttention(w, 1.0, field=torch.ones(9)), ms.SelfAttention(layers, 1.0)]
    for flow in others:
        assert wide_transpose(Problem(flow, given.mass, 1e-8, 1e-10, None, math.inf), points, table) is None
