"""The pair of order 8(5,3): its orders, its error control, its evaluations against SciPy's."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.integrate import DOP853, solve_ivp

import metastable as ms
from metastable.flows import Drift
from metastable.solve.dop853 import Dop853
from metastable.solve.problem import Problem, State
from small_runs import identity, random_weights, smooth_case


def by_scipy(flow, rho, t, rtol, times=None):
    shape = tuple(rho.points.shape)

    def field(time, y):
        return flow.velocity(time, torch.from_numpy(y.reshape(shape).copy()), rho.mass).numpy().ravel()

    y = rho.points.numpy().ravel()
    run = solve_ivp(field, (0, t), y, method="DOP853", rtol=rtol, atol=rtol / 100, t_eval=times)
    return torch.from_numpy(run.y.T.reshape(-1, *shape)), run.nfev


@pytest.fixture(scope="module")
def truth():
    return by_scipy(*smooth_case(), 1.0, 3e-14)[0][-1]


def held(flow, rho, h):
    """The pair with its step held fixed, because the tolerance is out of reach."""
    problem = Problem(flow, rho.mass, rtol=1e9, atol=1e9, step=None, max_step=h)
    stepper = Dop853()
    return problem, stepper, stepper.begin(problem, State(0.0, rho.points, step=h))


def test_the_order_of_the_pair_is_eight(truth):
    flow, rho = smooth_case()

    def error(h):
        problem, stepper, state = held(flow, rho, h)
        while state.t < 1.0:
            state = stepper.advance(problem, state, 1.0).end
        return float((state.points - truth).abs().max())

    errors = [error(1 / steps) for steps in (13, 18, 24)]
    assert errors[-1] > 1e-13
    for (coarse, fine), (few, many) in zip(itertools.pairwise(errors), ((13, 18), (18, 24)), strict=True):
        assert math.log(coarse / fine) / math.log(many / few) == pytest.approx(8, abs=0.3)


def test_the_order_of_the_dense_output_is_seven():
    """Inside a step the error is of order h^8, one more than the global order 7."""
    flow, rho = smooth_case()

    def error(h):
        problem, stepper, state = held(flow, rho, h)
        step = stepper.advance(problem, state, h)
        times = [0.25 * h, 0.6 * h]
        truth = [by_scipy(flow, rho, t, 3e-14)[0][-1] for t in times]
        return max(float((a - b).abs().max()) for a, b in zip(step.interpolate(times), truth, strict=True))

    errors = [error(h) for h in (0.06, 0.045, 0.034)]
    assert errors[-1] > 1e-13
    for (coarse, fine), (long, short) in zip(
        itertools.pairwise(errors), ((0.06, 0.045), (0.045, 0.034)), strict=True
    ):
        assert math.log(coarse / fine) / math.log(long / short) == pytest.approx(8, abs=0.6)


def test_a_step_and_its_interpolant_are_those_of_scipy():
    """On a Euclidean flow, where nothing is normalised, to rounding."""
    w, g = random_weights(3, 3), torch.Generator().manual_seed(1)
    flow, x = ms.EuclideanAttention(w, 0.5), torch.randn(6, 3, generator=g, dtype=torch.float64)
    mass = torch.full((6,), 1 / 6, dtype=torch.float64)
    problem = Problem(flow, mass, 1e9, 1e9, None, 0.1)
    stepper = Dop853()
    step = stepper.advance(problem, stepper.begin(problem, State(0.0, x, step=0.1)), 1.0)

    def field(time, y):
        return flow.velocity(time, torch.from_numpy(y.reshape(6, 3).copy()), mass).numpy().ravel()

    theirs = DOP853(field, 0.0, x.numpy().ravel(), 1.0, first_step=0.1, max_step=0.1, rtol=1e3, atol=1e3)
    theirs.step()
    assert np.abs(step.points.numpy().ravel() - theirs.y).max() < 1e-14
    dense = theirs.dense_output()
    for time in (0.01, 0.05, 0.09):
        assert np.abs(step.interpolate([time])[0].numpy().ravel() - dense(time)).max() < 1e-14


@pytest.mark.parametrize("rtol", [1e-4, 1e-7, 1e-10])
@pytest.mark.parametrize(("d", "beta"), [(2, 1.0), (2, 100.0), (3, 1000.0), (8, 30.0), (64, 8.0)])
def test_error_follows_the_tolerance(rtol, d, beta):
    """Below ten tolerances, at the end and between the steps."""
    V = torch.diag(torch.linspace(1.5, 0.5, d))
    flow = ms.SelfAttention(ms.AttentionWeights(V=V, B=torch.eye(d)), beta, rtol=None)
    rho = ms.Measure(ms.sphere.uniform(20, d, seed=d))
    times = [0.0, 0.7, 1.3, 2.9, 4.0]
    reference = by_scipy(flow, rho, 4.0, 3e-14, times)[0]
    path = ms.solve(flow, rho, 4.0, times=times, method="dop853", rtol=rtol, atol=rtol / 100)
    error = torch.linalg.vector_norm(path.points - reference, dim=2).amax(dim=1)
    assert float(error.max()) < 10 * rtol


@pytest.mark.parametrize("seed", range(3))
def test_at_equal_error_fewer_evaluations_than_scipy(seed):
    """In the mean over tolerances: SciPy itself is a sixth off its own curve. The pair of order 5 takes more."""
    flow = ms.SelfAttention(identity(2 + seed), 10.0, rtol=None)
    rho = ms.Measure(ms.sphere.uniform(30, 2 + seed, seed=seed))
    reference = by_scipy(flow, rho, 6.0, 3e-14)[0][-1]
    theirs = [by_scipy(flow, rho, 6.0, 10.0 ** (-k / 2)) for k in range(8, 23)]
    decades = [math.log10(float((end[-1] - reference).abs().max())) for end, _ in theirs]
    curve = np.polynomial.Polynomial.fit(decades, np.log([needed for _, needed in theirs]), 2)

    def ratio(method):
        """Evaluations over those of SciPy at the same error, geometric mean."""
        logs = []
        for rtol in (1e-5, 3e-6, 1e-6, 3e-7, 1e-7, 3e-8, 1e-8):
            path = ms.solve(flow, rho, 6.0, method=method, rtol=rtol, atol=rtol / 100)
            error = float((path.end.points - reference).abs().max())
            logs.append(math.log(path.provenance["statistics"]["evaluations"]) - curve(math.log10(error)))
        return math.exp(sum(logs) / len(logs))

    assert ratio("dop853") < 1 < ratio("adaptive")


def test_euclidean_flows_are_controlled_relative_to_their_size():
    flow = ms.EuclideanAttention(identity(2, 0.5), 0.0)
    x0 = torch.tensor([[100.0, 0.0], [300.0, 1.0]], dtype=torch.float64)
    end = ms.solve(flow, ms.Measure(x0, sphere=False), 4.0, method="dop853", rtol=1e-9, atol=0.0).end.points
    # beta = 0: the mean m grows like e^{t/2}, and every token moves by its growth.
    exact = x0 + x0.mean(0) * (math.exp(2.0) - 1)
    assert float((end - exact).abs().max()) < 1e-8 * 3000


def test_tokens_at_rest_cost_nothing():
    """However steep the field around them: the error control sees no error, and no rate bounds the step."""

    class Still(ms.Flow):
        d = 2

        def drift(self, t, points, mass):
            return Drift(torch.zeros_like(points), 1e6)

    path = ms.solve(Still(), [[0.6, 0.8]], 1000.0, method="dop853")
    assert path.provenance["statistics"]["evaluations"] < 150
    assert path.end.points.tolist() == [[0.6, 0.8]]


def test_an_unstable_rest_is_left_in_time():
    """Two tokens that repel slowly from antipodes of an attracting pole: against DOP853 of SciPy."""
    flow = ms.SelfAttention(identity(2), 1.0, rtol=None)
    rho = ms.Measure([[1.0, 0.0], [-1.0, 1e-6]])
    reference = by_scipy(flow, rho, 40.0, 1e-13)[0][-1]
    path = ms.solve(flow, rho, 40.0, method="dop853")
    assert float((path.end.points - reference).abs().max()) < 1e-7


def test_single_precision_takes_the_other_pair():
    rho = ms.sphere.uniform(10, 3, seed=0)
    flow = ms.SelfAttention(identity(3), 4.0)
    coarse = ms.solve(flow, rho, 1.0, dtype=torch.float32)
    assert coarse.provenance["parameters"]["method"] == "adaptive"
    assert ms.solve(flow, rho, 1.0).provenance["parameters"]["method"] == "dop853"
    asked = ms.solve(flow, rho, 1.0, dtype=torch.float32, method="dop853", rtol=1e-4)
    assert (asked.end.points.double() - ms.solve(flow, rho, 1.0).end.points).abs().max() < 1e-4
