"""Sums over proxies: those of the keys themselves, with a shift where exponents would overflow."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attention.attention_reference import exact, masses
from attention.circle.circle_tokens import circle
from metastable.attention.circle.keys import gather_keys
from metastable.attention.circle.patch import Patches, scan
from metastable.attention.circle.proxy_sums import proxy_sums, shifted_proxies, sum_alone


def one_patch(size, level=6):
    """A patch of one direction, (0.6, 0.8), and one length."""
    return Patches(
        np.array([[0.6, 0.8]]), np.array([0.0]), np.array([size]), np.array([size]), np.array([1]), level
    )


@pytest.mark.parametrize("size", [0.5, 30.0, 500.0])
@pytest.mark.parametrize("arrangement", ["uniform", "clustered"])
def test_sums_over_the_proxies_that_matter_are_those_over_all_keys(size, arrangement):
    x, m = circle(2000, arrangement, 0).numpy(), masses(2000, 1).numpy()
    keys, _ = gather_keys(x, m, 10, 16)
    patches, rtol = one_patch(size), 1e-9
    best, cells, log_share = scan(keys, patches, 0, rtol)
    u = keys.cells.centre[best]
    dx, dy, w, error = shifted_proxies(keys, patches, 0, cells, log_share, u, rtol)
    z = size * patches.direction[0]
    sums = proxy_sums(z[0], z[1], dx, dy, w)
    weight = m * np.exp((x - u) @ z)
    wanted = weight.sum(), *(weight @ (x - u))
    assert error <= 0.2 * rtol
    np.testing.assert_allclose(sums, wanted, rtol=0, atol=(error + 0.1 * rtol) * wanted[0])


def test_queries_alone_agree_with_the_dense_formula():
    """Only the rows of the marked patches are written."""
    x, m = circle(1500, "gap", 0).numpy(), masses(1500, 1).numpy()
    keys, _ = gather_keys(x, m, 10, 16)
    patches = Patches(*(np.concatenate([part, part]) for part in one_patch(700.0)[:5]), 6)
    queries = np.array([[0.6, 0.8], [0.6, 0.8], [0.6, 0.8]])
    mean, log_partition = np.full((3, 2), 9.0), np.full(3, 9.0)
    where, alone = np.array([1, 0, 1], dtype=np.int32), np.array([False, True])
    error = sum_alone(keys, patches, queries, 700.0, where, alone, 1e-9, mean, log_partition)
    expected, expected_log = exact(queries[:1], x, x, m, 700.0)
    for row in (0, 2):
        assert np.linalg.norm((mean[row] - expected[0]).astype(float)) <= error + 1e-13
        assert abs(float(log_partition[row] - expected_log[0])) <= error + 1e-12
    assert mean[1].tolist() == [9.0, 9.0] and log_partition[1] == 9.0
    assert sum_alone(keys, patches, queries, 700.0, where, ~(alone | True), 1e-9, mean, log_partition) == 0.0
    assert math.isfinite(error) and error <= 1e-9
