"""Trees of keys and queries: every token once, in boxes and cones that hold it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attention.sphere.sphere_tokens import KINDS, masses, tokens
from metastable.attention.sphere.cells import ORDERS
from metastable.attention.sphere.tree import KEY_LEAF, QUERY_LEAF, key_tree, query_tree


def check_cells(tree, n, leaf) -> None:
    """Children partition their parent; leaves are small or cannot be split."""
    assert tree.start[0] == 0 and tree.stop[0] == n
    inner = np.flatnonzero(tree.children)
    for cell in inner[:: max(len(inner) // 50, 1)]:
        parts = slice(tree.child[cell], tree.child[cell] + tree.children[cell])
        assert tree.start[parts][0] == tree.start[cell] and tree.stop[parts][-1] == tree.stop[cell]
        np.testing.assert_array_equal(tree.start[parts][1:], tree.stop[parts][:-1])
        assert tree.children[cell] >= 2 and tree.stop[cell] - tree.start[cell] > leaf
    leaves = tree.children == 0
    assert (tree.stop - tree.start)[leaves].sum() == n


@pytest.mark.parametrize("kind", KINDS)
def test_cells_of_keys_hold_their_keys(kind) -> None:
    x, m = tokens(kind, 2000, 0).numpy(), masses(2000, 1).numpy() + 1e-12
    tree = key_tree(x, m, ORDERS)
    check_cells(tree, 2000, KEY_LEAF)
    for cell in range(0, len(tree.start), 7):
        keys = tree.keys[:, tree.start[cell] : tree.stop[cell]]
        total = keys[3].sum()
        assert math.exp(tree.log_mass[cell]) == pytest.approx(total, rel=1e-12)
        np.testing.assert_allclose(tree.mean[cell], (keys[:3] * keys[3]).sum(axis=1) / total, atol=1e-12)
        if tree.cone[cell, 3] < math.pi:
            chord = np.linalg.norm(keys[:3] - tree.cone[cell, :3, None], axis=0)
            assert (2.0 * np.arcsin(0.5 * chord) <= tree.cone[cell, 3] * (1 + 1e-9) + 1e-12).all()
    given = np.vstack([x.T, m])
    together = np.lexsort(tree.keys)
    np.testing.assert_array_equal(tree.keys[:, together], given[:, np.lexsort(given)])


@pytest.mark.parametrize("kind", KINDS)
def test_boxes_of_queries_hold_every_query_once(kind) -> None:
    points = 30.0 * tokens(kind, 1500, 2).numpy()
    tree = query_tree(points)
    check_cells(tree, 1500, QUERY_LEAF)
    np.testing.assert_array_equal(tree.points.T, points[tree.order])
    assert np.array_equal(np.sort(tree.order), np.arange(1500))


def test_one_query_and_equal_queries_make_one_cell() -> None:
    for points in (np.ones((1, 3)), np.zeros((100, 3))):
        tree = query_tree(points)
        assert len(tree.start) == 1 and tree.stop[0] == len(points)
