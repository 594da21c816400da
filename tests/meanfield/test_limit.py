"""W2(rho_t, Pi#rho_0) along the mean field: reference values (R9, R10), floors (E1, E2), brackets."""

import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable import SelfAttention, sphere
from metastable.errors import InvalidInput, NotDefined
from metastable.meanfield import (
    Empirical,
    Skewed,
    Symmetrized,
    Uniform,
    VonMisesFisher,
    distance_to_limit,
    limit_mass,
    nodes,
    reference_skew,
    solve,
    two_atom_distance,
)
from metastable.meanfield.limit import axis_and_normal, limit_space
from metastable.papers.concentration.families import plain, repelling, sheared
from weight_families import diagonal

R9_UNIFORM_64 = ([1, 2, 3, 4], [0.5993592086, 0.3916965025, 0.248758843, 0.164580081])
R9_UNIFORM_256 = ([2, 4, 8, 12], [0.4005283, 0.1600882, 0.029396, 0.0209985])
R9_SKEW_64 = ([1, 2, 4], [0.6062913, 0.3951482, 0.1749828])
R10_UNIFORM_64 = ([2, 4, 8, 16], [0.4280368, 0.2232418, 0.136528, 0.1287452])
BETAS = (25.0, 50.0, 100.0, 200.0, 400.0)


def curve(weights, beta, law, times):
    path = solve(weights, beta, law, float(times[-1]), times=times)
    assert path.converged and path.error < 1e-6
    assert abs(float(path.mass.sum()) - 1) < 1e-12
    found = distance_to_limit(path)
    assert float(found.error.max()) < 2e-6
    return path, found


def test_r9_uniform():
    times, expected = R9_UNIFORM_64
    path, found = curve(sheared(0.5), 64.0, Uniform(2), times)
    assert found.distance.numpy() == pytest.approx(np.array(expected), abs=2e-6)
    # The nodes of the path are themselves so dense that a plain two-atom distance sees the same number.
    assert two_atom_distance(path.end, np.array([1.0, 0.0]), 0.5) == pytest.approx(expected[-1], abs=2e-6)


def test_r9_skew():
    times, expected = R9_SKEW_64
    _, found = curve(sheared(0.5), 64.0, reference_skew(), times)
    assert found.p == pytest.approx(0.585991783, abs=1e-9)
    assert found.distance.numpy() == pytest.approx(np.array(expected), abs=5e-6)


def test_r10():
    times, expected = R10_UNIFORM_64
    _, found = curve(repelling(), 64.0, Uniform(2), times)
    assert found.distance.numpy() == pytest.approx(np.array(expected), abs=2e-6)


@pytest.mark.slow
def test_r9_uniform_at_beta_256():
    times, expected = R9_UNIFORM_256
    _, found = curve(sheared(0.5), 256.0, Uniform(2), times)
    assert found.distance.numpy() == pytest.approx(np.array(expected), abs=2e-6)


def slope(x, y):
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def second_moment(path):
    return float(path.end.mass @ path.end.points[:, 0] ** 2)


def zero_temperature_moment(law, d, t, size):
    """E u^2 under x -> e^{tM} x / |e^{tM} x|, M = diag(2, 1, ..), by quadrature of the initial law (Z1, B = I)."""
    rho = nodes(law, d, size)
    x = rho.points.clone()
    x[:, 0] *= math.exp(t)
    return float(rho.mass @ (x[:, 0] ** 2 / x.square().sum(1)))


def test_e1_error_at_fixed_time_is_of_order_one_over_beta():
    law = reference_skew()
    exact = zero_temperature_moment(law, 2, 1.0, 400)
    error = [abs(second_moment(solve(plain(), beta, law, 1.0, tol=1e-6)) - exact) for beta in BETAS]
    assert slope(BETAS, error) == pytest.approx(-1, abs=0.1)


def floor(beta, law, t, tol):
    """Mass at +e1 minus that of Pi#rho_0, and W2 to Pi#rho_0, after the clusters formed; B = I, V = diag(2, 1)."""
    path = solve(plain(), beta, law, t, tol=tol)
    curve = distance_to_limit(path)
    plus = float(path.end.mass[path.end.points[:, 0] > 0].sum())
    return plus - curve.p, float(curve.distance[-1])


