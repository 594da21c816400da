"""Lengths from which sums at all lengths follow, and columns of weights."""

from __future__ import annotations

import numpy as np
import pytest

from metastable.attention.sphere.nodes import radii, shares, with_sizes


@pytest.mark.parametrize(("ratio", "rest"), [(1.0, 1e-9), (1.3, 1e-9), (3.0, 1e-13), (30.0, 1e-6)])
def test_sums_at_all_lengths_follow_from_a_few(ratio, rest) -> None:
    high = np.array([ratio, ratio**0.3])
    between = radii(np.ones(2), high, rest)
    lengths = np.linspace(np.ones(2), high, 101, axis=1)
    factors = shares(lengths, between.shape[1])
    x = np.geomspace(0.01, 60.0, 40)[:, None, None]
    found = np.einsum("xaj,ajn->xan", np.exp(-x * between), factors)
    error = np.abs(found - np.exp(-x * lengths)).max()
    assert error <= rest + 1e-14
    count = between.shape[1]
    assert (count == 1 and ratio == 1.0) or error > 1e-3 * rest  # not far more than asked


def test_columns_of_other_values_have_the_largest_size_at_last() -> None:
    weights = np.random.default_rng(0).standard_normal((3, 2, 4))
    found = with_sizes(weights, np.empty((3, 3, 4)))
    assert np.array_equal(found[:, :2], weights) and np.allclose(found[:, 2], np.linalg.norm(weights, axis=1))
