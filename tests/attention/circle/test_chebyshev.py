"""Tables of Chebyshev interpolation: exact for polynomials of every order."""

from __future__ import annotations

import numpy as np
import pytest

from metastable.attention.circle.chebyshev import MOST, chebyshev_nodes, chebyshev_tables


@pytest.mark.parametrize("order", [1, 2, 3, 10, MOST])
def test_a_polynomial_is_its_own_interpolant(order):
    tables = chebyshev_tables()
    coefficients = np.random.default_rng(order).normal(size=order)
    nodes = tables.nodes[order, :order]
    np.testing.assert_array_equal(nodes, chebyshev_nodes(order))
    values = np.polynomial.chebyshev.chebval(nodes, coefficients)
    found = tables.transform[order, :order, :order] @ values
    np.testing.assert_allclose(found, coefficients, rtol=0, atol=1e-13)


def test_monomials_of_the_polynomials():
    x = np.linspace(-1, 1, 7)
    tables = chebyshev_tables()
    for k in (0, 1, 5, 12):
        np.testing.assert_allclose(
            np.polynomial.polynomial.polyval(x, tables.monomials[k]), np.cos(k * np.arccos(x)), atol=1e-11
        )
    assert tables.nodes.shape == (MOST + 1, MOST)
