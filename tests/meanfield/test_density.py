"""The node solver and the density solver share nothing but the field: their agreement certifies both."""

import math

import numpy as np
import pytest

from metastable import SelfAttention, sphere
from metastable.errors import InvalidInput
from metastable.meanfield import Density, Uniform, VonMisesFisher, evolve_density, reference_skew, solve
from metastable.meanfield.circle import two_atoms_from_cumulative
from metastable.papers.concentration.families import commuting, plain, repelling, sheared
from weight_families import diagonal


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
        (sheared(0.5), 16.0, reference_skew(), [1.0, 2.0]),
        (plain(), 64.0, VonMisesFisher([1.0, 1.0], 1.0), [2.0]),
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
    [sheared(0.5), sheared(1.0), commuting(), plain(), repelling()],
    ids=["G.5", "G1", "C", "I", "N"],
)
def test_nodes_and_density_agree_up_to_time_10(weights, law, beta):
    """Past the exit of the metastable phase where there is one before t = 10 (all of C, small beta of G)."""
    distances, density = gap_between_methods(weights, beta, law, [2.0, 4.0, 6.0, 8.0, 10.0], tol=1e-6)
    assert max(distances) < 1e-6
    assert density.mass_defect() < 1e-12
    assert density.clipped < 1e-12


def test_density_solver_alone_meets_r9():
    density = evolve_density(SelfAttention(sheared(0.5), 64.0), Uniform(2), [1.0, 2.0], step=0.2)
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


def test_times_that_go_back_are_refused():
    with pytest.raises(InvalidInput, match=r"times must be >= 0 and increase, got \[2\.0, 1\.0\]"):
        evolve_density(SelfAttention(plain(), 1.0), Uniform(2), [2.0, 1.0])


def test_the_start_is_kept_and_steps_end_at_the_times():
    path = evolve_density(SelfAttention(plain(), 4.0), reference_skew(), [0.0, 0.3, 0.3, 0.7])
    alone = evolve_density(SelfAttention(plain(), 4.0), reference_skew(), [0.3])
    theta = np.linspace(0.1, 6.0, 7)
    assert path.carry(0, theta) == pytest.approx(theta, abs=1e-13)
    assert path.cumulative[1] is path.cumulative[2]
    assert np.array_equal(path.carry(1, theta), alone.carry(0, theta))
