"""Caps hold their keys, and no group that counts is missed."""

from __future__ import annotations

import numpy as np
import pytest

from attention.nearby.nearby_tokens import sorted_tokens
from metastable.attention.nearby.caps import look_at, measure_caps, reach_kernel, space_for


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
@pytest.mark.parametrize("spread", [None, 0.3, 1e-3])
@pytest.mark.parametrize("least", [-0.5, 0.2, 0.9, 0.9999])
def test_groups_that_are_left_out_have_no_key_that_counts(d, spread, least):
    n, rng = 1000, np.random.default_rng(4)
    keys = sorted_tokens(n, d, seed=2, spread=spread)
    queries = np.ascontiguousarray((np.eye(d) + 0.2 * rng.normal(size=(d, d))) @ keys[:d])
    groups, leaves = measure_caps(keys, d, 8), measure_caps(keys, d, 64)
    block, kept = space_for(groups, leaves), 0
    for start in range(0, n, 8):
        look_at(queries, start, block)
        block.least[:] = least
        chosen = block.kept[: reach_kernel(d)(groups, leaves, block)]
        assert (np.diff(chosen) > 0).all()
        cosines = queries[:, start : start + 8].T @ keys[:d] / block.size[:, None]
        assert set(np.flatnonzero((cosines > least).any(axis=0)) // 8) <= set(chosen)
        kept += len(chosen)
    assert least < 0.9999 or spread is not None or kept < 0.3 * (n / 8) ** 2
