"""Products with our own tiles against numpy's, of any shape, and as the dgemm that compiled code calls."""

import numpy as np
import pytest
from numba import njit

from metastable.attention.direct.matrix_product import multiply, multiply_part, multiply_turned
from metastable.attention.direct.wide_product import INNER, multiply_wide, own_product_address

SHAPES = [(1, 1, 1), (8, 24, 64), (13, 5, 7), (200, 200, 64), (100, 33, 384), (37, 50, INNER + 9), (4, 7, 2000)]
"""(m, n, k): whole tiles, edges of all kinds, and more terms than are summed at once."""


def matrix(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def allowed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rounding of sums in any order: k units of the sum of sizes."""
    return a.shape[1] * np.finfo(np.float64).eps * (np.abs(a) @ np.abs(b)) + 1e-300


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("added", [False, True])
def test_products_are_those_of_numpy(m, n, k, turned, added):
    a, b, before = matrix(m, k, seed=1), matrix(k, n, seed=2), matrix(m, n + 3, seed=3)
    held, c = (b.T.copy() if turned else b), before.copy()
    place = held.ctypes.data, held.shape[1], turned, c.ctypes.data, n + 3, added
    multiply_wide(m, n, k, a.ctypes.data, k, 1, *place)
    expected = a @ b + (before[:, :n] if added else 0.0)
    assert (np.abs(c[:, :n] - expected) <= allowed(a, b) + 1e-15 * np.abs(before[:, :n])).all()
    assert (c[:, n:] == before[:, n:]).all()  # nothing is written beyond the columns


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_it_is_a_dgemm_for_compiled_code(m, n, k):
    """All three ways in which products are called, one of them with A^T."""

    @njit
    def products(address, a, b, b_turned, a_turned, c, d, e):
        multiply(address, True, m, n, k, a.ctypes.data, b_turned.ctypes.data, c.ctypes.data, n)
        multiply_part(address, True, m, n, k, a.ctypes.data, k, b.ctypes.data, d.ctypes.data)
        multiply_turned(address, m, n, k, a_turned.ctypes.data, m, b.ctypes.data, e.ctypes.data)

    a, b = matrix(m, k, seed=4), matrix(k, n, seed=5)
    c, d, e = np.full((m, n), np.nan), np.ones((m, n)), np.ones((m, n))
    products(own_product_address(), a, b, b.T.copy(), a.T.copy(), c, d, e)
    for found, before in ((c, 0.0), (d, 1.0), (e, 1.0)):
        assert (np.abs(found - before - a @ b) <= allowed(a, b) + 1e-15).all()


def test_digits_do_not_depend_on_the_other_rows_and_columns():
    a, b = matrix(45, 70, seed=6), matrix(70, 61, seed=7)
    whole, part = np.empty((45, 61)), np.empty((3, 10))
    multiply_wide(45, 61, 70, a.ctypes.data, 70, 1, b.ctypes.data, 61, False, whole.ctypes.data, 61, False)
    some = b[:, 50:60].copy()
    multiply_wide(3, 10, 70, a[40:].ctypes.data, 70, 1, some.ctypes.data, 10, False, part.ctypes.data, 10, False)
    assert (part == whole[40:43, 50:60]).all()


def test_what_is_no_number_is_seen():
    a, b = matrix(9, 5, seed=8), matrix(5, 30, seed=9)
    a[3, 2] = np.inf
    c = np.empty((9, 30))
    multiply_wide(9, 30, 5, a.ctypes.data, 5, 1, b.ctypes.data, 30, False, c.ctypes.data, 30, False)
    assert not np.isfinite(c[3]).any() and np.isfinite(c[[0, 1, 2, 4, 8]]).all()
