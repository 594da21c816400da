"""Sums in single precision err by less than is stated."""

from __future__ import annotations

import numpy as np
import pytest

from metastable.attention.lanes import LANES
from metastable.attention.nearby.single_lanes import LEAST, PLACES, single_error, single_sums


@pytest.mark.parametrize(("of_centre", "of_queries"), [(0.0, 0.5), (20.0, 4.0), (60.0, 30.0)])
@pytest.mark.parametrize("n", [2, 200, 4000])
def test_sums_err_by_less_than_is_stated(of_centre, of_queries, n):
    """Exponents anywhere in their range, keys on the sphere, lists with gaps."""
    rng = np.random.default_rng(n)
    keys, queries = rng.normal(size=(3, n)), rng.normal(size=(3, LANES))
    keys /= np.linalg.norm(keys, axis=0)
    queries *= of_queries / np.linalg.norm(queries, axis=0)
    s = rng.uniform(-of_centre, 0.0, n)
    pairs = np.flatnonzero(rng.random(n // 2) < 0.7) if n > 2 else np.zeros(1, dtype=np.int64)
    sums, some = np.ones(4 * PLACES), np.empty(4 * PLACES, dtype=np.float32)
    places = np.repeat(queries, 2, axis=1).astype(np.float32).ravel()
    single = keys.astype(np.float32).ravel(), n, s.astype(np.float32)
    single_sums(*single, pairs, len(pairs), places, some, sums)
    found = (sums - 1.0).reshape(4, LANES, 2).sum(axis=2)
    held = np.concatenate([2 * pairs, 2 * pairs + 1])
    weights = np.exp2(s[held] + queries.T @ keys[:, held])
    total, error = weights.sum(axis=1), single_error(of_centre, of_queries)
    assert (np.abs(found[3] - total) <= error * total).all()
    assert (np.linalg.norm(found[:3] - keys[:, held] @ weights.T, axis=0) <= error * total).all()


def test_bound_of_the_exponential_holds_everywhere():
    """2^t for t in [-1/2, 1/2], by steps of 1e-6, and far below, where exponents are raised."""
    t = np.linspace(-0.5, 0.5, 1_000_001).astype(np.float32)
    keys, queries, pair = (
        np.zeros(6, dtype=np.float32),
        np.zeros(3 * PLACES, dtype=np.float32),
        np.zeros(1, dtype=np.int64),
    )
    some, worst = np.empty(4 * PLACES, dtype=np.float32), 0.0
    for at in range(0, len(t) - 1, 1000):
        sums = np.zeros(4 * PLACES)
        single_sums(keys, 2, t[at : at + 2].copy(), pair, 1, queries, some, sums)
        worst = max(
            worst, np.abs(sums[3 * PLACES : 3 * PLACES + 2] / np.exp2(t[at : at + 2].astype(float)) - 1.0).max()
        )
    assert worst <= 3.6e-6 + 3 * 2.0**-24
    sums = np.zeros(4 * PLACES)
    single_sums(keys, 2, np.array([-1e6, -3.0], dtype=np.float32), pair, 1, queries, some, sums)
    np.testing.assert_allclose(sums[3 * PLACES : 3 * PLACES + 2], [2.0**LEAST, 0.125], rtol=1e-5)
