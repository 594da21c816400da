"""Hardmax attention: the limit of softmax, and how ties are shared."""

import pytest
import torch

import metastable as ms
from metastable.errors import NoEnergy
from small_runs import identity, random_measure, random_weights


def test_hardmax_is_the_limit_of_softmax_and_shares_ties():
    w, rho = random_weights(8, 3), random_measure(8, 20, 3)
    limit = ms.Hardmax(w).velocity(0.0, *rho)
    assert (ms.SelfAttention(w, 1e6).velocity(0.0, *rho) - limit).abs().max() < 1e-9
    identity = ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2))
    # Token 0 sees tokens 1 and 2 (masses 1 : 3) under the same angle and no better one, itself excluded by B.
    swap = ms.AttentionWeights(V=identity.V, B=-torch.eye(2))
    points = [[-1.0, 0.0], [0.6, 0.8], [0.6, -0.8]]
    v = ms.Hardmax(swap).velocity(0.0, *ms.Measure(points, mass=[1, 1, 3]))
    assert torch.allclose(v[0], torch.tensor([0.0, -0.4], dtype=torch.float64), atol=1e-14)


def test_hardmax_runs_with_an_indefinite_score():
    g = torch.Generator().manual_seed(1)
    w = ms.AttentionWeights(
        V=torch.randn(3, 3, generator=g, dtype=torch.float64), B=torch.randn(3, 3, generator=g, dtype=torch.float64)
    )
    path = ms.solve(ms.Hardmax(w), ms.sphere.uniform(20, 3, seed=1), 5.0)
    assert path.provenance["parameters"]["method"] == "switching"
    assert "switches of keys, located" in path.provenance["accuracy"]
    assert (path.end.points.norm(dim=1) - 1).abs().max() < 1e-12


def test_hardmax_has_no_energy():
    with pytest.raises(NoEnergy, match="Hardmax is not a gradient flow"):
        ms.Hardmax(identity(3)).energy(*random_measure(1, 5, 3))


def test_steps_across_jumps_say_so():
    flow, x = ms.Hardmax(random_weights(3, 3)), ms.sphere.uniform(6, 3)
    path = ms.solve(flow, x, 0.1, method="rk4")
    assert path.provenance["accuracy"].startswith("steps across the jumps of the field: the error is of the order")
    assert not flow._noted  # the caller's flow keeps no record
