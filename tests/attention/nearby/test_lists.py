"""Lists of groups hold all keys that count, and few others."""

from __future__ import annotations

import numpy as np
import pytest

from metastable.attention.nearby.lists import lists_kernel, measure_caps, tight
from metastable.attention.nearby.order import curve_order
from metastable.attention.nearby.taylor import monomials


def sorted_tokens(n: int, d: int, seed: int, spread: float | None = None) -> np.ndarray:
    """Keys (d + 1, n) with masses from 1/2 to 1, in the order of the curve; around four points with `spread`."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    if spread is not None:
        x = rng.normal(size=(4, d))[rng.integers(4, size=n)] + spread * x
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x = x[curve_order(x)]
    return np.concatenate([x.T, rng.uniform(0.5, 1.0, (1, n))])


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("spread", [None, 0.3, 1e-3])
def test_caps_hold_their_keys(d, spread):
    keys = sorted_tokens(1000, d, seed=1, spread=spread)
    for length in (8, 64):
        caps = measure_caps(keys, d, length)
        assert caps.runs == -(-1000 // length) and len(caps.cosine) % 8 == 0
        for run in range(caps.runs):
            held = keys[:, run * length : (run + 1) * length]
            np.testing.assert_allclose(caps.mean[:, run], np.average(held[:d], axis=1, weights=held[d]), atol=1e-14)
            if caps.sine[run] < 2:
                assert (held[:d].T @ caps.axis[:, run] >= caps.cosine[run]).all()


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize(("beta", "most"), [(1.0, 1.0), (60.0, 0.5), (2000.0, 0.15), (1e6, 0.1)])
@pytest.mark.parametrize("spread", [None, 0.3])
def test_rows_are_the_sums_over_all_keys(d, beta, most, spread):
    """Queries of many lengths, in directions of their own: to the tolerance, with few pairs."""
    n, rtol, rng = 1200, 1e-8, np.random.default_rng(2)
    keys = sorted_tokens(n, d, seed=3, spread=spread)
    z = np.ascontiguousarray(beta * (np.eye(d) + 0.2 * rng.normal(size=(d, d))) @ keys[:d])
    mean, log_z = np.empty((n, d)), np.empty(n)
    if coarse := spread is not None:
        keys[d] = 1.0
    groups, leaves = measure_caps(keys, d, 8), measure_caps(keys, d, 64)
    pairs = lists_kernel(d)(0, n // 8, keys, groups, leaves, z, rtol, coarse, mean, log_z)
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
