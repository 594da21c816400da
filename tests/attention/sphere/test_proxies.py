"""Proxies of cells of keys: they integrate polynomials of the face coordinates exactly, and lie on the sphere."""

from __future__ import annotations

import numpy as np
import pytest

from attention.sphere.sphere_tokens import masses, tokens
from metastable.attention.sphere.cells import ORDERS
from metastable.attention.sphere.proxies import chebyshev, lagrange, proxy_points
from metastable.attention.sphere.tree import key_tree


def test_cells_reproduce_polynomials_of_the_face_coordinates_exactly() -> None:
    """Proxies, inherited moments and lower orders all integrate degree p - 1 in each face coordinate."""
    x, m = tokens("uniform", 20_000, 9).numpy(), masses(20_000, 9).numpy() + 1e-6
    tree = key_tree(x, m, ORDERS)
    checked = 0
    for cell in np.flatnonzero(tree.order >= 0)[::7]:
        face, offset = tree.face[cell] // 2, tree.offset[cell]
        keys = tree.keys[:, tree.start[cell] : tree.stop[cell]]
        for p in tree.orders[: tree.order[cell] + 1]:
            at = np.empty((3, p * p))
            proxy_points(tree, cell, p, at)
            weights = tree.weights[0, offset : offset + p * p]
            offset += p * p
            one, two = (face + 1) % 3, (face + 2) % 3
            left = (weights * (at[one] / at[face]) ** (p - 1) * (at[two] / at[face]) ** 2).sum()
            right = (keys[3] * (keys[one] / keys[face]) ** (p - 1) * (keys[two] / keys[face]) ** 2).sum()
            assert left == pytest.approx(right, rel=1e-9, abs=1e-13)
            checked += 1
    assert checked > 50


def test_proxies_are_unit_vectors_inside_the_cone_of_their_cell() -> None:
    tree = key_tree(tokens("clustered", 3000, 1).numpy(), masses(3000, 1).numpy() + 1e-9, ORDERS)
    for cell in np.flatnonzero(tree.order >= 0)[::5]:
        at = np.empty((3, 64))
        proxy_points(tree, cell, 8, at)
        np.testing.assert_allclose((at**2).sum(axis=0), 1.0, rtol=1e-14)
        angle = np.arccos(np.clip(tree.cone[cell, :3] @ at, -1.0, 1.0))
        assert (angle <= tree.cone[cell, 3] + 1e-7).all()


@pytest.mark.parametrize("p", [1, 2, 6, 23])
def test_lagrange_polynomials_are_one_at_their_node(p) -> None:
    nodes = np.cos((np.arange(p) + 0.5) * np.pi / p)
    values = np.empty((p, p))
    for node, row in zip(nodes, values, strict=True):
        chebyshev(node, row)
    np.testing.assert_allclose(lagrange(p) @ values.T, np.eye(p), atol=1e-13)
