"""One step taken back: the transpose of its derivative, and the memory of what it keeps."""

import math

import pytest
import torch

import metastable as ms
from dense_runs import attended, normal, relative, run
from metastable.solve.adjoint import record, transpose
from metastable.solve.methods import METHODS
from metastable.solve.problem import Problem
from metastable.solve.runge_kutta import runge_kutta
from metastable.solve.trace import Interval


@pytest.mark.parametrize("method", ["dop853", "adaptive", "rk4", "euler"])
@pytest.mark.parametrize("spherical", [True, False])
def test_a_step_is_taken_back_to_rounding(method, spherical):
    n, d, beta, h = 20, 2, 4.0, 0.3
    V, B = normal(d, d), normal(d, d, seed=1)
    kind = ms.SelfAttention if spherical else ms.EuclideanAttention
    flow = kind(ms.AttentionWeights(V=V, B=B), beta)
    points, mass, w = ms.sphere.uniform(n, d, seed=2), torch.full((n,), 1 / n).double(), normal(n, d, seed=3)
    problem = Problem(flow, mass, 1e-8, 1e-10, None, math.inf)
    table = runge_kutta(METHODS[method]())
    tape = record(problem, table, points, Interval(0.5, 0.5 + h, -math.inf, math.inf))
    found, of_weights = transpose(problem, table, tape, w)
    x, v, b = (a.clone().requires_grad_() for a in (points, V, B))
    end = run(lambda _, y: attended(y, mass, b, beta) @ v.T, x, [(0.5, 0.5 + h)], table, spherical=spherical)
    expected = torch.autograd.grad((w * end).sum(), (x, v, b))
    assert relative(tape.points, end.detach()) < 1e-14
    if spherical:  # what the tokens do off the sphere is a matter of taste
        found, of_x = (a - (a * points).sum(1, keepdim=True) * points for a in (found, expected[0]))
    else:
        of_x = expected[0]
    assert relative(found, of_x) < 1e-13
    assert relative(sum(heads[0].V for heads in of_weights), expected[1]) < 1e-13
    assert relative(sum(heads[0].B for heads in of_weights), expected[2]) < 1e-13


def test_a_step_that_was_made_again_keeps_no_pairs():
    """Nothing of size n x n: a few rows of the width of the tokens for each stage."""
    n, d = 300, 2
    flow = ms.SelfAttention(ms.AttentionWeights(V=torch.eye(d), B=torch.eye(d)), 2.0)
    points = ms.sphere.uniform(n, d, seed=2)
    problem = Problem(flow, torch.full((n,), 1 / n).double(), 1e-8, 1e-10, None, math.inf)
    table = runge_kutta(METHODS["dop853"]())
    tape = record(problem, table, points, Interval(0.0, 0.1, -math.inf, math.inf))
    assert problem.evaluations == 12
    for stage in tape.stages:
        assert stage.points.numel() == n * d and stage.pullback.drift.values.numel() == n * d
