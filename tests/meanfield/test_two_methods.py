"""The node solver and the density solver share nothing but the field: their agreement certifies both."""

import math

import numpy as np
import pytest
import torch

from meanfield_families import crossed, diagonal, tilted
from metastable import SelfAttention, sphere
from metastable.meanfield import Density, Uniform, VonMisesFisher, evolve_density, reference_skew, solve
from metastable.meanfield.circle import circle_law, two_atoms_from_cumulative


def gap_between_methods(weights, beta, law, times, tol=1e-7):
    """sqrt E|Phi_nodes(x) - Phi_density(x)|^2 over rho_0, which bounds W2, and the density path."""
    flow = SelfAttention(weights, beta)
    path = solve(weights, beta, law, float(times[-1]), tol=tol, times=times)
    assert path.converged
    density = evolve_density(flow, law, times)
    start = sphere.angles(path.start.points).numpy()
    distances = []
    for i in range(len(times)):
        image = sphere.from_angles(density.carry(i, start))
        distances.append(math.sqrt(float(path.mass @ (path.points[i] - image).square().sum(1))))
    return distances, density


@pytest.mark.parametrize(
    ("weights", "beta", "law", "times"),
    [
        (tilted(0.5), 16.0, reference_skew(), [1.0, 2.0]),
        (diagonal(2.0, 1.0), 64.0, VonMisesFisher([1.0, 1.0], 1.0), [2.0]),
        (diagonal(1.0, 1.0), 4.0, reference_skew(), [3.0]),
    ],
    ids=["tilted", "two-level", "identity"],
)
def test_nodes_and_density_agree(weights, beta, law, times):
    distances, density = gap_between_methods(weights, beta, law, times)
    assert max(distances) < 1e-6
    assert density.mass_defect() < 1e-12
    assert density.clipped < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("beta", [1.0, 4.0, 16.0, 64.0, 256.0])
@pytest.mark.parametrize("law", [Uniform(2), reference_skew()], ids=["uniform", "skew"])
@pytest.mark.parametrize(
    "weights",
    [tilted(0.5), tilted(1.0), crossed(), diagonal(2.0, 1.0), diagonal(-1.0, -2.0)],
    ids=["G.5", "G1", "C", "I", "N"],
)
def test_nodes_and_density_agree_up_to_time_10(weights, law, beta):
    """Past the exit of the metastable phase where there is one before t = 10 (all of C, small beta of G)."""
    distances, density = gap_between_methods(weights, beta, law, [2.0, 4.0, 6.0, 8.0, 10.0], tol=1e-6)
    assert max(distances) < 1e-6
    assert density.mass_defect() < 1e-12
    assert density.clipped < 1e-12


def test_density_solver_alone_meets_r9():
    density = evolve_density(SelfAttention(tilted(0.5), 64.0), Uniform(2), [1.0, 2.0], step=0.2)
    found = [two_atoms_from_cumulative(F, 0.0, 0.5) for F in density.cumulative]
    assert found == pytest.approx([0.5993592086, 0.3916965025], abs=2e-7)


def test_density_solver_on_the_moebius_family():
    """Q1, beta = 0, V = I: the order parameter is R(t) = 1/sqrt(1 + (1/R_0^2 - 1) e^{-t})."""
    eta, times = 0.5, [1.0, 4.0]
    law = Density(lambda x: 1 / (math.cosh(eta) - math.sinh(eta) * x[:, 1]), 2)
    density = evolve_density(SelfAttention(diagonal(1.0, 1.0), 0.0), law, times)
    for t, F in zip(times, density.cumulative, strict=True):
        nodes, mass = F.quadrature()
        exact = 1 / math.sqrt(1 + (1 / math.tanh(eta / 2) ** 2 - 1) * math.exp(-t))
        assert float((mass * np.sin(nodes)).sum()) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_two_atoms_of_the_uniform_law_in_closed_form(p):
    """W2^2 = 2 - (4/pi) sin(pi p); p = 1/2 is R6."""
    found = two_atoms_from_cumulative(circle_law(Uniform(2)).cumulative, 0.7, p)
    assert found == pytest.approx(math.sqrt(2 - 4 / math.pi * math.sin(math.pi * p)), abs=1e-12)


def test_cumulative_distribution_of_a_sharp_law():
    law = circle_law(VonMisesFisher([0.0, 1.0], 2000.0))
    assert law.resolved
    assert law.total == pytest.approx(1.0, abs=1e-12)
    assert law.mass(math.pi / 2, 2.0) == pytest.approx(0.5, abs=1e-12)
    points = sphere.from_angles(np.array([math.pi / 2]))
    assert float(law.density(np.array([math.pi / 2]))[0]) == pytest.approx(
        float(VonMisesFisher(torch.tensor([0.0, 1.0]), 2000.0)(points)[0]), rel=1e-11
    )
