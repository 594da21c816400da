"""The embedded pair: its tableau, its orders, its error control."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.integrate import RK45

import metastable as ms
from metastable.errors import SolveError
from metastable.flows import Drift
from metastable.solve.adaptive import Adaptive
from metastable.solve.problem import Problem, State
from small_runs import smooth_case


@pytest.fixture(scope="module")
def truth():
    flow, rho = smooth_case()
    return ms.solve(flow, rho, 1.0, rtol=1e-13, atol=1e-14).end.points


def test_the_tableau_is_that_of_dormand_and_prince():
    """Bit for bit as SciPy has it, and the conditions of order one: weights sum to one, errors to zero."""
    assert tuple(RK45.C) == Adaptive.nodes
    for stage, row in enumerate(Adaptive.stages):
        assert np.array_equal(RK45.A[stage][:stage], row.numpy())
        assert float(row.sum()) == pytest.approx(Adaptive.nodes[stage], abs=1e-14)
    for ours, theirs in ((Adaptive.weights, RK45.B), (Adaptive.errors, RK45.E), (Adaptive.dense, RK45.P)):
        assert np.array_equal(ours.numpy(), theirs)


def test_order_of_the_embedded_pair(truth):
    """The pair with its step held fixed (tolerance out of reach) has order 5."""
    flow, rho = smooth_case()

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
    flow, rho = smooth_case()

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
    flow, rho = smooth_case()
    end = ms.solve(flow, rho, 1.0, method="adaptive", rtol=rtol, atol=rtol / 100).end.points
    assert float((end - truth).abs().max()) < 3 * rtol


def test_a_field_that_ends_is_given_up_with_a_sentence():
    """Beyond t = 0.5 the field has no value: steps shrink towards that time until rounding stops them."""

    class Ending(ms.Flow):
        d = 2

        def drift(self, t, points, mass):
            return points.roll(1, 1) * (1.0 if t <= 0.5 else math.nan)

    with pytest.raises(SolveError, match=r"the velocity of token 0 is not finite at t = 0\.5; that is what Ending"):
        ms.solve(Ending(), [[0.8, 0.6]], 1.0, max_steps=1000)


def test_the_rate_bounds_the_step():
    """A field that stands still allows any step; step * rate <= 2.5 is what is left."""

    class Still(ms.Flow):
        d = 2

        def drift(self, t, points, mass):
            return Drift(torch.zeros_like(points), 10.0)

    path = ms.solve(Still(), [[0.6, 0.8]], 10.0, method="adaptive")
    assert path.provenance["statistics"]["accepted_steps"] >= 40
    assert path.end.points.tolist() == [[0.6, 0.8]]


@pytest.mark.parametrize("rate", [math.nan, -1.0, "fast", [1.0, 2.0], lambda: -1.0, lambda: "fast", 10**400])
def test_a_rate_must_be_a_number(rate):
    class Own(ms.Flow):
        d = 2

        def drift(self, t, points, mass):
            return Drift(points.roll(1, 1), rate)

    with pytest.raises(SolveError, match=r"the rate of Own, its Lipschitz constant, must be a number >= 0, got"):
        ms.solve(Own(), [[0.6, 0.8]], 1.0)
