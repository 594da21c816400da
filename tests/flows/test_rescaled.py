"""Euclidean attention in the growing frame."""

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.flows import RescaledAttention
from metastable.weights import Schedule
from small_runs import gaussian, identity, random_weights


@pytest.mark.parametrize("d", [1, 3])
def test_it_is_euclidean_attention_in_another_frame(d):
    w, x0 = random_weights(7, d), 0.5 * gaussian(8, 9, d)
    mass = np.arange(1.0, 10.0)
    start = ms.Measure(x0, mass, sphere=False)
    x, z = (
        ms.solve(flow(w, 1.3), start, 1.2, rtol=1e-11, atol=1e-13).end.points
        for flow in (ms.EuclideanAttention, RescaledAttention)
    )
    grown = z @ torch.linalg.matrix_exp(1.2 * w.V).T
    assert (grown - x).abs().max() < 1e-9 * x.abs().max()


def test_hull_shrinks_and_attention_becomes_a_choice():
    """V = I, d = 1: 8 tokens at t = 6 attend to one of them each, to three digits."""
    path = ms.solve(RescaledAttention(identity(1), 1.0), gaussian(3, 8, 1), 6.0, times=13)
    z = path.points[:, :, 0]
    assert bool((z.amax(1).diff() <= 1e-9).all()) and bool((z.amin(1).diff() >= -1e-9).all())
    attention = torch.softmax(np.exp(12.0) * torch.outer(z[-1], z[-1]), dim=1)
    assert (attention - attention.round()).abs().max() < 1e-3
    assert torch.linalg.matrix_rank(attention.round()) <= 2


def test_what_it_cannot_do_is_refused():
    with pytest.raises(InvalidInput, match="V must not change"):
        RescaledAttention(Schedule(lambda t: identity(2)), 1.0)
    with pytest.raises(InvalidInput, match=r"t \|V\| must be <= 30, got 200"):
        ms.solve(RescaledAttention(identity(2), 1.0), gaussian(1, 4, 2), 200.0)
    with pytest.raises(InvalidInput, match="beta must be"):
        RescaledAttention(identity(2), -1.0)
    late = ms.solve(RescaledAttention(identity(2), 1.0), gaussian(1, 4, 2), 30.0, rtol=1e-5).end
    assert bool(torch.isfinite(late.points).all())
