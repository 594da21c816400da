"""Eight queries against groups of keys, both ways, against the sums written out."""

from __future__ import annotations

import numpy as np
import pytest

from attention.nearby.nearby_tokens import Transpose, sorted_tokens
from metastable.attention.nearby.lanes_adjoint import ROWS, coarse_sums_both_ways, sums_both_ways


@pytest.mark.parametrize(("way", "error"), [(sums_both_ways, 1e-15), (coarse_sums_both_ways, 2e-12)])
def test_sums_are_those_written_out(way, error):
    keys = sorted_tokens(40, 3, seed=1)
    problem = Transpose(keys, np.ascontiguousarray(5.0 * keys[:3, 3:11]), seed=2, shifted=False)
    rows = np.concatenate(
        [
            problem.z * np.log2(np.e),
            -problem.log_partition[None] * np.log2(np.e),
            problem.cotangent,
            -problem.shift[None],
            problem.z,
        ]
    )
    assert rows.shape == (ROWS, 8)
    flat = np.ascontiguousarray(rows.T).ravel()
    sums, sent = np.zeros(8 * 3 * 8), np.zeros((3, 40))
    for first, last in ((0, 16), (16, 16), (16, 40)):
        way(keys.ravel(), 40, first, last, flat, sums, sent.ravel())
    by_query = sums.reshape(8, 3, 8).sum(axis=2).T
    assert max(problem.errors(by_query, sent)) < error
    np.testing.assert_allclose(sent, problem.by_key, atol=100 * error)


def test_scores_far_below_the_partition_weigh_nothing():
    keys = sorted_tokens(8, 3, seed=3)
    rows = np.zeros((8, ROWS))
    rows[:, 3], rows[:, 4:8] = -1e5, 1.0
    sums, sent = np.zeros(8 * 3 * 8), np.zeros(3 * 8)
    sums_both_ways(keys.ravel(), 8, 0, 8, rows.ravel(), sums, sent)
    assert max(np.abs(sums).max(), np.abs(sent).max()) < 1e-290
