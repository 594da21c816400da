"""Methods of a fixed step: measured orders, and a method of one's own."""

import itertools
import math

import pytest
import torch

import metastable as ms
from metastable.errors import SolveError
from metastable.solve import FixedStep
from small_runs import smooth_case


class Heun(FixedStep):
    name, order = "heun of this test", 2

    def increment(self, problem, state, t):
        h = t - state.t
        ahead = problem.velocity(t, problem.retract(state.points + h * state.slope)).vector
        return h / 2 * (state.slope + ahead)


@pytest.fixture(scope="module")
def truth():
    flow, rho = smooth_case()
    return ms.solve(flow, rho, 1.0, rtol=1e-13, atol=1e-14).end.points


@pytest.mark.parametrize(("method", "order", "step"), [("euler", 1, 0.01), ("rk4", 4, 0.05), (Heun(), 2, 0.01)])
def test_order_of_the_fixed_steppers(method, order, step, truth):
    flow, rho = smooth_case()
    errors = [
        float((ms.solve(flow, rho, 1.0, method=method, step=h).end.points - truth).abs().max())
        for h in (step, step / 2, step / 4)
    ]
    for coarse, fine in itertools.pairwise(errors):
        assert math.log2(coarse / fine) == pytest.approx(order, abs=0.2)


def test_the_cubic_between_the_steps_has_order_four(truth):
    """Its error, beside that of RK4 itself, is that of Hermite interpolation: halving the step divides it by 16."""
    flow, rho = smooth_case()

    def error(h):
        exact = ms.solve(flow, rho, 1.5 * h, rtol=1e-13, atol=1e-14).end.points
        return float(
            (ms.solve(flow, rho, 1.0, times=[1.5 * h], method="rk4", step=h).points[0] - exact).abs().max()
        )

    errors = [error(h) for h in (0.02, 0.01, 0.005)]
    for coarse, fine in itertools.pairwise(errors):
        assert math.log2(coarse / fine) == pytest.approx(4, abs=0.3)


def test_a_step_costs_its_stages_and_shares_the_last_one():
    flow, rho = smooth_case()
    work = ms.solve(flow, rho, 1.0, method=Heun(), step=0.1).provenance
    assert work["statistics"] == {"accepted_steps": 10, "rejected_steps": 0, "evaluations": 2 * 10}
    assert work["parameters"]["method"] == "heun of this test"
    assert work["parameters"]["stepper"]["class"].endswith("Heun")


def test_tokens_that_leave_all_bounds_end_the_run():
    V = 1e200 * torch.eye(2, dtype=torch.float64)
    wild = ms.EuclideanAttention(ms.AttentionWeights(V=V, B=torch.eye(2)), 0.0)
    with pytest.raises(SolveError, match=r"not finite any more at t = .* with method 'rk4'; use a smaller step"):
        ms.solve(wild, [[1.0, 0.0]], 1.0, method="rk4")


def test_layers_are_euler_steps():
    """L layers x <- normalise(x + V m/L), by hand."""
    flow, rho = smooth_case()
    x = rho.points
    for _ in range(12):
        x = ms.sphere.normalize(x + flow.velocity(0.0, x, rho.mass) / 12)
    assert (ms.solve(flow, rho, 1.0, method="euler", step=1 / 12).end.points - x).abs().max() < 1e-14


@pytest.mark.parametrize(
    ("wrong", "said"),
    [(lambda s: s.slope[:1], r"got \(1, 3\)"), (lambda s: 0.1, "got float"), (lambda s: None, "got NoneType")],
)
def test_an_increment_that_does_not_fit_is_told(wrong, said):
    class Wrong(FixedStep):
        name, order = "wrong", 1

        def increment(self, problem, state, t):
            return wrong(state)

    flow, rho = smooth_case()
    with pytest.raises(SolveError, match=f"the increment of 'wrong' must be a tensor of shape .*, {said}"):
        ms.solve(flow, rho, 0.1, method=Wrong(), step=0.05)
