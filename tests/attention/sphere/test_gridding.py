"""Masses spread to a grid and fields read from it are transposes of each other."""

from __future__ import annotations

import numpy as np
import pytest

from metastable.attention.sphere.gridding import columns_of, interpolator, rows_of, sort_tokens, spreader
from metastable.attention.sphere.window import window


def sorted_tokens(n, fine, seed):
    rng = np.random.default_rng(seed)
    theta, phi = rng.uniform(0, fine / 2, n), rng.uniform(0, fine, n)
    order, row_start = np.empty(n, dtype=np.int64), np.empty(fine // 2 + 3, dtype=np.int64)
    sorted_theta, sorted_phi = np.empty(n), np.empty(n)
    sort_tokens(theta, phi, fine, order, sorted_theta, sorted_phi, row_start)
    return theta, phi, order, sorted_theta, sorted_phi, row_start


def test_tokens_are_sorted_by_the_first_node_they_touch() -> None:
    theta, phi, order, sorted_theta, sorted_phi, row_start = sorted_tokens(500, 20, 0)
    np.testing.assert_array_equal(sorted_theta, theta[order])
    np.testing.assert_array_equal(sorted_phi, phi[order])
    bins = np.ceil(sorted_theta) * 22 + np.ceil(sorted_phi)
    assert (np.diff(bins) >= 0).all()
    for row in range(len(row_start) - 1):
        assert (np.ceil(sorted_theta[row_start[row] : row_start[row + 1]]) == row).all()
    assert row_start[-1] == 500


@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize("columns", [1, 4])
def test_interpolation_is_the_transpose_of_spreading(width, columns) -> None:
    """sum over nodes of grid times field = sum over tokens of mass times interpolated field."""
    fine, n = 40, 300
    kept = window(width, 2.0, fine)
    degree = len(kept.table) - 1
    _, _, order, theta, phi, _ = sorted_tokens(n, fine, 1)
    rng = np.random.default_rng(2)
    mass = rng.uniform(size=(n, columns))
    grids = np.zeros((columns, rows_of(fine, width), columns_of(fine, width)))
    spreader(width, degree, columns)(theta, phi, order, mass, 0, n, kept.table, grids)
    fields = rng.uniform(0.5, 1.0, size=(grids.shape[1], 4, grids.shape[2]))
    mean, total, plain = np.empty((n, 3)), np.empty(n), np.empty((n, 3))
    interpolator(width, degree)(theta, phi, order, 0, n, kept.table, fields, mean, total)
    three = np.ascontiguousarray(fields[:, :3])
    interpolator(width, degree, 3, divided=False)(theta, phi, order, 0, n, kept.table, three, plain, total)
    np.testing.assert_allclose(plain, mean * total[:, None], rtol=1e-13)
    for grid, m in zip(grids, mass.T, strict=True):
        for c in range(3):
            assert (grid * fields[:, c]).sum() == pytest.approx(m @ plain[:, c], rel=1e-12)
        assert (grid * fields[:, 3]).sum() == pytest.approx(m @ total, rel=1e-12)
