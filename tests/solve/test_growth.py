"""How fast derivatives grow, and steps that resolve it."""

import math

import pytest
import torch
from scipy.special import ive

import metastable as ms
from dense_runs import normal
from metastable.solve import gradient
from metastable.solve.growth import SAFETY, Growth
from metastable.solve.methods import METHODS
from metastable.solve.problem import Problem, State
from metastable.solve.runge_kutta import runge_kutta


def equispaced(n):
    angles = torch.arange(n, dtype=torch.float64) * (2 * math.pi / n)
    return torch.stack([torch.cos(angles), torch.sin(angles)], 1)


def problem(flow, n, rtol=1e-8):
    return Problem(flow, torch.full((n,), 1 / n).double(), rtol, 0.0, None, math.inf)


@pytest.mark.parametrize("beta", [0.5, 2.0, 6.0])
def test_tokens_at_rest_part_at_the_fastest_mode_of_the_circle(beta):
    """V = B = I, equispaced: sigma_k = k^2 I_k/(beta I_0), whose largest is the growth of any derivative."""
    growth = Growth(
        problem(ms.SelfAttention(ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2)), beta), 64),
        runge_kutta(METHODS["dop853"]()),
    )
    state = State(0.0, equispaced(64))
    expected = max(k**2 * ive(k, beta) / (beta * ive(0, beta)) for k in range(1, 20))
    for _ in range(60):
        growth.bound_step(state, 1.0)
    assert math.isclose(growth.reach / growth.problem.max_step, expected, rel_tol=0.02)


def test_the_longest_step_resolves_the_growth():
    """A token that attends to itself leaves e_1 at the rate V_2 - V_1."""
    flow = ms.SelfAttention(ms.AttentionWeights(V=torch.diag(torch.tensor([1.0, 3.0])), B=torch.eye(2)), 2.0)
    table, here = runge_kutta(METHODS["dop853"]()), problem(flow, 1)
    Growth(here, table).bound_step(State(0.0, torch.tensor([[1.0, 0.0]]).double()), 1.0)
    k, error = table.defect
    assert math.isclose(error * (SAFETY * here.max_step * 2.0) ** k, 0.1 * 1e-8, rel_tol=1e-9)


def cluster(left):
    """The longest step of ten tokens at e_1: V_1 = 20 holds them together, V_2 - V_1 = -.1 turns them back."""
    V = torch.diag(torch.tensor([20.0, 19.9], dtype=torch.float64))
    here = problem(ms.SelfAttention(ms.AttentionWeights(V=V, B=torch.eye(2)), 1.0), 10)
    growth = Growth(here, runge_kutta(METHODS["dop853"]()))
    for _ in range(30):
        growth.bound_step(State(0.0, torch.tensor([[1.0, 0.0]]).double().repeat(10, 1)), left)
    return here.max_step, growth


def test_what_has_vanished_may_be_off_and_what_is_left_is_resolved():
    step, growth = cluster(0.9)  # e^{-18} is above the tolerance
    assert math.isclose(step, growth.reach / 20, rel_tol=1e-6)
    step, growth = cluster(1.0)
    assert math.isclose(step, growth.vanishing / 20, rel_tol=1e-6)
    assert step < growth.reach / 0.1


@pytest.mark.parametrize(("t", "c", "tolerance"), [(6.0, (1.0, 1.0), 1e-8), (0.5, (1.0, -1.0), 1e-6)])
def test_derivatives_of_a_cluster(t, c, tolerance):
    """Of its mean, e^{-.1 t}, long after differences have vanished, and of a difference, e^{-20 t}, before."""
    V = torch.diag(torch.tensor([20.0, 19.9], dtype=torch.float64))
    flow = ms.SelfAttention(ms.AttentionWeights(V=V, B=torch.eye(2)), 1.0)
    found = gradient(
        flow, [[1.0, 0.0], [1.0, 0.0]], t, lambda x: c[0] * x[0, 1] + c[1] * x[1, 1], rtol=1e-9, atol=1e-9
    )
    exact = math.exp(-0.1 * t) if c[1] > 0 else math.exp(-20 * t)
    assert torch.allclose(found.points[:, 1], exact * torch.tensor(c).double(), rtol=tolerance, atol=0.0)
    if c[1] > 0:
        strict = 20 * t / Growth(problem(flow, 2, 2e-9), runge_kutta(METHODS["dop853"]())).reach
        assert found.steps < 0.5 * strict


@pytest.mark.parametrize(("rest", "tolerance"), [(2.0, 1e-6), (6.0, 1e-8)])
def test_what_grows_beside_a_cluster_is_found_from_the_first_step_on(rest, tolerance):
    """At e_1 differences vanish like e^{-20 t}; a hundred tokens at e_2 leave it at up to 20 - V_2, in one mode."""
    flow = ms.SelfAttention(ms.AttentionWeights(V=torch.diag(torch.tensor([20.0, rest])), B=torch.eye(2)), 60.0)
    points = torch.cat([torch.eye(2)[:1].repeat(20, 1), torch.eye(2)[1:].repeat(100, 1)]).double()
    c = normal(120, 2, seed=1)
    found, exact = (
        gradient(flow, points, 1.2, lambda x: (c * x).sum(), rtol=rtol, atol=rtol, max_step=longest)
        for rtol, longest in ((tolerance, None), (1e-12, 0.01))
    )
    assert float((found.points - exact.points).abs().max()) < tolerance * float(exact.points.abs().max())


def test_nothing_grows_where_nothing_moves():
    flow = ms.SelfAttention(ms.AttentionWeights(V=torch.zeros(2, 2), B=torch.eye(2)), 2.0)
    here = problem(flow, 8)
    Growth(here, runge_kutta(METHODS["dop853"]())).bound_step(State(0.0, equispaced(8)), 1.0)
    assert here.max_step == math.inf


@pytest.mark.parametrize(("n", "d", "beta"), [(30, 2, 4.0), (40, 3, 4.0), (30, 16, 8.0)])
def test_tokens_that_move_keep_their_steps(n, d, beta):
    V, B = normal(d, d, scale=d**-0.5), torch.eye(d).double() + normal(d, d, seed=1, scale=0.5 * d**-0.5)
    flow, points = ms.SelfAttention(ms.AttentionWeights(V=V, B=B), beta), ms.sphere.uniform(n, d, seed=1)
    path = ms.solve(flow, points, 2.0)
    found = gradient(flow, points, 2.0, lambda x: x.sum())
    assert found.steps <= 1.2 * path.provenance["statistics"]["accepted_steps"] + 1
