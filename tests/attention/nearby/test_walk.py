"""Leaves that are neither left out nor polynomials hold all that counts."""

from __future__ import annotations

import numpy as np
import pytest

from metastable.attention.nearby.order import curve_order
from metastable.attention.nearby.taylor import monomials
from metastable.attention.nearby.tree import levels_for, measure_groups, measure_nodes
from metastable.attention.nearby.walk import rows_kernel, walk_kernel


@pytest.mark.parametrize(("beta", "expected"), [(0.3, 0.0), (300.0, 0.4)])
def test_pairs_that_are_left(beta, expected):
    """Uniform tokens on the circle: one polynomial for small beta, neighbours for large beta."""
    rng, n = np.random.default_rng(0), 1024
    x = rng.normal(size=(n, 2))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x = np.ascontiguousarray(x[curve_order(x)].T)
    keys, z = np.concatenate([x, np.full((1, n), 1.0)]), np.ascontiguousarray(beta * x)
    groups = measure_groups(keys, 2)
    nodes = measure_nodes(keys, groups, z, levels_for(n))
    floors, sums = np.empty(n), np.zeros((3, n))
    left = walk_kernel(2)(keys, z, nodes, monomials(2), 1e-8, floors, sums)
    exact = np.log(np.exp(z.T @ x - beta).sum(axis=1)) + beta
    assert (floors <= exact + 1e-10).all() and (floors > exact - 40).all()
    assert left.mean() <= expected
    mean, log_z = np.empty((n, 2)), np.empty(n)
    pairs = rows_kernel(2)(0, len(left), keys, groups, z, nodes, left, 1e-8, floors, sums, mean, log_z)
    assert pairs <= left.sum() * 64**2 and (pairs > 0) == (expected > 0)
    np.testing.assert_allclose(log_z, exact, atol=1e-8)
