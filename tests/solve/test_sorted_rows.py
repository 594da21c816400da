"""Passes over sorted tokens against the same in plain numpy."""

import numpy as np
import pytest

from metastable.solve.sorted_rows import largest_error, moved, sorted_columns, unsorted_rows, velocities


def drawn(*shape, seed):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize(("n", "d"), [(1, 2), (600, 3), (1030, 2)])
def test_stages_and_velocities_are_those_of_the_formulas(n, d):
    x, slopes, weights, B, V = (
        drawn(d, n, seed=1), drawn(3, d, n, seed=2), np.array([0.5, 0.0, -0.2]), drawn(d, d, seed=3),
        drawn(d, d, seed=4),
    )  # fmt: skip
    keys, z, length = np.zeros((d + 1, -(-n // 8) * 8)), np.empty((d, n)), np.empty(n)
    moved(x, slopes, weights, B, keys, z, length)
    y = x + np.einsum("s,sdn->dn", weights, slopes)
    np.testing.assert_allclose(length, np.linalg.norm(y, axis=0), rtol=1e-14)
    y /= length
    np.testing.assert_allclose(keys[:d, :n], y, rtol=1e-13, atol=1e-15)
    assert (keys[:d, n:] == keys[:d, n - 1 : n]).all()
    np.testing.assert_allclose(z, B.T @ y, rtol=1e-12, atol=1e-14)
    mean, out = drawn(n, d, seed=5), np.empty((d, n))
    velocities(mean, V, keys, out)
    field = V @ mean.T
    np.testing.assert_allclose(out, field - (field * y).sum(0) * y, rtol=1e-12, atol=1e-13)
    errors = drawn(2, 3, seed=6)
    e, f = (np.einsum("s,sdn->dn", row, slopes) for row in errors)
    e2, f2 = ((part - (part * y).sum(0) * y).__pow__(2).sum(0) for part in (e, f))
    assert abs(largest_error(keys, slopes, errors, 0.01) / (e2 / np.sqrt(e2 + 0.01 * f2)).max() - 1) < 1e-12
    slopes[1, 0, n // 2] = np.nan
    assert largest_error(keys, slopes, errors, 0.01) == np.inf


def test_rows_come_back_from_columns():
    rows, order = drawn(50, 3, seed=7), np.random.default_rng(8).permutation(50)
    columns, back = np.empty((3, 50)), np.empty((50, 3))
    sorted_columns(rows, order, columns)
    assert (columns == rows[order].T).all()
    unsorted_rows(columns, order, back)
    assert (back == rows).all()
