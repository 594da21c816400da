"""The mean field on S^2 and beyond."""

import math

import numpy as np
import pytest
import torch
from scipy.special import ellipe, ellipk

from meanfield_families import diagonal
from metastable import AttentionWeights, ZeroTemperature
from metastable import solve as solve_tokens
from metastable.meanfield import Skewed, Uniform, VonMisesFisher, distance_to_limit, nodes, solve, two_atom_distance


def test_e1_on_the_sphere():
    """|E u^2 at beta - E u^2 at zero temperature| ~ 1/beta at fixed t."""
    law, t = Skewed([1.0, 0.5, 0.2], 0.6), 0.5
    rho = nodes(law, 3, 2000)
    x = rho.points * torch.tensor([math.exp(t), 1.0, 1.0], dtype=torch.float64)
    exact = float(rho.mass @ (x[:, 0] ** 2 / x.square().sum(1)))
    betas, errors = (25.0, 50.0, 100.0), []
    for beta in betas:
        path = solve(diagonal(2, 1, 1), beta, law, t, tol=1e-5)
        assert path.converged
        errors.append(abs(float(path.end.mass @ path.end.points[:, 0] ** 2) - exact))
    assert np.polyfit(np.log(betas), np.log(errors), 1)[0] == pytest.approx(-1, abs=0.1)


@pytest.mark.parametrize("t", [1.0, 2.0, 4.0])
def test_z6_two_poles(t):
    """Zero temperature from the uniform law, M = diag(2, 1, 1): W2^2 = 2s/(1+s), s = e^{-t}."""
    rho = nodes(Uniform(3), 3, 20000, kind="graded", axis=[1.0, 0.0, 0.0], depth=t)
    end = solve_tokens(ZeroTemperature(diagonal(2, 1, 1)), rho, t=t).end
    s = math.exp(-t)
    found = two_atom_distance(end, np.array([1.0, 0.0, 0.0]), 0.5)
    assert found == pytest.approx(math.sqrt(2 * s / (1 + s)), abs=1e-9)


@pytest.mark.parametrize("t", [1.0, 2.0, 4.0])
def test_z6_great_circle(t):
    """M = diag(2, 2, 1): W2^2 = 2 - 2[E(m) - (1-m)K(m)]/m, m = 1 - e^{-2t}; the distance to E is the exact W2."""
    rho = nodes(Uniform(3), 3, 20000, generator=np.diag([2.0, 2.0, 1.0]), pull=0.5 * t)
    end = solve_tokens(ZeroTemperature(diagonal(2, 2, 1)), rho, t=t).end
    m = 1 - math.exp(-2 * t)
    inside = torch.linalg.vector_norm(end.points[:, :2], dim=1)
    exact = math.sqrt(2 - 2 * (ellipe(m) - (1 - m) * ellipk(m)) / m)
    assert math.sqrt(float(end.mass @ (2 - 2 * inside))) == pytest.approx(exact, abs=1e-5)


def test_the_curve_on_the_sphere_approaches_zero_temperature():
    """beta -> infinity: W2(rho_t, Pi#rho_0) -> sqrt(2s/(1+s)), with an error of order 1/beta."""
    s = math.exp(-0.5)
    exact, scaled = math.sqrt(2 * s / (1 + s)), []
    for beta in (32.0, 64.0):
        curve = distance_to_limit(solve(diagonal(2, 1, 1), beta, Uniform(3), 0.5, tol=1e-5))
        assert curve.p == pytest.approx(0.5, abs=1e-12)
        scaled.append(beta * (exact - float(curve.distance[-1])))
    assert scaled[0] == pytest.approx(scaled[1], rel=0.1)


def test_the_curve_to_a_great_circle_is_bracketed():
    path = solve(
        diagonal(2, 2, 1), 32.0, VonMisesFisher([1.0, 0.0, 1.0], 1.0), 1.0, tol=1e-4, times=[0.0, 0.5, 1.0]
    )
    curve = distance_to_limit(path)
    assert curve.k == 2
    assert bool((curve.lower <= curve.upper + 1e-12).all())
    # At time 0 the coupling x -> Pi(x) is optimal, so that both bounds are the distance.
    assert float(curve.lower[0]) == pytest.approx(float(curve.upper[0]), abs=1e-12)


def test_refinement_estimates_the_true_error():
    """The estimate at a loose tol covers the distance to a much finer solution."""
    w = AttentionWeights(V=np.diag([2.0, 1.0, 0.5]), B=[[1.0, 0.3, 0.0], [0.0, 1.0, 0.2], [0.0, 0.0, 1.0]])
    law = Skewed([1.0, 1.0, 0.0], 0.5)
    loose, fine = (solve(w, 8.0, law, 0.7, tol=tol) for tol in (1e-2, 1e-5))
    assert fine.converged and loose.converged
    gap = (loose.end.mass @ loose.end.points - fine.end.mass @ fine.end.points).abs().max()
    assert float(gap) <= loose.error + fine.error


def test_sobol_nodes_in_four_dimensions():
    path = solve(diagonal(2, 1, 1, 1), 4.0, VonMisesFisher([1.0, 0.0, 0.0, 0.0], 1.0), 0.5, tol=1e-2)
    assert path.converged
    assert path.end.d == 4
    assert 0 < path.error < 1e-2
