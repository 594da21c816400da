"""Three rings around eight queries: sums over all keys to the tolerance, most of them in single precision."""

from __future__ import annotations

import numpy as np
import pytest

from metastable.attention.nearby.caps import measure_caps
from metastable.attention.nearby.lists import SHARE
from metastable.attention.nearby.order import curve_order
from metastable.attention.nearby.rings import CHAIN, SINGLE_SHARE, attend_rings


def sorted_tokens(n: int, seed: int, spread: float | None, masses: float | None) -> np.ndarray:
    """Keys (4, n) in the order of the curve, filled up to groups of eight; masses from `masses` to 1, or all 1."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    if spread is not None:
        x = rng.normal(size=(4, 3))[rng.integers(4, size=n) ** 2 // 3] + spread * x
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x = x[curve_order(x)]
    mass = np.ones(n) if masses is None else masses ** rng.uniform(size=n)
    keys = np.repeat(np.concatenate([x.T, [mass]])[:, -1:], -(-n // 8) * 8, axis=1)
    keys[3] = 0.0
    keys[:, :n] = np.concatenate([x.T, [mass]])
    return keys


def attended(keys, z, rtol, *, coarse):
    n = z.shape[1]
    mean, log_z = np.empty((n, 3)), np.empty(n)
    groups, leaves = measure_caps(keys, 3, 8), measure_caps(keys, 3, 64)
    given = keys, keys[:3].astype(np.float32), groups, leaves, z, rtol, coarse, mean, log_z
    return mean, log_z, attend_rings(0, -(-n // 8), *given), given


def dense(keys, z):
    scores = z.T @ keys[:3]
    top = scores.max(axis=1)
    weights = np.exp(scores - top[:, None]) * keys[3]
    total = weights.sum(axis=1)
    return (weights @ keys[:3].T) / total[:, None], top + np.log(total)


@pytest.mark.parametrize("beta", [3.0, 20.0, 64.0, 300.0, 2000.0, 1e6])
@pytest.mark.parametrize("spread", [None, 0.3, 0.01])
@pytest.mark.parametrize(("n", "masses"), [(1201, None), (1200, 0.5), (1207, 1e-12)])
@pytest.mark.parametrize("rtol", [1e-4, 1e-8, 1e-11])
def test_rows_are_the_sums_over_all_keys(beta, spread, n, masses, rtol):
    """Queries of many lengths, in directions of their own, numbers that are no multiples of eight nor of two."""
    rng = np.random.default_rng(2)
    keys = sorted_tokens(n, 3, spread, masses)
    z = np.ascontiguousarray(beta * (np.eye(3) + 0.2 * rng.normal(size=(3, 3))) @ keys[:3, :n])
    mean, log_z, _, _ = attended(keys, z, rtol, coarse=masses is None and rtol >= 1e-10)
    expected, expected_log = dense(keys, z)
    allowed = (SHARE + SINGLE_SHARE) * rtol + 1e-14 * beta + 1e-13 + 5e-12 * (rtol >= 1e-10)
    assert np.abs(log_z - expected_log).max() <= allowed
    assert np.linalg.norm(mean - expected, axis=1).max() <= 2 * allowed


def test_queries_that_are_no_neighbours_of_each_other():
    """Eight queries all around the sphere, some of them zero."""
    keys, rng = sorted_tokens(1200, 4, None, None), np.random.default_rng(5)
    z = 40 * rng.normal(size=(3, 200))
    z[:, ::7] = 0.0
    mean, log_z, _, _ = attended(keys, z, 1e-9, coarse=True)
    expected, expected_log = dense(keys, z)
    np.testing.assert_allclose(log_z, expected_log, atol=1e-9)
    np.testing.assert_allclose(mean, expected, atol=1e-9)


def test_a_lonely_query_beside_a_crowd_is_made_again():
    """Sums in single precision over most of the mass: their error is more than allowed, seen, and mended."""
    keys = sorted_tokens(1600, 6, None, None)
    keys[:3, 200:] = keys[:3, 200:201] + 0.05 * np.random.default_rng(7).normal(size=(3, 1400))
    keys[:3] /= np.linalg.norm(keys[:3], axis=0)
    keys = np.ascontiguousarray(keys[:, curve_order(keys[:3].T)])
    z = 30.0 * keys[:3]
    mean, log_z, (_, _, again), _ = attended(keys, z, 1e-9, coarse=True)
    expected, expected_log = dense(keys, z)
    assert again > 0
    np.testing.assert_allclose(log_z, expected_log, atol=0.4e-9 + 1e-12)
    np.testing.assert_allclose(mean, expected, atol=0.8e-9 + 1e-12)


def test_most_pairs_that_are_taken_are_in_single_precision_or_left_out():
    keys = sorted_tokens(2000, 8, None, None)
    _, _, (in_double, in_single, again), _ = attended(keys, 64.0 * keys[:3], 1e-9, coarse=True)
    assert in_double <= 0.2 * 2000**2 and 0.1 * 2000**2 <= in_single <= 0.25 * 2000**2 and again <= 0.05 * 2000**2


def test_pieces_of_whole_chains_give_the_same_digits():
    keys = sorted_tokens(1000, 9, None, None)
    mean, log_z, _, given = attended(keys, 50.0 * keys[:3], 1e-9, coarse=True)
    pieces, logs = np.empty_like(mean), np.empty_like(log_z)
    for first in range(0, 125, 2 * CHAIN):
        attend_rings(first, min(first + 2 * CHAIN, 125), *given[:-2], pieces, logs)
    np.testing.assert_array_equal(pieces, mean)
    np.testing.assert_array_equal(logs, log_z)
