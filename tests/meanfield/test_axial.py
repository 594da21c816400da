"""Laws with an axis: the averaged kernel, the closed form at beta = 0, and tokens on the whole sphere."""

import math

import numpy as np
import pytest
import torch
from scipy import special
from scipy.integrate import solve_ivp

import metastable as ms
from metastable import AttentionWeights, SelfAttention, sphere
from metastable.errors import InvalidInput
from metastable.meanfield import Density, Skewed, Uniform, solve_axial
from metastable.meanfield.axial import _attended, _AxialRun, _table
from metastable.meanfield.bundle import Bundle
from metastable.meanfield.panel_run import Accuracy
from weight_families import diagonal

E = [1.0, 0.0, 0.0]


@pytest.mark.parametrize(("along", "across"), [(3.0, 2.0), (64.0, 64.0), (256.0, -100.0), (1000.0, 1000.0)])
def test_kernel_against_bessel_functions(along, across):
    random = np.random.default_rng(0)
    latitude, mass = random.uniform(-1.5, 1.5, 200), random.random(200)
    found = np.empty((200, 2))
    _attended(latitude, latitude, mass, along, across, _table(), 0, 200, found)
    u, s = np.sin(latitude), np.cos(latitude)
    z = abs(across) * np.outer(s, s)
    score = along * np.outer(u, u) + z
    weight = mass * np.exp(score - score.max(axis=1, keepdims=True))
    total = (weight * special.i0e(z)).sum(axis=1)
    assert np.abs(found[:, 0] - (weight * special.i0e(z)) @ u / total).max() < 1e-14
    assert np.abs(found[:, 1] - math.copysign(1, across) * (weight * special.i1e(z)) @ s / total).max() < 1e-14


def test_moebius_family_at_beta_zero():
    """V = B = 1: eta' = R = coth eta - eta/sinh^2 eta, and u = tanh(artanh u_0 + eta - eta_0)."""

    def mean(eta):
        return 1 / np.tanh(eta) - eta / np.sinh(eta) ** 2

    law = Density(lambda x: (math.cosh(0.5) - math.sinh(0.5) * x[:, 0]) ** -2.0, 3)
    path = solve_axial(diagonal(1, 1, 1), 0.0, law, [4.0], E, tol=1e-7)
    eta = solve_ivp(lambda _, eta: mean(eta), (0, 4), [0.5], rtol=1e-12, atol=1e-13).y[0, -1]
    start = sphere.fibonacci(50)
    expected = torch.tanh(torch.atanh(start[:, 0]) + eta - 0.5)
    assert path.converged
    assert torch.allclose(path.carry(0, start)[:, 0], expected, atol=1e-7)


def test_the_field_is_that_of_tokens_on_parallels():
    """Every latitude as 96 tokens around an axis that is no axis of coordinates; V and B differ."""
    axis = sphere.normalize(torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64))
    along, one = torch.outer(axis, axis), torch.eye(3, dtype=torch.float64)
    w = AttentionWeights(V=1.5 * along + 0.5 * one, B=2.0 * along - 1.0 * one)
    bundle = Bundle.of(
        Skewed(axis, 0.6), np.linalg.qr(np.column_stack([axis, np.eye(3)[:, :2]]))[0].T[[1, 2, 0]], 96
    )
    run = _AxialRun((2.0, 0.5, 1.0, -1.0), 5.0, bundle.every(96), Accuracy.within(1e-9, 50.0), 10**4)
    panels = bundle.panels()
    points, mass = (torch.from_numpy(x) for x in (bundle.start(panels).reshape(-1, 3), bundle.mass(panels).ravel()))
    velocity = SelfAttention(w, 5.0).velocity(0.0, points, mass)[: 16 * bundle.cells]
    latitude = run.theta.ravel()
    sign = math.copysign(1.0, float(torch.from_numpy(bundle.frame[2]) @ axis))
    found = run.field(0.0, latitude, run.mass.ravel())
    assert np.allclose(sign * (velocity @ axis).numpy(), found * np.cos(latitude), atol=1e-12)
    assert np.allclose(velocity.norm(dim=1).numpy(), np.abs(found), atol=1e-12)


def test_latitudes_beyond_a_pole_are_those_of_the_opposite_meridian():
    """A stage of a step may overshoot: the field there is the mirrored one, and never no number."""
    random = np.random.default_rng(1)
    latitude, mass = random.uniform(-1.5, 1.5, 100), random.random(100)
    found, beyond = np.empty((2, 100, 2))
    _attended(latitude, latitude, mass, 9.0, 5.0, _table(), 0, 100, found)
    _attended(latitude, math.pi - latitude, mass, 9.0, 5.0, _table(), 0, 100, beyond)
    assert np.allclose(found, beyond, atol=1e-13)


def test_the_end_is_reached():
    """At t = 20 two atoms are left; E x = .52668928330 by runs at tol = 1e-5 and 3e-6, 5e-13 apart."""
    path = solve_axial(diagonal(2, 1, 1), 4.0, Skewed(E, 0.6), [20.0], E, tol=1e-2)
    latitude, mass = path.nodes_at(0)
    assert path.converged and mass @ np.cos(latitude) ** 2 < 1e-12
    misplaced = abs(mass @ np.sin(latitude) - 0.52668928330) / 2
    assert 2 * math.sqrt(misplaced) < float(path.errors[0])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"w": diagonal(2, 1, 0.5)}, "V must be v e e"),
        ({"w": None}, "w must be"),
        ({"density": Skewed([0.0, 1.0, 0.0], 0.5)}, "differs on two meridians"),
        ({"density": sphere.fibonacci(5)}, "density must be a law"),
        ({"density": ms.Measure(sphere.fibonacci(5))}, "needs a density, got tokens"),
        ({"times": []}, "times must be at least one number"),
        ({"times": [2.0, 1.0]}, "strictly increasing"),
        ({"axis": [0.0, 0.0, 0.0]}, "axis must be a finite non-zero vector"),
        ({"beta": math.nan}, "beta must be"),
        ({"tol": 0}, "tol must be"),
        ({"max_nodes": 1}, "max_nodes must be"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence):
    given = {"w": diagonal(2, 1, 1), "beta": 4.0, "density": Uniform(3), "times": [1.0], "axis": E} | arguments
    with pytest.raises(InvalidInput, match=sentence) as caught:
        solve_axial(**given)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200
