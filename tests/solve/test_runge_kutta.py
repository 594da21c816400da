"""The tables of the methods, and a step that is made again by them."""

import math

import pytest
import torch

import metastable as ms
from metastable.solve.adaptive import Adaptive
from metastable.solve.adjoint import record
from metastable.solve.dop853 import Dop853
from metastable.solve.euler import Euler
from metastable.solve.exact import Exact
from metastable.solve.problem import Problem, State
from metastable.solve.rk4 import RK4
from metastable.solve.runge_kutta import runge_kutta
from metastable.solve.trace import Interval


@pytest.mark.parametrize("stepper", [Adaptive(), Dop853(), RK4(), Euler()])
def test_the_nodes_are_the_sums_of_the_stages(stepper):
    table = runge_kutta(stepper)
    assert math.isclose(float(table.weights.sum()), 1.0, rel_tol=1e-14)
    for node, row in zip(table.nodes, table.stages, strict=True):
        assert math.isclose(node, float(row.sum()), rel_tol=1e-13, abs_tol=1e-14)


@pytest.mark.parametrize("stepper", [Adaptive(), Dop853(), RK4(), Euler()])
@pytest.mark.parametrize(("n", "d"), [(5, 3), (64, 2), (20, 9)])
def test_a_step_by_the_table_is_the_step_of_the_method(stepper, n, d):
    # A kernel by its name: without one, steps of few tokens are compiled as wholes, which sums in another order.
    kernel = "fused" if d <= 8 else "products"
    flow = ms.SelfAttention(ms.AttentionWeights(V=torch.eye(d), B=torch.eye(d)), 3.0, kernel=kernel)
    points = ms.sphere.uniform(n, d, seed=1)
    problem = Problem(flow, torch.full((n,), 1 / n).double(), 1e-6, 1e-8, 0.05, 0.1)
    made = stepper.advance(problem, stepper.begin(problem, State(0.0, points)), 0.1)
    again = record(problem, runge_kutta(stepper), points, Interval(0.0, made.t, -math.inf, math.inf))
    if isinstance(stepper, Adaptive | Dop853):
        assert bool((again.points == made.points).all())
    assert float((again.points - made.points).abs().max()) < 1e-15 * 8


def test_the_first_term_that_a_method_misses():
    """Order p: the defect is z^(p+1), of the classical method 1/5!."""
    for stepper, order in ((Adaptive(), 5), (Dop853(), 8), (RK4(), 4), (Euler(), 1)):
        k, error = runge_kutta(stepper).defect
        assert k == order + 1 and 0 < error <= 1 / math.factorial(k)
        assert math.isclose(error * runge_kutta(stepper).resolved(1e-9) ** k, 1e-9, rel_tol=1e-12)


def test_a_closed_solution_has_no_table():
    assert runge_kutta(Exact()) is None
