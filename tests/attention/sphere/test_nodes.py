"""Attention between the nodes of two grids: by Fourier transforms, over windows, and over all pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metastable.attention.sphere.nodes import attend_nodes, attend_rings


def test_rings_and_nodes_are_the_same_sums() -> None:
    rings, count, r = 10, 20, 6.0
    weights = np.random.default_rng(3).standard_normal((rings, count))
    theta = (np.arange(rings) + 0.5) * (math.pi / rings)
    phi = np.arange(count) * (2.0 * math.pi / count)
    high, low = np.sin(theta), np.cos(theta)
    k = np.stack(
        [np.outer(high, np.cos(phi)), np.outer(high, np.sin(phi)), np.outer(low, np.ones(count))], axis=2
    ).reshape(-1, 3)
    pairs = np.exp(r * (k @ k.T - 1.0))
    expected = np.column_stack(
        (pairs @ (weights.reshape(-1, 1) * k), pairs @ weights.ravel(), pairs @ np.abs(weights.ravel()))
    )
    along, largest = attend_rings(r, weights, 100.0)
    sums = np.fft.irfft(along, n=count).transpose(0, 2, 1).reshape(-1, 4)
    assert np.allclose(sums, expected[:, :4], rtol=0.0, atol=1e-13)
    assert largest == pytest.approx(expected[:, 4].max(), rel=1e-13)
    near = np.empty_like(expected)
    counts = np.full(rings, count)
    attend_nodes(r * k, theta, counts, weights, 0.0, 100.0, near)
    assert np.allclose(near, expected, rtol=0.0, atol=1e-13)
    attend_nodes(r * k, theta, counts, weights, 0.0, 4.0, near)
    dropped = math.exp(-4.0) * np.abs(weights).sum()
    assert 0.0 < np.abs(near - expected).max() <= dropped
    along, _ = attend_rings(r, weights, 4.0)
    sums = np.fft.irfft(along, n=count).transpose(0, 2, 1).reshape(-1, 4)
    assert 0.0 < np.abs(sums - expected[:, :4]).max() <= dropped


def test_rings_with_fewer_nodes_near_the_poles() -> None:
    """Only the first `counts` weights of a ring are nodes; the soft length divides everything alike."""
    theta, counts = np.array([0.3, 1.2, 2.8]), np.array([2, 5, 3])
    weights = np.random.default_rng(1).uniform(size=(3, 6))
    nodes, masses = [], []
    for ring in range(3):
        phi = 2.0 * math.pi * np.arange(counts[ring]) / counts[ring]
        high = math.sin(theta[ring])
        nodes.append(
            np.stack([high * np.cos(phi), high * np.sin(phi), np.full(len(phi), math.cos(theta[ring]))], 1)
        )
        masses.append(weights[ring, : counts[ring]])
    k, m = np.concatenate(nodes), np.concatenate(masses)
    targets = np.random.default_rng(2).normal(size=(11, 3))
    out = np.empty((11, 5))
    attend_nodes(targets, theta, counts, weights, 1.5, 200.0, out)
    shift = np.sqrt((targets**2).sum(axis=1) + 1.5**2)
    pairs = m * np.exp(targets @ k.T - shift[:, None])
    np.testing.assert_allclose(
        out, np.column_stack([pairs @ k, pairs.sum(axis=1), pairs.sum(axis=1)]), rtol=1e-13, atol=1e-15
    )
