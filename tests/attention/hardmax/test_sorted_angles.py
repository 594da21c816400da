"""Hardmax on the circle, by neighbours in sorted angle."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention.attention_reference import LAYOUTS
from attention.hardmax.definition import check_small
from metastable.attention import hardmax
from metastable.attention.hardmax.sorted_angles import _pyramid, hardmax_sorted


@given(seed=st.integers(0, 1000), layout=st.sampled_from(LAYOUTS[:4]), n=st.integers(1, 60))
def test_small_systems(seed, layout, n):
    check_small(hardmax_sorted, 2, layout, n, seed)


def test_wide_cluster_of_near_ties_on_the_circle():
    """Keys 1e-10 apart cannot be told apart by their scores at the cluster's own angle: all of them tie."""
    angle = 0.3 + 1e-10 * torch.arange(1000, dtype=torch.float64) / 1000
    keys = torch.stack([angle.cos(), angle.sin()], dim=1)
    mass = torch.rand(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = torch.arange(1000, dtype=torch.float64)[:, None]
    mean, _ = hardmax(keys, keys, values, mass)
    np.testing.assert_allclose(mean[:, 0], np.full(1000, float((mass @ values[:, 0]) / mass.sum())), rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5, 8, 13])
def test_sums_of_ranges_from_the_pyramid(n):
    leaves = np.random.default_rng(n).normal(size=(n, 2))
    tree = _pyramid(leaves)
    np.testing.assert_allclose(tree[1], leaves.sum(axis=0), rtol=1e-13, atol=1e-14)


def test_crowded_slots_are_sorted_all_the_same():
    """A thousand keys in one slot, with queries all around."""
    angle = torch.cat(
        [1e-4 * torch.rand(1000, generator=torch.Generator().manual_seed(1)), torch.tensor([2.0, 4.0])]
    )
    keys = torch.stack([angle.cos(), angle.sin()], dim=1).double()
    keys = keys / keys.norm(dim=1, keepdim=True)
    queries = keys[::7]
    values = torch.arange(len(keys), dtype=torch.float64)[:, None]
    slack = 8 * torch.finfo(torch.float64).eps * torch.ones(len(queries), dtype=torch.float64)
    _, best = hardmax_sorted(queries, keys, values, torch.ones(len(keys), dtype=torch.float64), slack)
    np.testing.assert_allclose(best, (queries @ keys.T).max(dim=1).values, rtol=1e-15)