def test_e2_mass_crosses_the_separatrix_as_predicted():
    """Delta p = l1 a / (2 pi g beta) for f = 1 + a cos (l1 = 2, g = 1)."""
    a, beta = 0.5, 100.0
    shift, _ = floor(beta, Skewed([1.0, 0.0], a), 7.0, 1e-5)
    assert shift == pytest.approx(a / (math.pi * beta), rel=0.05)


@pytest.mark.slow
def test_e2_floor_falls_like_the_square_root():
    """beta in [25, 400]: exponent -.496, and Delta p is .978 to .998 of the formula."""
    a = 0.5
    shifts, distances = zip(*(floor(beta, Skewed([1.0, 0.0], a), 11.0, 1e-4) for beta in BETAS), strict=True)
    assert np.array(shifts) * np.array(BETAS) == pytest.approx(np.full(5, a / math.pi), rel=0.05)
    assert slope(BETAS, distances) == pytest.approx(-0.5, abs=0.05)


def test_floor_vanishes_for_symmetric_data():
    """Antipodally symmetric data: no mass crosses, and W2 goes on to fall like zero temperature, e^{-t/2}."""
    shift, distance = floor(64.0, Symmetrized(reference_skew()), 7.0, 1e-5)
    _, skewed = floor(64.0, reference_skew(), 6.0, 1e-5)
    assert abs(shift) < 1e-6
    assert distance < 0.04
    assert skewed > 0.06


def test_limit_of_the_uniform_law_is_balanced():
    curve = distance_to_limit(solve(plain(), 8.0, Uniform(2), 0.0))
    assert curve.p == pytest.approx(0.5, abs=1e-13)
    assert float(curve.distance[0]) == pytest.approx(math.sqrt(2 - 4 / math.pi), abs=1e-6)


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


def test_curve_is_refused_where_there_is_no_limit():
    rotation = ms.AttentionWeights(V=[[0.0, -1.0], [1.0, 0.0]], B=torch.eye(2))
    path = solve(rotation, 4.0, Uniform(2), 0.1, tol=1e-3)
    with pytest.raises(NotDefined, match="complex dominant pair"):
        distance_to_limit(path)
    with pytest.raises(InvalidInput, match=r"path of meanfield\.solve"):
        distance_to_limit(ms.solve(SelfAttention(plain(), 1.0), sphere.equispaced(4), t=0.1))


def test_axis_and_normal_of_an_oblique_projector():
    """M = S diag(2, 1) S^{-1}: e is the first column of S, the normal is the first row of its inverse."""
    S = np.array([[-1.0, 0.5], [-2.0, 1.5]])
    w = ms.AttentionWeights(V=S @ np.diag([2.0, 1.0]) @ np.linalg.inv(S), B=np.eye(2))
    e, normal = axis_and_normal(limit_space(w))
    assert e == pytest.approx(np.array([1.0, 2.0]) / math.sqrt(5), abs=1e-12)
    left = -np.linalg.inv(S)[0]
    assert normal == pytest.approx(left / np.linalg.norm(left), abs=1e-12)
    tokens = ms.Measure(sphere.uniform(50, 2, seed=3))
    image = ms.theory.limit_map(w)(tokens.points)
    assert limit_mass(Empirical(tokens), normal) == pytest.approx(
        float((image @ torch.from_numpy(e) > 0).sum()) / 50
    )


@pytest.mark.parametrize("d", [2, 3, 4])
def test_limit_mass_of_a_skewed_law(d):
    """f = 1 + a <n, x>: p = 1/2 + a E|<n, x>|/2, and E|u| = 2/pi, 1/2, 4/(3 pi) for d = 2, 3, 4."""
    normal = np.ones(d) / math.sqrt(d)
    mean = {2: 2 / math.pi, 3: 0.5, 4: 4 / (3 * math.pi)}[d]
    found = limit_mass(Skewed(normal, 0.6), normal)
    assert found == pytest.approx(0.5 + 0.3 * mean, abs=1e-12 if d < 4 else 1e-4)
