"""Attention between the nodes of two grids: by Fourier transforms, over windows, and over all pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metastable.attention.sphere.nodes import NOBODY, attend_rings, node_attention, ring_nodes, with_sizes


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
    counts = np.full(rings, count)
    nodes = ring_nodes(theta, counts, count)
    np.testing.assert_allclose(nodes.transpose(0, 2, 1).reshape(-1, 3), k, atol=1e-15)
    columns = with_sizes(weights[:, None], nodes)
    along, largest = attend_rings(r, columns, 100.0)
    sums = np.fft.irfft(along, n=count).transpose(0, 2, 1).reshape(-1, 4)
    assert np.allclose(sums, expected[:, :4], rtol=0.0, atol=1e-13)
    assert largest == pytest.approx(expected[:, 4].max(), rel=1e-13)
    near = np.empty_like(expected)
    attend_nodes = node_attention(5)
    attend_nodes(r * k, theta, counts, nodes, columns, 0.0, 100.0, near, NOBODY, NOBODY)
    assert np.allclose(near, expected, rtol=0.0, atol=1e-13)
    attend_nodes(r * k, theta, counts, nodes, columns, 0.0, 4.0, near, NOBODY, NOBODY)
    dropped = math.exp(-4.0) * np.abs(weights).sum()
    assert 0.0 < np.abs(near - expected).max() <= dropped
    along, _ = attend_rings(r, columns, 4.0)
    sums = np.fft.irfft(along, n=count).transpose(0, 2, 1).reshape(-1, 4)
    assert 0.0 < np.abs(sums - expected[:, :4]).max() <= dropped


def test_rings_with_fewer_nodes_near_the_poles() -> None:
    """Only the first `counts` weights of a ring are nodes; the soft length divides everything alike."""
    theta, counts = np.array([0.3, 1.2, 2.8]), np.array([2, 5, 3])
    weights = np.random.default_rng(1).uniform(size=(3, 6))
    vectors, masses = [], []
    for ring in range(3):
        phi = 2.0 * math.pi * np.arange(counts[ring]) / counts[ring]
        high = math.sin(theta[ring])
        vectors.append(
            np.stack([high * np.cos(phi), high * np.sin(phi), np.full(len(phi), math.cos(theta[ring]))], 1)
        )
        masses.append(weights[ring, : counts[ring]])
    k, m = np.concatenate(vectors), np.concatenate(masses)
    targets = np.random.default_rng(2).normal(size=(11, 3))
    out = np.empty((11, 5))
    nodes = ring_nodes(theta, counts, 6)
    columns = with_sizes(weights[:, None], nodes)
    node_attention(5)(targets, theta, counts, nodes, columns, 1.5, 200.0, out, NOBODY, NOBODY)
    shift = np.sqrt((targets**2).sum(axis=1) + 1.5**2)
    pairs = m * np.exp(targets @ k.T - shift[:, None])
    np.testing.assert_allclose(
        out, np.column_stack([pairs @ k, pairs.sum(axis=1), pairs.sum(axis=1)]), rtol=1e-13, atol=1e-15
    )


@pytest.mark.parametrize("reach", [200.0, 3.0])
def test_what_targets_send_is_summed_at_the_nodes_that_they_see(reach) -> None:
    rng = np.random.default_rng(7)
    theta = (np.arange(30) + 0.5) * (math.pi / 30)
    counts = np.maximum((60 * np.sin(theta)).astype(np.int64), 4)
    nodes = ring_nodes(theta, counts, 60)
    k = np.concatenate([nodes[ring, :, :count].T for ring, count in enumerate(counts)])
    targets, sent = 3.0 * rng.normal(size=(50, 3)), rng.normal(size=(50, 4))
    targets = targets[np.lexsort((np.arctan2(targets[:, 1], targets[:, 0]),))]
    out, received = np.empty((50, 2)), np.zeros((30, 60))
    weights = np.ones((30, 2, 60))
    node_attention(2, back=True)(targets, theta, counts, nodes, weights, 0.5, reach, out, sent, received)
    kernel = np.exp(targets @ k.T - np.sqrt((targets**2).sum(axis=1) + 0.25)[:, None])
    expected = (kernel * (sent[:, :3] @ k.T - sent[:, 3:])).sum(axis=0)
    found = np.concatenate([received[ring, :count] for ring, count in enumerate(counts)])
    if reach > 100.0:
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(out[:, 0], kernel.sum(axis=1), rtol=1e-12)
    else:
        missed = math.exp(-reach) * (np.linalg.norm(sent[:, :3], axis=1) + np.abs(sent[:, 3])).sum()
        assert 0.0 < np.abs(found - expected).max() <= missed


def test_windows_hold_all_nodes_within_the_depth() -> None:
    """Sums over windows lie between those over nodes within reach and those over all nodes."""
    rng = np.random.default_rng(5)
    theta = (np.arange(60) + 0.5) * (math.pi / 60)
    counts = np.maximum((120 * np.sin(theta)).astype(np.int64), 4)
    nodes = ring_nodes(theta, counts, 120)
    weights = rng.uniform(size=(60, 1, 120))
    k = np.concatenate([nodes[ring, :, : counts[ring]].T for ring in range(60)])
    m = np.concatenate([weights[ring, 0, : counts[ring]] for ring in range(60)])
    direction = rng.normal(size=(70, 3))
    targets = direction / np.linalg.norm(direction, axis=1, keepdims=True) * rng.uniform(5.0, 400.0, size=(70, 1))
    out = np.empty((70, 2))
    columns = np.repeat(weights, 2, axis=1)
    node_attention(2)(targets, theta, counts, nodes, columns, 0.0, 6.0, out, NOBODY, NOBODY)
    far = targets @ k.T - np.linalg.norm(targets, axis=1)[:, None]
    within = np.where(far >= -6.0, np.exp(far), 0.0) @ m
    assert (out[:, 0] >= within * (1.0 - 1e-12)).all()
    assert (out[:, 0] <= np.exp(far) @ m * (1.0 + 1e-12)).all()
    np.testing.assert_allclose(out[:, 1], out[:, 0], rtol=1e-14)


def test_columns_of_other_values_have_the_largest_size_at_last() -> None:
    weights = np.random.default_rng(0).standard_normal((3, 2, 4))
    found = with_sizes(weights, np.empty((3, 3, 4)))
    assert np.array_equal(found[:, :2], weights) and np.allclose(found[:, 2], np.linalg.norm(weights, axis=1))
