"""Hardmax by tiles of scores."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention.attention_reference import LAYOUTS, masses, tokens
from attention.hardmax.definition import check_small, dense, same
from metastable.attention.hardmax.tiles import hardmax_tiled


@pytest.mark.parametrize("d", [2, 3])
@given(seed=st.integers(0, 1000), layout=st.sampled_from(LAYOUTS[:4]), n=st.integers(1, 60))
def test_small_systems(d, seed, layout, n):
    check_small(hardmax_tiled, d, layout, n, seed)


def test_ties_in_several_tiles():
    """More keys than a tile has, the best ones at both ends."""
    keys, mass = 0.5 * tokens(5000, 4, "uniform", 0), masses(5000, 1) + 0.1
    keys[3] = keys[4990] = torch.tensor([0.6, 0.8, 0.0, 0.0], dtype=torch.float64)
    queries = torch.tensor([[0.6, 0.8, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    slack = 8 * torch.finfo(torch.float64).eps * queries.norm(dim=1)
    values = torch.arange(5000, dtype=torch.float64)[:, None]
    found = hardmax_tiled(queries, keys, values, mass, slack)
    same(found, dense(queries, keys, values, mass))
    assert 3.0 < float(found[0][0, 0]) < 4990.0
