"""Lists of caps and of pairs, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from metastable.attention.nearby.caps import measure_caps
from metastable.attention.nearby.order import curve_order
from metastable.attention.nearby.split import PLACES_OF_EIGHT, PLACES_OF_FOUR, best_run, caps_within, split_pairs


def sorted_keys(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return np.concatenate([x[curve_order(x)].T, rng.uniform(0.5, 1.0, (1, n))])


@pytest.mark.parametrize("angle", [0.02, 0.5, 1.4])
def test_caps_that_hold_a_key_within_the_angle_are_listed(angle):
    keys, c = sorted_keys(1200, seed=1), np.array([0.6, 0.0, 0.8])
    caps = measure_caps(keys, 3, 8)
    runs, out = np.array([0, 3, 4, 18]), np.empty(1300, dtype=np.int64)
    count = caps_within(
        caps.axis.ravel(), caps.cosine, caps.sine, runs, len(runs), *c, np.cos(angle), np.sin(angle),
        PLACES_OF_EIGHT, out,
    )  # fmt: skip
    looked = (8 * runs[:, None] + np.arange(8)).ravel()
    apart = np.arccos(np.clip(c @ caps.axis, -1, 1)) - np.arccos(np.clip(caps.cosine, -1, 1))
    assert out[:count].tolist() == [g for g in looked if g >= caps.runs or apart[g] < angle]


@pytest.mark.parametrize(("low", "high"), [(-3.0, 2.0), (1.0, 1.0), (-9.0, 9.0), (9.0, 9.0)])
def test_pairs_are_split_by_their_larger_score(low, high):
    keys, c, groups = sorted_keys(800, seed=2), np.array([3.0, -2.0, 1.0]), np.array([0, 1, 17, 40, 99])
    log_mass, of_centre = np.log2(keys[3]), np.zeros(800, dtype=np.float32)
    near, far, counts = np.empty(404, dtype=np.int64), np.empty(404, dtype=np.int64), np.empty(2, dtype=np.int64)
    split_pairs(
        keys.ravel(), 800, log_mass, groups, len(groups), *c, 0.5, low, high, PLACES_OF_FOUR, of_centre, near, far,
        counts,
    )  # fmt: skip
    s = c @ keys[:3]
    top = s.reshape(-1, 2).max(axis=1)
    looked = (4 * groups[:, None] + np.arange(4)).ravel()
    assert near[: counts[0]].tolist() == [e for e in looked if top[e] >= high]
    assert far[: counts[1]].tolist() == [e for e in looked if low < top[e] < high]
    seen = (8 * groups[:, None] + np.arange(8)).ravel()
    np.testing.assert_allclose(of_centre[seen], (s - 0.5 + log_mass)[seen], rtol=1e-6, atol=1e-6)


def test_the_best_run_is_that_of_the_largest_score():
    caps = measure_caps(sorted_keys(1000, seed=3), 3, 8)
    top, where = np.empty(8), np.empty(8, dtype=np.int64)
    for c in np.random.default_rng(4).normal(size=(50, 3)) * 30:
        best = best_run(caps.mean.ravel(), len(caps.log_mass), caps.log_mass, *c, top, where)
        assert best == np.argmax(c @ caps.mean + caps.log_mass)
