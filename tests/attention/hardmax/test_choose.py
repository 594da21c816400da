"""Hardmax by whatever way is chosen: one answer, ties included."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attention.attention_reference import LAYOUTS, masses, tokens
from attention.hardmax.definition import dense, same
from metastable.attention import attend, hardmax
from metastable.errors import InvalidInput


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


def test_nonsense_is_refused_in_a_sentence():
    x = [[1.0, 0.0], [0.0, 1.0]]
    assert hardmax(x, x)[0].tolist() == x
    for arguments in (
        (None, x), (x, None), (x, [[1.0]]), (x, x, [[1.0]]), (x, x, None, [1.0]), (x, x, x, "heavy"), ("x", "x"),
        (x, np.zeros((0, 2))),
    ):  # fmt: skip
        with pytest.raises(InvalidInput) as refusal:
            hardmax(*arguments)
        assert len(str(refusal.value)) < 200
    for tie in (None, "8", -1.0, np.nan, [1.0]):
        with pytest.raises(InvalidInput, match="tie must be"):
            hardmax(x, x, tie=tie)
