"""What is known of nodes and groups bounds all of their tokens."""

from __future__ import annotations

import numpy as np
import pytest

from metastable.attention.nearby.tree import levels_for, measure_groups, measure_nodes, span, weighted_floor


def setting(d: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    keys = rng.normal(size=(d, n))
    keys /= np.linalg.norm(keys, axis=0)
    keys = keys[:, np.argsort(np.arctan2(keys[1], keys[0]))]
    return np.concatenate([keys, rng.random((1, n))]), 20 * keys + rng.normal(size=(d, n))


@pytest.mark.parametrize("d", [2, 3])
def test_every_key_is_in_the_ball_and_the_cone_of_its_group(d):
    keys, _ = setting(d, 160)
    groups = measure_groups(keys, d)
    for g in range(20):
        own, mass = keys[:d, 8 * g : 8 * g + 8], keys[d, 8 * g : 8 * g + 8]
        np.testing.assert_allclose(groups.mean[:, g], (own * mass).sum(axis=1) / mass.sum())
        assert np.exp(groups.log_mass[g]) == pytest.approx(mass.sum())
        assert np.linalg.norm(own - groups.mean[:, g : g + 1], axis=0).max() <= groups.radius[g] * (1 + 1e-12)
        assert (groups.axis[:, g] @ own).min() >= groups.cosine[g]


@pytest.mark.parametrize("d", [2, 3])
def test_floors_and_radii_of_nodes(d):
    keys, queries = setting(d, 400)
    levels = levels_for(400)
    nodes = measure_nodes(keys, measure_groups(keys, d), queries, levels)
    assert levels == 3 and len(nodes.floor) == 15
    exact = np.log((keys[d] * np.exp(queries.T @ keys[:d])).sum(axis=1))
    for level in range(levels + 1):
        for cell in range(1 << level):
            node = (1 << level) - 1 + cell
            first, last = span(cell, level, 50)
            rows = slice(8 * first, 8 * last)
            mine = queries[:, rows] - nodes.z_centre[node][:, None]
            assert np.linalg.norm(mine, axis=0).max() == pytest.approx(nodes.z_radius[node])
            own = keys[:d, rows] - nodes.k_centre[node][:, None]
            assert np.linalg.norm(own, axis=0).max() == pytest.approx(nodes.k_radius[node])
            assert np.exp(nodes.log_mass[node]) == pytest.approx(keys[d, rows].sum())
            assert (exact[rows] >= nodes.floor[node] + nodes.mean[node] @ mine - 1e-10).all()


def test_a_floor_from_scores_that_are_far_away_is_less():
    means, mean = np.array([[1.0, 0.0], [0.0, 1.0]]), np.empty(2)
    assert weighted_floor(np.array([2.0, 2.0]), 2, 0.0, means, mean) == pytest.approx(2 + np.log(2))
    np.testing.assert_allclose(mean, 0.5)
    assert weighted_floor(np.array([5000.0, 0.0]), 2, 0.0, means, mean) < 5000.0
