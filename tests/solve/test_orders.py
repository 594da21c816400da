"""Measured orders of convergence of every stepper."""

import itertools
import math

import pytest
import torch

import metastable as ms
from metastable.solve.adaptive import Adaptive
from metastable.solve.problem import Problem, State


def setup_case():
    g = torch.Generator().manual_seed(5)
    w = ms.AttentionWeights(
        V=torch.randn(3, 3, generator=g, dtype=torch.float64),
        B=torch.randn(3, 3, generator=g, dtype=torch.float64),
    )
    return ms.SelfAttention(w, 3.0), ms.Measure(ms.sphere.uniform(15, 3, seed=g))


@pytest.fixture(scope="module")
def truth():
    flow, rho = setup_case()
    return ms.solve(flow, rho, 1.0, rtol=1e-13, atol=1e-14).end.points


@pytest.mark.parametrize(("method", "order", "step"), [("euler", 1, 0.01), ("rk4", 4, 0.05)])
def test_order_of_the_fixed_steppers(method, order, step, truth):
    flow, rho = setup_case()
    errors = [
        float((ms.solve(flow, rho, 1.0, method=method, step=h).end.points - truth).abs().max())
        for h in (step, step / 2, step / 4)
    ]
    for coarse, fine in itertools.pairwise(errors):
        assert math.log2(coarse / fine) == pytest.approx(order, abs=0.2)


def test_order_of_the_embedded_pair(truth):
    """The pair with its step held fixed (tolerance out of reach) has order 5."""
    flow, rho = setup_case()

    def error(h):
        problem = Problem(flow, rho.mass, rtol=1e9, atol=1e9, step=None, max_step=h)
        stepper = Adaptive()
        state = stepper.begin(problem, State(0.0, rho.points, step=h))
        while state.t < 1.0:
            state = stepper.advance(problem, state, 1.0).end
        return float((state.points - truth).abs().max())

    errors = [error(h) for h in (1 / 20, 1 / 40, 1 / 80)]
    for coarse, fine in itertools.pairwise(errors):
        assert math.log2(coarse / fine) == pytest.approx(5, abs=0.3)


def test_order_of_the_dense_output():
    """Between its steps the pair interpolates with order 4: halving the step divides the error by at least 16."""
    flow, rho = setup_case()

    def error(h):
        problem = Problem(flow, rho.mass, rtol=1e9, atol=1e9, step=None, max_step=h)
        stepper = Adaptive()
        step = stepper.advance(problem, stepper.begin(problem, State(0.0, rho.points, step=h)), h)
        times = [0.3 * h, 0.6 * h]
        truth = [ms.solve(flow, rho, t, rtol=1e-13, atol=1e-14).end.points for t in times]
        return max(float((a - b).abs().max()) for a, b in zip(step.interpolate(times), truth, strict=True))

    errors = [error(h) for h in (0.08, 0.04, 0.02)]
    for coarse, fine in itertools.pairwise(errors):
        assert math.log2(coarse / fine) > 4.5


@pytest.mark.parametrize("rtol", [1e-5, 1e-7, 1e-9])
def test_error_follows_the_tolerance(rtol, truth):
    flow, rho = setup_case()
    end = ms.solve(flow, rho, 1.0, rtol=rtol, atol=rtol / 100).end.points
    assert float((end - truth).abs().max()) < 3 * rtol


def test_layers_are_euler_steps():
    """L layers x <- normalise(x + V m/L), by hand."""
    flow, rho = setup_case()
    x = rho.points
    for _ in range(12):
        x = ms.sphere.normalize(x + flow.velocity(0.0, x, rho.mass) / 12)
    assert (ms.solve(flow, rho, 1.0, method="euler", step=1 / 12).end.points - x).abs().max() < 1e-14
