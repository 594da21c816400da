"""Hardmax by sorting, by trees and by tiles: one answer, ties included."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention.attention_reference import LAYOUTS, masses, tokens
from metastable.attention import attend, hardmax
from metastable.attention.hardmax import hardmax_sorted, hardmax_tiled, hardmax_tree


def dense(queries, keys, values, mass, tie=8.0):
    """The definition, with all scores in one matrix."""
    keys, values, mass = keys[mass > 0], values[mass > 0], mass[mass > 0]
    scores = queries @ keys.T
    top = scores.max(dim=1, keepdim=True).values
    slack = tie * torch.finfo(scores.dtype).eps * keys.norm(dim=1).max() * queries.norm(dim=1, keepdim=True)
    chosen = torch.where(scores >= top - slack, mass, 0.0)
    return (chosen @ values) / chosen.sum(dim=1, keepdim=True), top[:, 0]


def same(ours, reference):
    np.testing.assert_allclose(ours[0], reference[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours[1], reference[1], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("d", [2, 3, 5, 8, 20])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_ways_agree_with_the_definition(d, layout):
    """Enough pairs that the fast ways are taken; masses include zeros, queries a zero row."""
    keys, mass = tokens(700, d, layout, 0), masses(700, 1)
    queries = tokens(600, d, "uniform", 2) @ torch.from_numpy(np.random.default_rng(3).normal(size=(d, d)))
    queries[7] = 0.0
    values = torch.from_numpy(np.random.default_rng(4).normal(size=(700, 3)))
    same(hardmax(queries, keys, values, mass), dense(queries, keys, values, mass))
    same(hardmax(keys, keys, keys, mass), dense(keys, keys, keys, mass))


@pytest.mark.parametrize("d", [2, 3])
@given(seed=st.integers(0, 1000), layout=st.sampled_from(LAYOUTS[:4]), n=st.integers(1, 60))
def test_small_systems(d, seed, layout, n):
    keys, mass = tokens(n, d, layout, seed), masses(n, seed) + 0.1
    queries = tokens(25, d, "uniform", seed + 1)
    slack = 8 * torch.finfo(torch.float64).eps * queries.norm(dim=1)
    reference = dense(queries, keys, keys, mass)
    same(hardmax_tiled(queries, keys, keys, mass, slack), reference)
    same(hardmax_tree(queries, keys, keys, mass, slack, None), reference)
    if d == 2:
        same(hardmax_sorted(queries, keys, keys, mass, slack), reference)


@pytest.mark.parametrize("copies", [1, 2, 5, 400])
def test_exact_ties_share_by_mass(copies):
    """Queries on the bisector of two keys: both maximise, and so do all their copies."""
    pair = torch.tensor([[0.8, 0.6], [0.8, -0.6]], dtype=torch.float64)
    keys = torch.cat([pair.repeat(copies, 1), -pair])
    mass = torch.cat(
        [torch.tensor([1.0, 3.0], dtype=torch.float64).repeat(copies), torch.ones(2, dtype=torch.float64)]
    )
    queries = torch.tensor([[2.0, 0.0]], dtype=torch.float64).repeat(1000, 1)
    mean, best = hardmax(queries, keys, keys, mass)
    np.testing.assert_allclose(mean, np.tile([0.8, -0.3], (1000, 1)), atol=1e-14)
    np.testing.assert_allclose(best, np.full(1000, 1.6), rtol=1e-15)
    lifted = torch.nn.functional.pad(keys, (0, 1))
    mean, _ = hardmax(torch.nn.functional.pad(queries, (0, 1)), lifted, lifted, mass)
    np.testing.assert_allclose(mean[:, :2], np.tile([0.8, -0.3], (1000, 1)), atol=1e-14)


def test_wide_cluster_of_near_ties_on_the_circle():
    """Keys 1e-10 apart cannot be told apart by their scores at the cluster's own angle: all of them tie."""
    angle = 0.3 + 1e-10 * torch.arange(1000, dtype=torch.float64) / 1000
    keys = torch.stack([angle.cos(), angle.sin()], dim=1)
    mass = torch.rand(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = torch.arange(1000, dtype=torch.float64)[:, None]
    mean, _ = hardmax(keys, keys, values, mass)
    np.testing.assert_allclose(mean[:, 0], np.full(1000, float((mass @ values[:, 0]) / mass.sum())), rtol=1e-12)


def test_is_the_limit_of_softmax():
    x, mass = tokens(600, 3, "uniform", 0), masses(600, 1)
    mean, best = hardmax(x, x, x, mass)
    limit = attend(x, x, mass, 1e9)
    np.testing.assert_allclose(mean, limit.mean, atol=1e-6)
    np.testing.assert_allclose(best, limit.log_partition / 1e9, atol=1e-7)


def test_single_precision_keeps_its_dtype():
    for d in (2, 3):
        x, mass = tokens(800, d, "uniform", 0).float(), masses(800, 1).float()
        mean, best = hardmax(x, x, x, mass)
        assert mean.dtype == best.dtype == torch.float32
        np.testing.assert_allclose(best, dense(x, x, x, mass)[1], rtol=1e-6, atol=1e-6)
