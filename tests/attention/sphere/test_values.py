"""Other values of what a box sees: row by row, by an expansion, and the weights that bound both."""

from __future__ import annotations

import numpy as np
import pytest

from attention.sphere.test_expansion import box
from metastable.attention.sphere.expansion import expand, orders_for
from metastable.attention.sphere.values import expand_values, largest_weights, value_rows


def with_values(seed, widths, columns):
    seen, centre, frame, _, log_floor, points, keys = box(seed, widths)
    values = np.random.default_rng(seed).standard_normal((columns, seen.shape[1]))
    values /= np.linalg.norm(values, axis=0).max()
    exact = seen[3] * np.exp(points.T @ keys)
    mean = exact @ values.T / exact.sum(axis=1)[:, None]
    return np.vstack((seen, values * seen[3])), centre, frame, log_floor, points, mean


@pytest.mark.parametrize("columns", [1, 4])
def test_rows_and_expansions_give_the_means_of_the_values(columns) -> None:
    widths = np.array([1.0, 0.6, 0.02])
    seen, centre, frame, log_floor, points, exact = with_values(3, widths, columns)
    found = np.empty((40, columns))
    for far in (False, True):
        value_rows(seen, points, 0, 40, log_floor, far, found)
        np.testing.assert_allclose(found, exact, atol=1e-13)
    for tolerance in (1e-4, 1e-8):
        orders, bound = orders_for(largest_weights(seen), centre, frame, widths, log_floor, tolerance)
        partition = expand(seen, 3, centre, frame, widths, log_floor, orders)
        expand_values(seen, partition, orders, points, 0, 40, centre, frame, widths, log_floor, found)
        assert np.linalg.norm(found - exact, axis=1).max() <= 2.0 * bound + 1e-12 <= 2.1 * tolerance


def test_weights_that_bound_are_those_of_masses_or_values() -> None:
    seen = np.arange(-10.0, 14.0).reshape(6, 4)
    sized = largest_weights(seen)
    assert np.array_equal(sized[:3], seen[:3])
    np.testing.assert_allclose(sized[3], np.maximum(np.abs(seen[3]), np.hypot(seen[4], seen[5])))
