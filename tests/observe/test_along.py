"""An observable along a path."""

import pytest
import torch

import metastable as ms
from metastable import observe
from metastable.errors import InvalidInput
from metastable.measure import Ensemble


def test_along_a_path():
    w = ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2))
    path = ms.solve(ms.SelfAttention(w, 1.0), ms.sphere.from_angles([0.0, 1.0, 2.0]), 5.0, times=6)
    order = observe.along(path, observe.order_parameter)
    assert (order.diff() > 0).all()


def test_along_a_path_of_many_systems_there_is_an_axis_of_them():
    w = ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2))
    many = Ensemble(torch.randn(4, 6, 2, generator=torch.Generator().manual_seed(0)), mass=torch.rand(4, 6))
    path = ms.solve(ms.SelfAttention(w, [0.0, 1.0, 2.0, 3.0]), many, 1.0, times=3)
    basis = torch.tensor([[1.0], [0.0]])
    for observable in (
        ms.observe.order_parameter,
        ms.observe.effective_rank,
        ms.observe.pair_fraction,
        ms.observe.cluster_count,
        lambda rho: ms.observe.distance_to_subspace(rho, basis),
        lambda rho: ms.observe.interaction_energy(rho, w, 2.0, log=True),
    ):
        found = ms.observe.along(path, observable)
        assert found.shape == (3, 4)
        alone = [[float(observable(path[i][s])) for s in range(4)] for i in range(3)]
        assert torch.allclose(found, torch.tensor(alone, dtype=torch.float64), rtol=1e-12, atol=1e-14)
    energies = ms.observe.interaction_energy(many, w, [0.0, 1.0, 2.0, 3.0])
    assert float(energies[3]) == pytest.approx(ms.observe.interaction_energy(many[3], w, 3.0), rel=1e-13)
    with pytest.raises(InvalidInput, match="4 numbers, one per system"):
        ms.observe.along(path, lambda rho: 1.0)
    with pytest.raises(InvalidInput, match="many\\[s\\]"):
        ms.observe.overlap_histogram(many)
