"""Sums over a range of keys for eight queries, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from metastable.attention.lanes import LANES
from metastable.attention.nearby.lanes import (
    COARSE_ERROR,
    coarse_sums_of_pairs,
    sums_in_space,
    sums_in_the_plane,
    sums_of_pairs,
)


@pytest.mark.parametrize("d", [2, 3])
def test_sums_of_eight_queries(d):
    rng = np.random.default_rng(d)
    keys, queries = rng.normal(size=(d + 1, 40)), 5 * rng.normal(size=(d + 1, LANES))
    queries[d, 0] = -3000.0  # raised to 2^-1000
    sums = np.ones((d + 1, LANES))
    add = sums_in_the_plane if d == 2 else sums_in_space
    for first, last in ((3, 3), (3, 4), (4, 29)):
        add(keys.ravel(), 40, first, last, queries.ravel(), sums.reshape(-1))
    exponents = np.maximum(queries[:d].T @ keys[:d] + queries[d][:, None], -1000.0)[:, 3:29]
    weights = np.exp2(exponents) * keys[d, 3:29]
    expected = 1 + np.concatenate([keys[:d, 3:29] @ weights.T, weights.sum(axis=1)[None]])
    np.testing.assert_allclose(sums, expected, rtol=1e-13, atol=1e-13 * np.abs(expected).max())


def test_sums_over_a_list_of_pairs():
    """Of keys with masses, and of equal ones to an error that is stated."""
    rng = np.random.default_rng(5)
    keys, queries = rng.normal(size=(4, 3000)), 5 * rng.normal(size=(4, LANES))
    pairs = np.flatnonzero(rng.random(1500) < 0.3)
    for equal in (False, True):
        if equal:
            keys[3] = 1.0
        expected, listed, coarse = np.zeros((3, 4, LANES))
        for pair in pairs:
            sums_in_space(keys.ravel(), 3000, 2 * pair, 2 * pair + 2, queries.ravel(), expected.reshape(-1))
        sums_of_pairs(keys.ravel(), 3000, pairs, len(pairs), queries.ravel(), listed.reshape(-1))
        np.testing.assert_allclose(listed, expected, rtol=1e-14, atol=1e-14 * np.abs(expected).max())
    coarse_sums_of_pairs(keys.ravel(), 3000, pairs, len(pairs), queries.ravel(), coarse.reshape(-1))
    assert (np.abs(coarse - expected) <= 4 * COARSE_ERROR * expected[3]).all()
    assert (np.abs(coarse[3] - expected[3]) <= COARSE_ERROR * expected[3]).all()
