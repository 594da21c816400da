"""Hardmax as a search for nearest neighbours."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention.attention_reference import LAYOUTS, masses, tokens
from attention.hardmax.definition import check_small, dense, same
from metastable.attention.hardmax.kd_tree import hardmax_tree


@pytest.mark.parametrize("d", [2, 3])
@given(seed=st.integers(0, 1000), layout=st.sampled_from(LAYOUTS[:4]), n=st.integers(1, 60))
def test_small_systems(d, seed, layout, n):
    check_small(lambda *given: hardmax_tree(*given, None), d, layout, n, seed)


@pytest.mark.parametrize("d", [2, 3, 6])
def test_keys_of_different_lengths_are_lifted_to_one(d):
    keys, mass = tokens(300, d, "off-sphere", 0), masses(300, 1) + 0.1
    queries = tokens(80, d, "uniform", 2)
    longest = math.sqrt(float((keys**2).sum(dim=1).max()))
    slack = 8 * torch.finfo(torch.float64).eps * longest * queries.norm(dim=1)
    same(hardmax_tree(queries, keys, keys, mass, slack, longest), dense(queries, keys, keys, mass))


def test_more_copies_than_neighbours():
    """Forty copies of the best key: the search sees sixteen, so all distinct keys are looked at."""
    keys = torch.cat([tokens(50, 3, "uniform", 0), tokens(1, 3, "uniform", 9).repeat(40, 1)])
    mass, values = masses(90, 1) + 0.1, torch.arange(90, dtype=torch.float64)[:, None]
    queries = keys[-1:].repeat(3, 1)
    slack = 8 * torch.finfo(torch.float64).eps * queries.norm(dim=1)
    same(hardmax_tree(queries, keys, values, mass, slack, None), dense(queries, keys, values, mass))
