"""Many causal systems on the sphere: the flow that `Causal` is, and its adjoint."""

import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.flows import Causal
from metastable.flows.sphere_systems import SphereSystems


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize(("n", "d", "beta", "alibi"), [(1, 2, 1.0, 0.0), (7, 3, 0.5, 1.0), (20, 5, 1.3, 0.7)])
def test_it_is_the_causal_flow(n, d, beta, alibi, normalized):
    points = ms.sphere.uniform(3 * n, d, seed=n)
    found = SphereSystems(n, d, beta, alibi, normalized).velocity(0.0, points, torch.ones(3 * n).double())
    kind = ms.SelfAttention if normalized else ms.UnnormalizedAttention
    w = ms.AttentionWeights(V=(1.0 if normalized else beta) * np.eye(d), B=np.eye(d))
    flow = Causal(kind(w, beta), alibi, include_self=False)
    for s in range(3):
        expected = flow.velocity(0.0, points[s * n : (s + 1) * n], torch.full((n,), 1 / n).double())
        assert torch.allclose(found[s * n : (s + 1) * n], expected, rtol=0, atol=1e-13 * math.exp(beta))


@pytest.mark.parametrize("normalized", [True, False])
def test_backwards_it_retraces_and_carries_the_derivatives_of_the_last_token(normalized):
    n, d, beta, alibi, t = 5, 3, 1.2, 0.8, 0.8
    start = ms.sphere.uniform(n, d, seed=1).numpy()
    direction = np.random.default_rng(2).normal(size=d)

    def forwards(points):
        flow, rho = SphereSystems(n, d, beta, alibi, normalized), ms.Measure(points, sphere=False)
        return ms.solve(flow, rho, t, rtol=1e-11, atol=1e-12).end.points.numpy()

    rows = np.zeros((n, 2 * d))
    rows[:, :d], rows[-1, d:] = forwards(start), direction
    back = SphereSystems(n, d, beta, alibi, normalized, backwards=True)
    found = ms.solve(back, ms.Measure(rows, sphere=False), t, rtol=1e-11, atol=1e-12).end.points.numpy()
    assert np.abs(found[:, :d] - start).max() < 1e-8
    for s in range(n):
        for c in range(d):
            step = np.zeros((n, d))
            step[s, c] = 1e-5
            derivative = (forwards(start + step) - forwards(start - step))[-1] / 2e-5
            assert found[s, d + c] == pytest.approx(derivative @ direction, abs=1e-7)


@pytest.mark.parametrize(
    "call",
    [
        lambda: SphereSystems(0, 2, 1.0),
        lambda: SphereSystems(3, 1, 1.0),
        lambda: SphereSystems(3, 2, math.nan),
        lambda: SphereSystems(3, 2, 1.0, alibi=[1.0]),
        lambda: SphereSystems(3, 2, 1.0, normalized=1),
        lambda: SphereSystems(3, 2, 1.0, backwards="no"),
        lambda: SphereSystems(3, 2, 1.0).velocity(0.0, torch.zeros(4, 2), torch.ones(4)),
    ],
)
def test_malformed_systems_are_sentences(call):
    with pytest.raises(InvalidInput) as refused:
        call()
    assert len(str(refused.value)) < 200
