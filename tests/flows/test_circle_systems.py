"""Many causal systems on the circle: the flow that `Causal` is, and its adjoint."""

import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.flows import Causal
from metastable.flows.circle_systems import CircleSystems


@pytest.mark.parametrize(("n", "beta", "alibi"), [(1, 1.0, 0.0), (7, 0.0, 1.0), (20, 1.3, 0.7), (33, 3.0, 5.0)])
def test_it_is_the_causal_flow_in_coordinates(n, beta, alibi):
    angle = torch.rand(3 * n, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(n)) * 2 * math.pi
    found = CircleSystems(n, beta, alibi).velocity(0.0, angle, torch.ones(3 * n).double())[:, 0]
    w = ms.AttentionWeights(V=beta * np.eye(2), B=np.eye(2))
    flow = Causal(ms.UnnormalizedAttention(w, beta), alibi, include_self=False)
    for system in angle.view(3, n).unbind():
        expected = flow.velocity(0.0, ms.sphere.from_angles(system), torch.full((n,), 1 / n).double())
        across = torch.stack([-system.sin(), system.cos()], dim=1)
        assert torch.allclose(found[:n], (expected * across).sum(1), rtol=0, atol=1e-13 * math.exp(beta))
        found = found[n:]


def test_backwards_it_retraces_and_carries_the_derivatives_of_the_last_angle():
    n, beta, alibi, t = 9, 1.2, 0.8, 1.0
    start = np.random.default_rng(1).uniform(0, 2 * math.pi, (2, n))

    def forwards(angles):
        flow, rho = CircleSystems(n, beta, alibi), ms.Measure(angles.reshape(-1, 1), sphere=False)
        return ms.solve(flow, rho, t, rtol=1e-11, atol=1e-12).end.points.numpy().reshape(2, n)

    rows = np.zeros((2, n, 2))
    rows[:, :, 0], rows[:, -1, 1] = forwards(start), 1.0
    back = CircleSystems(n, beta, alibi, backwards=True)
    rho = ms.Measure(rows.reshape(-1, 2), sphere=False)
    found = ms.solve(back, rho, t, rtol=1e-11, atol=1e-12).end.points.numpy().reshape(2, n, 2)
    assert np.abs(found[:, :, 0] - start).max() < 1e-8
    for s in range(n):
        step = np.zeros(n)
        step[s] = 1e-5
        derivative = (forwards(start + step) - forwards(start - step))[:, -1] / 2e-5
        assert found[:, s, 1] == pytest.approx(derivative, abs=1e-7)


def test_turning_all_angles_turns_the_last_one_as_far():
    """sum_s d theta_last/d theta_s = 1 at all times: the adjoint keeps its sum."""
    flow = CircleSystems(6, 2.0, 1.0, backwards=True)
    rows = torch.rand(18, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    moved = flow.velocity(0.0, rows, torch.ones(18).double()).view(3, 6, 2)
    assert moved[:, :, 1].sum(1).abs().max() < 1e-14


@pytest.mark.parametrize(
    "call",
    [
        lambda: CircleSystems(0, 1.0),
        lambda: CircleSystems(3, -1.0),
        lambda: CircleSystems(3, 1e3),
        lambda: CircleSystems(3, 1.0, alibi="1"),
        lambda: CircleSystems(3, 1.0, backwards=1),
        lambda: CircleSystems(3, 1.0).velocity(0.0, torch.zeros(4, 1), torch.ones(4)),
    ],
)
def test_malformed_systems_are_sentences(call):
    with pytest.raises(InvalidInput) as refused:
        call()
    assert len(str(refused.value)) < 200
