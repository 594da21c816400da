"""Nodes of an ellipsoid of queries, and what they and the nodes of the keys give each other."""

import math

import numpy as np
import pytest
import torch

from attention.sphere.sphere_tokens import tokens
from metastable.attention.operands import Operands
from metastable.attention.sphere.layout import depth, largest_sums, lines_of, meet, sum_of_sizes, targets_of
from metastable.attention.sphere.nodes import ring_nodes
from metastable.attention.sphere.plan import plan, surface


def laid(axes):
    keys = tokens("uniform", 400, 0)
    B = torch.diag(torch.tensor(axes, dtype=torch.float64))
    operands = Operands(keys @ B, keys, keys, torch.full((400,), 1 / 400).double(), 1.0)
    return surface(operands), plan(operands, 1e-8)


def points_of(where, grids):
    """(rings, N, 3): z of all targets, in the frame of the rings."""
    targets, n = targets_of(where, grids), grids.coarse_queries
    phi = np.arange(n) * (2.0 * math.pi / n)
    high, low = np.sin(targets.angles)[:, None], np.cos(targets.angles)[:, None]
    u = np.stack((high * np.cos(phi), high * np.sin(phi), np.broadcast_to(low, (n // 2, n))), axis=2)
    return targets, u * targets.lengths[..., None]


@pytest.mark.parametrize("axes", [(4.0, 9.0, 30.0), (20.0, 4.0, 3.0), (7.0, 7.0, 7.0)])
def test_targets_lie_on_the_surface_at_the_nodes_of_their_chart(axes):
    where, grids = laid(axes)
    targets, z = points_of(where, grids)
    if where.ellipsoid is None:
        assert targets.lengths.shape == (grids.coarse_queries // 2, 1) and (targets.lengths == where.longest).all()
        return
    np.testing.assert_allclose(np.linalg.norm(z / where.ellipsoid.axes, axis=2), 1.0, rtol=1e-12)
    v = z / grids.stretch
    v /= np.linalg.norm(v, axis=2, keepdims=True)
    np.testing.assert_allclose(v, ring_nodes(grids.coarse_queries // 2).transpose(0, 2, 1), atol=1e-13)


@pytest.mark.parametrize("axes", [(4.0, 9.0, 12.0), (12.0, 4.0, 3.0), (5.0, 5.0, 5.0)])
def test_what_both_give_each_other_is_that_of_all_pairs(axes):
    """Weights of keys that lie apart from the nodes: sums over nodes are then those over keys."""
    where, grids = laid(axes)
    targets, z = points_of(where, grids)
    rng = np.random.default_rng(1)
    n, rings = grids.coarse_queries, grids.coarse_keys // 2
    columns = np.fft.irfft(rng.standard_normal((rings, 2, 3)), n=2 * rings)
    sent = np.fft.irfft(rng.standard_normal((n // 2, 1, 3)), n=n)
    weight = max(sum_of_sizes(columns), sum_of_sizes(sent))
    along, heard = meet(lines_of(targets, weight, grids), columns, sent, weight, grids)
    k = ring_nodes(rings).transpose(0, 2, 1).reshape(-1, 3)
    kernel = np.exp(z @ k.T - np.sqrt((z**2).sum(axis=2) + grids.soft**2)[..., None])
    expected = np.einsum("anb,bc->acn", kernel, columns.transpose(0, 2, 1).reshape(-1, 2))
    np.testing.assert_allclose(
        np.fft.irfft(along, n=n, axis=1), expected.transpose(0, 2, 1), rtol=0.0, atol=1e-12 * weight
    )
    expected = np.einsum("anb,asn->bs", kernel, sent).reshape(rings, 2 * rings).T
    np.testing.assert_allclose(heard[:, 0], expected.T, rtol=0.0, atol=1e-12 * weight)


def test_the_largest_sum_of_sizes_is_above_those_of_all_targets():
    where, grids = laid((4.0, 9.0, 12.0))
    targets, z = points_of(where, grids)
    rings = grids.coarse_keys // 2
    sizes = np.abs(np.random.default_rng(2).standard_normal((rings, 2 * rings)))
    largest, steepest = largest_sums(targets, sizes, grids)
    lengths = np.linalg.norm(z, axis=2)
    kernel = np.exp(z @ ring_nodes(rings).transpose(0, 2, 1).reshape(-1, 3).T - lengths[..., None])
    sums = kernel @ sizes.ravel()
    assert 0.999 * sums.max() <= largest <= 2.0 * sums.max()
    assert 0.999 * (lengths * sums).max() <= steepest <= 4.0 * (lengths * sums).max()


def test_larger_weights_reach_further():
    _, grids = laid([1.0, 2.0, 3.0])
    small = np.abs(np.random.default_rng(1).standard_normal((20, 1, 40)))
    assert sum_of_sizes(small) == np.abs(small).sum()
    assert depth(1e6, grids) == pytest.approx(depth(1.0, grids) + math.log(1e6), rel=1e-14)
