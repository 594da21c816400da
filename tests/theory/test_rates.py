import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import NotDefined
from metastable.papers.concentration.families import commuting, plain, sheared
from metastable.theory import distance_to_limit, limit_map, spectrum, zero_temperature
from metastable.theory.rates import (
    guaranteed_distance,
    guaranteed_tangent,
    local_rate,
    rates,
    rayleigh,
    rotation_period,
    squared_tangent,
)


def symmetric(seed, d, levels):
    rng = np.random.default_rng(seed)
    Z = np.linalg.qr(rng.normal(size=(d, d)))[0]
    B = np.eye(d) + 0.4 * rng.normal(size=(d, d)) / math.sqrt(d)
    return ms.AttentionWeights(V=Z @ np.diag(levels) @ Z.T @ np.linalg.inv(B.T), B=B)


def test_lyapunov_functions_and_guaranteed_bound():
    w = symmetric(0, 4, [2.0, 1.0, 0.3, -0.5])
    x0, s = ms.sphere.uniform(200, 4, seed=1), spectrum(w)
    before, tangent = rayleigh(w, x0), squared_tangent(s.M, x0)
    for t in (0.2, 1.0, 3.0):
        x = zero_temperature(w, x0, t)
        after = rayleigh(w, x)
        assert bool((after >= before - 1e-12).all())
        now = torch.sqrt(squared_tangent(s.M, x))
        assert bool((now <= guaranteed_tangent(w, x0, t) * (1 + 1e-9)).all())
        assert bool((now**2 <= tangent * (1 + 1e-9)).all())
        assert distance_to_limit(w, x0, t) <= guaranteed_distance(w, x0, t) * (1 + 1e-9)
        before, tangent = after, now**2


def test_guarantee_is_sharp_for_two_levels_and_isometric_scores():
    w = ms.AttentionWeights(V=np.diag([2.0, 1.0, 1.0]), B=np.eye(3))
    x0 = ms.sphere.uniform(50, 3, seed=2)
    now = torch.sqrt(squared_tangent(spectrum(w).M, zero_temperature(w, x0, 1.5)))
    assert torch.allclose(now, guaranteed_tangent(w, x0, 1.5), rtol=1e-10)


def test_rayleigh_speed():
    w = symmetric(1, 3, [1.5, 0.5, -0.2])
    x = ms.sphere.uniform(5, 3, seed=3)
    h = 1e-5
    measured = (rayleigh(w, zero_temperature(w, x, 2 * h)) - rayleigh(w, x)) / (2 * h)
    middle = zero_temperature(w, x, h)
    field = ms.sphere.project_tangent(middle, middle @ w.M.T)
    expected = 2 * (field**2).sum(1) / torch.linalg.vector_norm(middle @ w.B, dim=1)
    assert torch.allclose(measured, expected, atol=1e-7)


def test_local_rate_is_what_late_orbits_show():
    w = symmetric(2, 4, [2.0, 1.0, 0.0, -1.0])
    x0 = ms.sphere.uniform(30, 4, seed=4)
    s, late = spectrum(w), (14.0, 16.0)
    a, b = (torch.log(squared_tangent(s.M, x)) / 2 for x in zero_temperature(w, x0, late))
    expected = local_rate(w, limit_map(w)(x0))
    # tokens that start near the separatrix arrive late: judge those that have arrived
    arrived = a < -4
    assert int(arrived.sum()) > 20
    assert torch.allclose(((a - b) / 2)[arrived], expected[arrived], rtol=1e-3)


@pytest.mark.parametrize(
    ("w", "expected"),
    [
        (plain(), 0.5),
        (commuting(), 1 / 3),
        (sheared(0.5), 0.5),
    ],
)
def test_global_rate_of_the_reference_families(w, expected):
    assert rates(w).c == pytest.approx(expected, rel=1e-9)
    # nodes graded towards the separatrix carry the slow mass that equispaced ones cannot resolve
    tangent = np.exp(np.linspace(-32, 32, 4001))
    rho = ms.Measure(np.stack([1 / tangent, 0 * tangent + 1], axis=1), mass=tangent / (1 + tangent**2))
    a, b = torch.log(distance_to_limit(w, rho, [16.0, 20.0])).tolist()
    assert (a - b) / 4 == pytest.approx(expected, rel=0.02)


def test_data_away_from_the_separatrix_decay_at_the_local_rate():
    w = ms.AttentionWeights(V=np.diag([2.0, 1.0]), B=np.eye(2))
    rho = ms.sphere.from_angles(np.linspace(-1, 1, 101))
    a, b = torch.log(distance_to_limit(w, rho, [8.0, 9.0])).tolist()
    assert a - b == pytest.approx(rates(w).local, rel=1e-3)


def test_rotation_period():
    M = np.array([[0.5, -2.0, 0.3], [1.0, 0.5, 0.1], [0.0, 0.0, -0.8]])
    B = np.eye(3) + 0.2 * np.random.default_rng(0).normal(size=(3, 3))
    w = ms.AttentionWeights(V=M @ np.linalg.inv(B.T), B=B)
    T = rotation_period(w)
    start = ms.sphere.normalize(spectrum(w).dominant_space[:, :1].T)
    assert torch.allclose(zero_temperature(w, start, T), start, atol=1e-9)
    assert torch.allclose(zero_temperature(w, start, T / 2), -start, atol=1e-9)
    with pytest.raises(NotDefined, match="complex pair"):
        rotation_period(ms.AttentionWeights(V=np.diag([2.0, 1.0]), B=np.eye(2)))
    with pytest.raises(NotDefined, match="symmetric"):
        guaranteed_tangent(w, start, 1.0)
