import math

import numpy as np
import pytest
import torch
from scipy import special

import metastable as ms
from metastable.errors import InvalidInput
from metastable.meanfield import Density, Harmonics, nodes
from metastable.theory.modes import clustering_time, fastest_mode, growth_rate
from weight_families import diagonal


def test_modes_of_the_circle():
    rates = [growth_rate(k, 20.0) for k in (1, 2, 3, 4)]
    assert rates == pytest.approx([0.048734, 0.180507, 0.357374, 0.531427], abs=1e-6)
    k, rate = fastest_mode(20.0)
    assert (k, rate) == (6, pytest.approx(0.7201054, abs=1e-7))


@pytest.mark.parametrize("d", [2, 3, 7])
def test_modes_against_bessel_functions(d):
    for k in (1, 3, 8):
        expected = k * (k + d - 2) * special.iv(k + d / 2 - 1, 9.0) / (9.0 * special.iv(d / 2 - 1, 9.0))
        assert growth_rate(k, 9.0, d) == pytest.approx(expected, rel=1e-12)
    assert growth_rate(4, 3.0, normalized=False) == pytest.approx(16 * special.iv(4, 3.0) / 3.0, rel=1e-12)


def test_limits_of_the_rates():
    assert growth_rate(0, 5.0) == 0
    assert growth_rate(1, 0.0, 5) == pytest.approx(growth_rate(1, 1e-7, 5), abs=1e-6)
    assert growth_rate(2, 0.0) == 0
    for d in (2, 3, 6):
        k, rate = fastest_mode(5000.0, d)
        assert rate == pytest.approx(2 / math.e, rel=0.01)
        assert k * (k + d - 2) == pytest.approx(2 * 5000, rel=0.05)
    assert clustering_time(400, 120.0) == pytest.approx(4.1, abs=0.3)
    with pytest.raises(InvalidInput):
        growth_rate(-1, 1.0)


@pytest.mark.parametrize("normalized", [True, False], ids=["SA", "USA"])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_b6_growth_of_modes_on_the_circle(k, normalized):
    """V = B = I, f = 1 + eps cos k theta: the mode grows with k^2 I_k/(beta I_0) (SA), k^2 I_k/beta (USA)."""
    beta, eps = (20.0, 1e-5) if normalized else (3.0, 1e-5)
    law = Harmonics(cosine=[0.0] * (k - 1) + [eps])
    flow = (ms.SelfAttention if normalized else ms.UnnormalizedAttention)(diagonal(1, 1), beta)
    t = 0.5
    end = ms.solve(flow, nodes(law, 2, 128), t=t, rtol=1e-12, atol=1e-12).end
    angle = torch.atan2(end.points[:, 1], end.points[:, 0])
    rate = math.log(2 * float(end.mass @ torch.cos(k * angle)) / eps) / t
    assert rate == pytest.approx(growth_rate(k, beta, normalized=normalized), rel=1e-6)


@pytest.mark.parametrize("degree", [1, 2, 4])
def test_g3_growth_of_modes_on_the_sphere(degree):
    """V = B = I on S^2, f = 1 + eps P_k(z): rate k(k+1) I_{k+1/2}/(beta I_{1/2})."""
    beta, eps, t = 6.0, 1e-5, 0.4
    legendre = np.polynomial.Legendre.basis(degree)
    law = Density(lambda x: 1 + eps * torch.from_numpy(legendre(x[:, 2].numpy())), 3)
    end = ms.solve(ms.SelfAttention(diagonal(1, 1, 1), beta), nodes(law, 3, 1000), t=t, rtol=1e-12, atol=1e-12).end
    moment = float(end.mass.numpy() @ legendre(end.points[:, 2].numpy()))
    rate = math.log(moment * (2 * degree + 1) / eps) / t
    assert rate == pytest.approx(growth_rate(degree, beta, d=3), rel=1e-6)


@pytest.mark.parametrize("k", [2, 8])
def test_g1_growth_on_the_great_circle_of_a_plane(k):
    """V = diag(l1, l1, l2), B = I, tokens on the circle E: modes grow with l1 k^2 I_k/(beta I_0)."""
    beta, eps, t, l1 = 32.0, 1e-5, 0.4, 1.5
    ring = nodes(Harmonics(cosine=[0.0] * (k - 1) + [eps]), 2, 160)
    tokens = ms.Measure(torch.cat([ring.points, torch.zeros(160, 1, dtype=torch.float64)], dim=1), ring.mass)
    end = ms.solve(ms.SelfAttention(diagonal(l1, l1, 0.5), beta), tokens, t=t, rtol=1e-12, atol=1e-12).end
    angle = torch.atan2(end.points[:, 1], end.points[:, 0])
    rate = math.log(2 * float(end.mass @ torch.cos(k * angle)) / eps) / t
    assert rate == pytest.approx(l1 * growth_rate(k, beta), rel=1e-6)
