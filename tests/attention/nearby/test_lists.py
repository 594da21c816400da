"""Lists of groups hold all keys that count, and few others."""

from __future__ import annotations

import numpy as np
import pytest

from attention.nearby.nearby_tokens import sorted_tokens
from metastable.attention.nearby.caps import measure_caps
from metastable.attention.nearby.lists import attend_lists, tight
from metastable.attention.nearby.taylor import monomials


@pytest.mark.parametrize(("beta", "most"), [(1.0, 1.0), (60.0, 0.5), (2000.0, 0.15), (1e6, 0.1)])
@pytest.mark.parametrize("spread", [None, 0.3])
def test_rows_are_the_sums_over_all_keys(beta, most, spread):
    """Queries of many lengths, in directions of their own: to the tolerance, with few pairs."""
    n, d, rtol, rng = 1200, 2, 1e-8, np.random.default_rng(2)
    keys = sorted_tokens(n, d, seed=3, spread=spread)
    z = np.ascontiguousarray(beta * (np.eye(d) + 0.2 * rng.normal(size=(d, d))) @ keys[:d])
    mean, log_z = np.empty((n, d)), np.empty(n)
    groups, leaves = measure_caps(keys, d, 8), measure_caps(keys, d, 64)
    pairs = attend_lists(0, n // 8, keys, groups, leaves, z, rtol, mean, log_z)
    scores = z.T @ keys[:d]
    top = scores.max(axis=1)
    weights = np.exp(scores - top[:, None]) * keys[d]
    total = weights.sum(axis=1)
    rounding = 1e-14 * beta
    np.testing.assert_allclose(log_z, top + np.log(total), atol=rtol + rounding, rtol=1e-14)
    np.testing.assert_allclose(mean, (weights @ keys[:d].T) / total[:, None], atol=2 * rtol + rounding)
    if spread is None:
        assert pairs <= most * n * n


def test_polynomials_are_for_tight_clusters():
    for d in (2, 3):
        for spread, expected in ((0.3, False), (1e-4, True)):
            leaves = measure_caps(sorted_tokens(1024, d, seed=5, spread=spread), d, 64)
            assert tight(leaves, 100.0, 1e-9, monomials(d)) is expected
