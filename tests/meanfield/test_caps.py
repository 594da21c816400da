"""Narrow parts of a law: their moments, their mass on either side of a plane, and how a law is split into them."""

import math

import numpy as np
import pytest
import torch
from scipy.special import erf, ive

from metastable.meanfield import Density, Mixture, Skewed, Symmetrized, Uniform, VonMisesFisher
from metastable.meanfield.caps import cap_mass, cap_nodes, split
from metastable.meanfield.limit import limit_mass


@pytest.mark.parametrize("d", [3, 4, 7])
@pytest.mark.parametrize("kappa", [1e2, 1e5, 1e9])
def test_moments(d, kappa):
    """E <mean, x> = I_{d/2}/I_{d/2-1}, and the deviations about the mean are isotropic."""
    mean = torch.arange(1.0, d + 1, dtype=torch.float64)
    part = VonMisesFisher(mean, kappa)
    points, mass = cap_nodes(part, 8)
    ratio = ive(d / 2, kappa) / ive(d / 2 - 1, kappa)
    assert float(mass.sum()) == pytest.approx(1, abs=1e-14)
    assert float(mass @ (points @ part.mean)) == pytest.approx(ratio, abs=1e-12)
    off = points - (points @ part.mean)[:, None] * part.mean
    second = kappa * (off * mass[:, None]).T @ off
    expected = float(torch.trace(second)) / (d - 1)
    flat = torch.eye(d, dtype=torch.float64) - part.mean[:, None] * part.mean
    # 128 Sobol directions: better than iid ones, whose standard error is .1.
    assert torch.allclose(second, expected * flat, atol=1e-9 if d == 3 else 0.1)
    assert expected == pytest.approx(ratio, rel=1e-9)


@pytest.mark.parametrize("d", [3, 5])
def test_mass_above_a_plane(d):
    """A narrow part is a Gaussian in the plane: P = (1 + erf(z/sqrt 2))/2 with z = sqrt(kappa) <mean, normal>."""
    kappa = 1e8
    for z in (-3.0, -0.4, 0.0, 0.1, 2.0):
        height = z / math.sqrt(kappa)
        mean = np.zeros(d)
        mean[:2] = math.sqrt(1 - height**2), height
        found = cap_mass(VonMisesFisher(mean, kappa), np.eye(d)[1])
        assert found == pytest.approx(0.5 * (1 + erf(z / math.sqrt(2))), abs=1e-7)
    assert cap_mass(VonMisesFisher(np.eye(d)[0], kappa), np.eye(d)[0]) == 1.0


def test_mass_of_a_mixture_is_that_of_its_parts():
    """Half of a uniform law and all of a spike on the upper side."""
    for d in (3, 4):
        law = Mixture([Uniform(d), VonMisesFisher(np.ones(d), 1e7)], [0.6, 0.4])
        assert limit_mass(law, np.eye(d)[0]) == pytest.approx(0.7, abs=1e-4 if d == 4 else 1e-12)
        assert limit_mass(VonMisesFisher(-np.ones(d), 1e7), np.eye(d)[0]) == 0.0


def test_split():
    spike = VonMisesFisher([0.0, 0.0, 1.0], 1e6)
    assert split(Uniform(3)).caps == () and split(Uniform(3)).share == 1
    alone = split(spike)
    assert alone.smooth is None and alone.caps == ((1.0, spike),)
    both = split(Mixture([Symmetrized(spike), Skewed([1.0, 0.0, 0.0], 0.5), VonMisesFisher([1.0, 0, 0], 3.0)]))
    assert len(both.caps) == 2 and both.share == pytest.approx(2 / 3)
    points = torch.eye(3, dtype=torch.float64)
    expected = (Skewed([1.0, 0, 0], 0.5)(points) + VonMisesFisher([1.0, 0, 0], 3.0)(points)) / 2
    assert torch.allclose(both.smooth(points), expected)
    unknown = split(Mixture([Density(lambda x: 2 + x[:, 0], 3), spike]))
    assert unknown.smooth.integral() is None
