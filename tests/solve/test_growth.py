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
        found = growth.rate(state)
    assert math.isclose(found, expected, rel_tol=0.02)


def test_the_longest_step_resolves_the_growth():
    flow = ms.SelfAttention(ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2)), 2.0)
    table = runge_kutta(METHODS["dop853"]())
    here = problem(flow, 64)
    growth = Growth(here, table)
    growth.bound_step(State(0.0, equispaced(64)))
    again = Growth(problem(flow, 64), table).rate(State(0.0, equispaced(64)))
    k, error = table.defect
    assert math.isclose(error * (SAFETY * here.max_step * again) ** k, 0.1 * 1e-8, rel_tol=1e-9)


def test_nothing_grows_where_nothing_moves():
    flow = ms.SelfAttention(ms.AttentionWeights(V=torch.zeros(2, 2), B=torch.eye(2)), 2.0)
    here = problem(flow, 8)
    Growth(here, runge_kutta(METHODS["dop853"]())).bound_step(State(0.0, equispaced(8)))
    assert here.max_step == math.inf


@pytest.mark.parametrize(("n", "d", "beta"), [(30, 2, 4.0), (40, 3, 4.0), (30, 16, 8.0)])
def test_tokens_that_move_keep_their_steps(n, d, beta):
    V, B = normal(d, d, scale=d**-0.5), torch.eye(d).double() + normal(d, d, seed=1, scale=0.5 * d**-0.5)
    flow, points = ms.SelfAttention(ms.AttentionWeights(V=V, B=B), beta), ms.sphere.uniform(n, d, seed=1)
    path = ms.solve(flow, points, 2.0)
    found = gradient(flow, points, 2.0, lambda x: x.sum())
    assert found.steps <= 1.2 * path.provenance["statistics"]["accepted_steps"] + 1
