"""Neighbours in the order are neighbours on the sphere."""

from __future__ import annotations

import numpy as np
import pytest

from metastable.attention.nearby.order import curve_order


@pytest.mark.parametrize("d", [2, 3])
def test_the_order_is_a_permutation_of_near_neighbours(d):
    x = np.random.default_rng(0).normal(size=(4000, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    order = curve_order(x)
    assert sorted(order) == list(range(4000))
    steps = np.linalg.norm(np.diff(x[order], axis=0), axis=1)
    # On the circle the mean step is 2 pi/n; a Hilbert curve visits equal areas one after the other.
    typical = 2 * np.pi / 4000 if d == 2 else np.sqrt(4 * np.pi / 4000)
    assert steps.mean() < 1.5 * typical
    groups = x[order].reshape(-1, 8, d)
    radius = np.linalg.norm(groups - groups.mean(axis=1, keepdims=True), axis=2).max(axis=1)
    assert np.median(radius) < 4 * typical


def test_lengths_do_not_matter():
    x = np.random.default_rng(1).normal(size=(300, 3))
    assert np.array_equal(curve_order(x), curve_order(7.0 * x))
