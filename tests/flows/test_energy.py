"""Energies: where they exist, their derivative along the flow, their limits."""

import pytest
import torch

import metastable as ms
from metastable import observe
from metastable.errors import InvalidInput, NoEnergy
from metastable.flows.energy import require_gradient_structure
from small_runs import gaussian, random_measure, random_weights


def heads(seed, count, d):
    symmetric = [(lambda a: (a + a.T) / 2)(gaussian(seed + h, d, d)) for h in range(count)]
    return [ms.UnnormalizedAttention(ms.AttentionWeights(V=M, B=M), 0.8) for M in symmetric]


def test_v1_energy_identity_of_unnormalised_heads():
    flow, rho = ms.MultiHead(heads(40, 3, 5)), ms.Measure(ms.sphere.uniform(6, 5, seed=7))
    v = flow.velocity(0.0, *rho)
    h = 1e-5
    forward, backward = (ms.sphere.exp(rho.points, s * h * v) for s in (1.0, -1.0))
    slope = (flow.energy(forward, rho.mass) - flow.energy(backward, rho.mass)) / (2 * h)
    assert slope == pytest.approx(float(rho.mass @ v.square().sum(1)), rel=1e-8)


def test_v2_energy_of_one_head_among_several():
    beta, n = 0.8, 6
    flow, x = ms.MultiHead(heads(50, 3, 5)), ms.sphere.uniform(n, 5, seed=8)
    mass = torch.full((n,), 1 / n, dtype=torch.float64)
    f = [torch.exp(beta * x @ h.weights.B @ x.T) @ x @ h.weights.V.T for h in flow.heads]
    projected = [ms.sphere.project_tangent(x, k) for k in f]
    expected = sum(float((projected[0] * k).sum()) for k in projected) / n**3
    v, h = flow.velocity(0.0, x, mass), 1e-5
    forward, backward = (flow.heads[0].energy(ms.sphere.exp(x, s * h * v), mass) for s in (1.0, -1.0))
    assert (forward - backward) / (2 * h) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_energy_is_monotone_along_softmax_runs(sign):
    M = (lambda a: (a + a.T) / 2)(gaussian(60, 4, 4))
    flow = ms.SelfAttention(ms.AttentionWeights(V=sign * M, B=M), 2.0)
    path = ms.solve(flow, ms.sphere.uniform(12, 4, seed=9), 4.0, times=30)
    energies = observe.along(path, lambda rho: flow.energy(*rho))
    assert (sign * energies.diff() > 0).all()


def test_energies_exist_where_they_should():
    rho = random_measure(1, 5, 3)
    symmetric = ms.AttentionWeights(V=2 * torch.eye(3), B=torch.eye(3))
    assert ms.SelfAttention(symmetric, 1.0).energy(*rho) > 0
    assert require_gradient_structure(symmetric) == 2.0
    for flow in (ms.SelfAttention(random_weights(1, 3), 1.0), ms.MultiHead([ms.SelfAttention(symmetric, 1.0)] * 2)):
        with pytest.raises(NoEnergy):
            flow.energy(*rho)
    with pytest.raises(InvalidInput, match="log=True"):
        ms.SelfAttention(symmetric, 1e4).energy(*rho)
