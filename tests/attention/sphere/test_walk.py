"""The walk down the tree of keys: its bounds hold cell by cell, and so does their sum."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from attention.sphere.sphere_tokens import KINDS, masses, tokens
from metastable import sphere
from metastable.attention.sphere.cells import ORDERS
from metastable.attention.sphere.proxies import proxy_points
from metastable.attention.sphere.tree import key_tree
from metastable.attention.sphere.walk import descend, least_order, row_sums, row_top, unpack, walk

_TREE = key_tree(tokens("uniform", 6000, 4).numpy(), np.full(6000, 1.0 / 6000), ORDERS)


@given(log_beta=st.floats(-1.0, 4.0), direction=st.integers(0, 1000), cell=st.integers(0, 10_000))
@settings(max_examples=200, deadline=None)
def test_the_cell_bound_holds(log_beta, direction, cell) -> None:
    """The interpolation error of e^{<z, k>} at all keys of a cell is below what `least_order` promises."""
    tree = _TREE
    owners = np.flatnonzero(tree.order >= 0)
    cell = int(owners[cell % len(owners)])
    z = sphere.uniform(1, 3, seed=direction)[0].numpy() * 10.0**log_beta
    size, axis = float(np.linalg.norm(z)), tree.cone[cell, :3]
    along = float(z @ axis)
    angle = math.atan2(float(np.linalg.norm(z - along * axis)), along)
    keys, mass = tree.keys[:3, tree.start[cell] : tree.stop[cell]], tree.keys[3, tree.start[cell] : tree.stop[cell]]
    exact = (mass * np.exp(z @ keys - size)).sum()
    offset = tree.offset[cell]
    for p in tree.orders[: tree.order[cell] + 1]:
        needed, slope = least_order(0.0, along, size, angle, 0.0, size - along, tree.chart[cell], 0.0)
        at = np.empty((3, p * p))
        proxy_points(tree, cell, p, at)
        weights = tree.weights[0, offset : offset + p * p]
        offset += p * p
        # Mass 1 and G = e^{<z, c>} make the bound relative to the centre of the cell.
        log_bound = -slope * (p - needed) + along - size
        miss = abs((weights * np.exp(z @ at - size)).sum() - exact)
        assert miss <= mass.sum() * (math.exp(min(log_bound, 1.0)) + 1e-13)


@given(kind=st.sampled_from(KINDS), log_beta=st.floats(-1.0, 4.5), direction=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_the_first_guess_of_a_partition_is_a_bound_near_its_heaviest_key(kind, log_beta, direction) -> None:
    """Near in the sense of e^2: a guess far below would keep the walk from dropping anything."""
    x, m = tokens(kind, 3000, 2).numpy(), masses(3000, 2).numpy() + 1e-12
    tree = key_tree(x, m, ORDERS)
    z = sphere.uniform(1, 3, seed=direction)[0].numpy() * 10.0**log_beta
    reference = np.empty(3)
    guess = descend(tree, z, reference) + float(z @ reference)
    scores = np.log(m) + x @ z
    assert guess <= np.logaddexp.reduce(scores) + 1e-9
    assert guess >= scores.max() - 2.0 - 1e-9


@given(log_beta=st.floats(-1.0, 3.5), direction=st.integers(0, 1000), log_rtol=st.floats(-9.0, -2.0))
@settings(max_examples=40, deadline=None)
def test_what_the_walk_leaves_out_is_below_its_error(log_beta, direction, log_rtol) -> None:
    """For one query: the sum over the cells found is that over all keys, up to the error it returns."""
    z = sphere.uniform(1, 3, seed=direction)[0].numpy() * 10.0**log_beta
    reference, nowhere = np.empty(3), np.zeros(3)
    log_floor = descend(_TREE, z, reference)
    scratch = np.empty((2, 64), dtype=np.int64)
    found, count, size, error = walk(
        _TREE, z, reference, np.eye(3), nowhere, log_floor, math.log(10.0**log_rtol / 32.0), 1 << 60, scratch
    )
    seen = unpack(_TREE, found, count, size, reference)
    assert row_top(seen, z) <= (seen[:3].T @ z).max() + 1e-9
    total = row_sums(seen, z[0], z[1], z[2], log_floor)[3]
    exact = float((_TREE.keys[3] * np.exp(z @ (_TREE.keys[:3] - reference[:, None]) - log_floor)).sum())
    assert exact >= 1.0 - 1e-9  # the floor is a lower bound
    assert abs(total - exact) <= error + 1e-12 * exact


def test_the_walk_stops_when_too_many_points_are_needed() -> None:
    z = np.array([0.0, 0.0, 2000.0])
    reference = np.empty(3)
    log_floor = descend(_TREE, z, reference)
    scratch = np.empty((2, 64), dtype=np.int64)
    assert walk(_TREE, z, reference, np.eye(3), np.zeros(3), log_floor, -30.0, 3, scratch)[2] < 0
