"""Attention without the sphere."""

import pytest
import torch

import metastable as ms
from metastable.errors import NoEnergy
from small_runs import gaussian, identity, random_measure


def test_euclidean_tokens_follow_the_matrix_exponential_at_beta_zero():
    """beta = 0: x_i' = V mean, so mean(t) = e^{tV} mean(0) and x_i - mean is constant."""
    V = gaussian(95, 3, 3)
    x0 = gaussian(96, 7, 3)
    path = ms.solve(ms.EuclideanAttention(ms.AttentionWeights(V=V, B=torch.eye(3)), 0.0), x0, 2.0)
    mean = torch.linalg.matrix_exp(2.0 * V) @ x0.mean(0)
    assert (path.end.points - (x0 - x0.mean(0) + mean)).abs().max() < 1e-7 * float(mean.abs().max() + 1)
    assert not path.end.sphere


def test_it_has_no_energy():
    with pytest.raises(NoEnergy, match="Euclidean attention has no energy"):
        ms.EuclideanAttention(identity(3), 1.0).energy(*random_measure(1, 5, 3))
