"""Polynomials in vector registers, and the private interfaces of numba and llvmlite that they need."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from metastable.attention.circle.row_polynomials import four_polynomials, polynomials_to_row

TABLE = np.random.default_rng(0).normal(size=(8, 8))
add_row = polynomials_to_row(TABLE)


@njit
def add(array, offset, x, m):
    add_row(array, offset, x, m)


@njit
def four(array, offset, order, x, out, place):
    four_polynomials(array, offset, order, x, out, place)


def test_a_row_of_eight_polynomials_is_added():
    """numba's `make_array` and llvmlite's vectors are private: an upgrade that breaks them fails here."""
    array = np.arange(24.0)
    expected = array.copy()
    expected[8:16] += 0.3 * np.polynomial.polynomial.polyval(-0.7, TABLE)
    add(array, 8, -0.7, 0.3)
    np.testing.assert_allclose(array, expected, rtol=1e-14)


@pytest.mark.parametrize("order", [1, 2, 3, 11])
def test_four_polynomials_of_any_order(order):
    """Loops of basic blocks that llvmlite appends: an upgrade that breaks them fails here."""
    rng = np.random.default_rng(order)
    table, out = rng.normal(size=(order + 2, 4)), np.full(12, 5.0)
    four(table.ravel(), 4, order, 0.6, out, 4)
    np.testing.assert_allclose(out[4:8], np.polynomial.polynomial.polyval(0.6, table[1 : 1 + order]), rtol=1e-13)
    assert (np.delete(out, range(4, 8)) == 5.0).all()
