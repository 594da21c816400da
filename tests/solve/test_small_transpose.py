"""The compiled transpose of a step against the one that is made stage by stage."""

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.solve.adjoint import drift_back, record, transpose, velocity_back
from metastable.solve.dop853 import Dop853
from metastable.solve.problem import Problem
from metastable.solve.recording import Stage
from metastable.solve.runge_kutta import CLASSICAL, EULER, runge_kutta
from metastable.solve.small_system import MOST_TOKENS
from metastable.solve.small_transpose import small_transpose
from metastable.solve.trace import Interval


def weights(d, seed):
    draw = torch.Generator().manual_seed(seed)
    V, B = (torch.eye(d).double() + 0.5 * torch.randn(d, d, dtype=torch.float64, generator=draw) for _ in range(2))
    return ms.AttentionWeights(V=V, B=B)


def flows(d):
    one, two = weights(d, 0), weights(d, 1)
    soft, plain = ms.SelfAttention(one, 3.0), ms.UnnormalizedAttention(two, 0.7)
    return {
        "softmax": soft,
        "sharp": ms.SelfAttention(one, 900.0),
        "unnormalised": plain,
        "scaled": ms.UnnormalizedAttention(one, 40.0),
        "mean of heads": ms.MultiHead([soft, plain], combine="mean"),
        "euclidean": ms.EuclideanAttention(two, 1.0),
    }


def problem(flow, n=23, d=2):
    """Tokens in general position, masses that differ, some cotangents."""
    draw = torch.Generator().manual_seed(n)
    mass = torch.rand(n, dtype=torch.float64, generator=draw) + 0.1
    mass[0] = 0.0
    made = Problem(flow, mass / mass.sum(), 1e-8, 1e-8, None, 1.0)
    return made, ms.sphere.uniform(n, d, seed=3), torch.randn(n, d, dtype=torch.float64, generator=draw)


def off(found, expected):
    return float((found - expected).abs().max() / (1e-3 + float(expected.abs().max())))


@pytest.mark.parametrize("table", [runge_kutta(Dop853()), CLASSICAL, EULER])
@pytest.mark.parametrize("name", flows(2))
def test_it_is_the_transpose_stage_by_stage(name, table):
    made, x, w = problem(flows(2)[name])
    compiled, h = small_transpose(made, x, table), 0.05
    tape = record(made, table, x, Interval(0.0, h, -np.inf, np.inf))
    expected, stages = transpose(made, table, tape, w)
    found, heads = compiled.back(x, h, w)
    allowed = 1e-10 if name == "sharp" else 1e-13
    assert off(compiled.end(x, h), tape.points) < allowed
    assert off(found, expected) < allowed
    for number, head in enumerate(heads):
        assert off(head.V, sum(stage[number].V for stage in stages)) < allowed
        assert off(head.B, sum(stage[number].B for stage in stages)) < allowed
        total = sum(stage[number].beta for stage in stages)
        assert head.beta == pytest.approx(total, rel=100 * allowed, abs=allowed)


@pytest.mark.parametrize("name", ["mean of heads", "euclidean"])
def test_the_transpose_of_the_velocity(name):
    made, x, w = problem(flows(2)[name], n=9)
    stage = Stage(x, None, made.pullback(0.0, x))
    expected, _ = (velocity_back if made.flow.spherical else drift_back)(stage, w)
    assert off(small_transpose(made, x, EULER).velocity_back(x, w), expected) < 1e-13


def test_masses_beyond_the_range_of_products_are_in_the_exponents():
    made, x, w = problem(flows(2)["softmax"], n=12)
    mass = made.mass.clone()
    mass[1:6] *= 1e-200
    made = Problem(made.flow, mass / mass.sum(), 1e-8, 1e-8, None, 1.0)
    expected, _ = transpose(made, EULER, record(made, EULER, x, Interval(0.0, 0.1, -np.inf, np.inf)), w)
    assert off(small_transpose(made, x, EULER).back(x, 0.1, w)[0], expected) < 1e-13


def test_it_is_for_few_tokens_and_constant_weights_alone():
    flow = ms.SelfAttention(weights(2, 0), 1.0)
    made, x, _ = problem(flow, n=5)
    assert small_transpose(made, x, EULER) is not None
    assert small_transpose(made, ms.sphere.uniform(MOST_TOKENS + 1, 2, seed=0), EULER) is None
    for other in (
        ms.Causal(flow),
        ms.SelfAttention(weights(2, 0), 1.0, kernel="fused"),
        ms.SelfAttention(weights(2, 0), 1.0, field=[1.0, 0.0]),
        ms.MultiHead([flow], residual=True),
    ):
        assert small_transpose(Problem(other, made.mass, 1e-8, 1e-8, None, 1.0), x, EULER) is None
