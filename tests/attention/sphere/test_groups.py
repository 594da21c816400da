"""Boxes of queries against the cells they see: whatever way is taken, within the bound."""

from __future__ import annotations

import numpy as np
import pytest

from attention.sphere.sphere_tokens import masses, tokens
from metastable.attention import KERNELS, Operands
from metastable.attention.sphere.cells import ORDERS
from metastable.attention.sphere.groups import DONE, SPLIT, attend_groups
from metastable.attention.sphere.tree import key_tree, query_tree


@pytest.mark.parametrize("beta", [0.5, 30.0, 2000.0])
def test_groups_are_computed_within_their_bound_or_split(beta) -> None:
    """All boxes of the tree at once: those that are done agree with the dense kernel in all their rows."""
    x, m = tokens("uniform", 3000, 0), masses(3000, 1) + 1e-9
    tree, boxes = key_tree(x.numpy(), m.numpy(), ORDERS), query_tree(beta * x.numpy())
    exact = KERNELS["dense"](Operands(x, x, x, m, beta))
    exact_mean, exact_log = exact.mean.numpy()[boxes.order], exact.log_partition.numpy()[boxes.order]
    some = np.arange(0, len(boxes.start), 11)
    done = 0
    for group in some:
        mean, log_partition = np.zeros((3000, 3)), np.zeros(3000)
        status, errors = np.full(1, -1, dtype=np.int8), np.zeros(1)
        nothing = np.empty((3000, 0))
        attend_groups(tree, boxes, np.array([group]), 1e-7, 3000, mean, nothing, log_partition, status, errors)
        assert status[0] in (SPLIT, DONE)
        if boxes.children[group] == 0:
            assert status[0] == DONE
        if status[0] == DONE:
            rows = slice(boxes.start[group], boxes.stop[group])
            # Twice: the bound is that of g and of half the mean.
            allowed = 2.0 * errors[0] + 1e-12 * (1.0 + beta)
            assert np.linalg.norm(mean[rows] - exact_mean[rows], axis=1).max() <= allowed
            assert np.abs(log_partition[rows] - exact_log[rows]).max() <= allowed
            assert errors[0] <= 1e-7
            done += 1
    assert done > 5


def test_a_group_of_too_many_queries_is_split_unseen() -> None:
    x = tokens("uniform", 500, 0).numpy()
    tree, boxes = key_tree(x, np.full(500, 1 / 500), ORDERS), query_tree(x)
    status, errors = np.full(1, -1, dtype=np.int8), np.zeros(1)
    mean, nothing = np.empty((500, 3)), np.empty((500, 0))
    attend_groups(tree, boxes, np.array([0]), 1e-6, 100, mean, nothing, np.empty(500), status, errors)
    assert status[0] == SPLIT
