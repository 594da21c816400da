"""The mean field against what is known in closed form: floors, rates of growth, Moebius family, rates of decay."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.special import iv, ive

from meanfield_families import diagonal
from metastable import Measure, SelfAttention, UnnormalizedAttention
from metastable import solve as solve_tokens
from metastable.meanfield import (
    Density,
    Harmonics,
    Skewed,
    Symmetrized,
    Uniform,
    distance_to_limit,
    nodes,
    reference_skew,
    solve,
)

BETAS = (25.0, 50.0, 100.0, 200.0, 400.0)


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
    error = [abs(second_moment(solve(diagonal(2, 1), beta, law, 1.0, tol=1e-6)) - exact) for beta in BETAS]
    assert slope(BETAS, error) == pytest.approx(-1, abs=0.1)


def floor(beta, law, t, tol):
    """Mass at +e1 minus that of Pi#rho_0, and W2 to Pi#rho_0, after the clusters formed; B = I, V = diag(2, 1)."""
    path = solve(diagonal(2, 1), beta, law, t, tol=tol)
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


@pytest.mark.parametrize("normalized", [True, False], ids=["SA", "USA"])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_b6_growth_of_modes_on_the_circle(k, normalized):
    """V = B = I, f = 1 + eps cos k theta: the mode grows with k^2 I_k/(beta I_0) (SA), k^2 I_k/beta (USA)."""
    beta, eps = (20.0, 1e-5) if normalized else (3.0, 1e-5)
    law = Harmonics(cosine=[0.0] * (k - 1) + [eps])
    flow = (SelfAttention if normalized else UnnormalizedAttention)(diagonal(1, 1), beta)
    t = 0.5
    end = solve_tokens(flow, nodes(law, 2, 128), t=t, rtol=1e-12, atol=1e-12).end
    angle = torch.atan2(end.points[:, 1], end.points[:, 0])
    rate = math.log(2 * float(end.mass @ torch.cos(k * angle)) / eps) / t
    exact = k**2 * (ive(k, beta) / ive(0, beta) if normalized else iv(k, beta)) / beta
    assert rate == pytest.approx(exact, rel=1e-6)


def test_b6_golden_values():
    assert [k**2 * ive(k, 20) / (20 * ive(0, 20)) for k in (1, 2, 3, 4, 6)] == pytest.approx(
        [0.048734, 0.180507, 0.357374, 0.531427, 0.7201054], abs=1e-6
    )


@pytest.mark.parametrize("degree", [1, 2, 4])
def test_g3_growth_of_modes_on_the_sphere(degree):
    """V = B = I on S^2, f = 1 + eps P_k(z): rate k(k+1) I_{k+1/2}/(beta I_{1/2})."""
    beta, eps, t = 6.0, 1e-5, 0.4
    legendre = np.polynomial.Legendre.basis(degree)
    law = Density(lambda x: 1 + eps * torch.from_numpy(legendre(x[:, 2].numpy())), 3)
    end = solve_tokens(SelfAttention(diagonal(1, 1, 1), beta), nodes(law, 3, 1000), t=t, rtol=1e-12, atol=1e-12).end
    moment = float(end.mass.numpy() @ legendre(end.points[:, 2].numpy()))
    rate = math.log(moment * (2 * degree + 1) / eps) / t
    assert rate == pytest.approx(degree * (degree + 1) * iv(degree + 0.5, beta) / (beta * iv(0.5, beta)), rel=1e-6)


@pytest.mark.parametrize("k", [2, 8])
def test_g1_growth_on_the_great_circle_of_a_plane(k):
    """V = diag(l1, l1, l2), B = I, tokens on the circle E: modes grow with l1 k^2 I_k/(beta I_0)."""
    beta, eps, t, l1 = 32.0, 1e-5, 0.4, 1.5
    ring = nodes(Harmonics(cosine=[0.0] * (k - 1) + [eps]), 2, 160)
    tokens = Measure(torch.cat([ring.points, torch.zeros(160, 1, dtype=torch.float64)], dim=1), ring.mass)
    end = solve_tokens(SelfAttention(diagonal(l1, l1, 0.5), beta), tokens, t=t, rtol=1e-12, atol=1e-12).end
    angle = torch.atan2(end.points[:, 1], end.points[:, 0])
    rate = math.log(2 * float(end.mass @ torch.cos(k * angle)) / eps) / t
    assert rate == pytest.approx(l1 * k**2 * ive(k, beta) / (beta * ive(0, beta)), rel=1e-6)


def moebius(eta, d):
    """Density of the law of u = tanh(artanh u_0 + eta), relative to uniform: (cosh eta - u sinh eta)^{-(d-1)}."""
    return Density(lambda x: (math.cosh(eta) - math.sinh(eta) * x[:, -1]) ** (1.0 - d), d)


def test_q1_moebius_family_on_the_circle():
    """beta = 0: R(t) = 1/sqrt(1 + (1/R_0^2 - 1) e^{-t}), R_0 = tanh(eta/2)."""
    path = solve(diagonal(1, 1), 0.0, moebius(0.5, 2), 4.0, tol=1e-8, times=[0, 1, 2, 4])
    start = math.tanh(0.25)
    for i, t in enumerate((0, 1, 2, 4)):
        order = float(path.mass @ path.points[i, :, 1])
        assert order == pytest.approx(1 / math.sqrt(1 + (1 / start**2 - 1) * math.exp(-t)), abs=1e-8)
    assert order == pytest.approx(0.881469, abs=1e-6)


@pytest.mark.parametrize("t", [2.0, 4.0])
def test_q1_moebius_family_on_the_sphere(t):
    """beta = 0, d = 3: eta' = R = coth eta - eta/sinh^2 eta."""

    def mean(eta):
        return 1 / np.tanh(eta) - eta / np.sinh(eta) ** 2

    path = solve(diagonal(1, 1, 1), 0.0, moebius(0.5, 3), t, tol=1e-8)
    eta = solve_ivp(lambda _, eta: mean(eta), (0, t), [0.5], rtol=1e-12, atol=1e-13).y[0, -1]
    assert path.converged
    assert float(path.end.mass @ path.end.points[:, 2]) == pytest.approx(mean(eta), abs=1e-8)


@pytest.mark.parametrize(("normalized", "rate"), [(True, 1.0), (False, math.exp(-0.3))], ids=["Q2-SA", "Q3-USA"])
def test_mean_field_rates_differ_from_those_of_particles(normalized, rate):
    """d = 2, V = B = I, beta = .3: 1 - R ~ e^{-t} (SA), exp(-e^{-beta} t) (USA): mass lingers at the antipode."""
    times = [8.0, 9.0, 10.0, 11.0, 12.0]
    path = solve(diagonal(1, 1), 0.3, Skewed([1.0, 0.0], 0.5), 12.0, tol=1e-7, times=times, normalized=normalized)
    deficit = [1 - float(torch.linalg.vector_norm(path.mass @ frame)) for frame in path.points]
    assert -np.polyfit(times, np.log(deficit), 1)[0] == pytest.approx(rate, rel=0.02)


def test_limit_of_the_uniform_law_is_balanced():
    curve = distance_to_limit(solve(diagonal(2, 1), 8.0, Uniform(2), 0.0))
    assert curve.p == pytest.approx(0.5, abs=1e-13)
    assert float(curve.distance[0]) == pytest.approx(math.sqrt(2 - 4 / math.pi), abs=1e-6)
