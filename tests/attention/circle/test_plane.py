"""Queries anywhere in the plane, one by one or interpolated in angle and length."""

from __future__ import annotations

import numpy as np
import pytest

from attention.attention_reference import masses
from attention.circle.circle_tokens import circle, off_by
from metastable.attention.circle.keys import gather_keys
from metastable.attention.circle.plane import attend_plane


@pytest.mark.parametrize("n", [3, 20_000])
@pytest.mark.parametrize("sharpest", [0.5, 12.0, 90.0])
def test_any_lengths_down_to_zero(n, sharpest):
    """A few queries are summed one by one, many are interpolated: both within the stated error."""
    keys, mass = circle(3000, "clustered", 0), masses(3000, 1)
    lengths = np.random.default_rng(4).uniform(0.0, 1.0, size=(n, 1)) ** 3
    queries = lengths * circle(n, "uniform", 2).numpy()
    queries[0], queries[1] = 0.0, queries[1] / np.linalg.norm(queries[1])
    cells, _ = gather_keys(keys.numpy(), mass.numpy(), 9, 16)
    mean, log_partition, error = attend_plane(cells, queries, sharpest, sharpest, 1e-9)
    some = slice(None, None, max(n // 60, 1))
    assert off_by((mean[some], log_partition[some]), queries[some], keys, mass, sharpest) <= error + 1e-13
    assert error <= 1e-9
