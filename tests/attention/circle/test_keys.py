"""Cells of keys on the circle: they cover it, and their proxies stand for the keys at every level."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attention.attention_reference import masses
from attention.circle.circle_tokens import circle
from metastable.attention.circle.keys import COARSEST, EMPTY, circle_cells, find_cells, gather_keys


def test_proxies_carry_the_mass():
    """Constants are interpolated exactly: every level carries the mass of all keys."""
    x, m = circle(3000, "uniform", 0).numpy(), masses(3000, 0).numpy()
    found, off_circle = gather_keys(x, m, 8, 16)
    assert off_circle < 1e-14
    for level in range(COARSEST, 9):
        first = 2**level - 2**COARSEST
        np.testing.assert_allclose(found.weight[first : first + 2**level].sum(), m.sum(), rtol=1e-13)


def test_cells_cover_the_circle():
    cells = circle_cells(9)
    for level in range(COARSEST, 10):
        first = 2**level - 2**COARSEST
        assert cells.half[first : first + 2**level].sum() == pytest.approx(math.pi, rel=1e-14)


@pytest.mark.parametrize("p", [8, 16])
def test_proxies_stand_for_the_keys_at_every_level(p):
    """sum_a W_a e^{<z, k_a>} = sum_j m_j e^{<z, k_j>}, the better the finer the cells."""
    x, m = circle(500, "uniform", 3).numpy(), masses(500, 3).numpy()
    found, _ = gather_keys(x, m, 8, p)
    z = np.array([7.0, -4.0])
    exact = (m * np.exp(x @ z)).sum()
    misses = []
    for level in range(COARSEST, 9):
        first = 2**level - 2**COARSEST
        here = slice(first, first + 2**level)
        along = found.nodes[None, :] * found.cells.sine[here, None]
        up = np.sqrt(1.0 - along**2)
        c = found.cells.centre[here]
        x_a, y_a = c[:, :1] * up - c[:, 1:] * along, c[:, 1:] * up + c[:, :1] * along
        misses.append(abs((found.weight[here] * np.exp(z[0] * x_a + z[1] * y_a)).sum() / exact - 1))
    assert misses[-1] < 1e-13
    assert misses[0] < (1e-5 if p == 8 else 1e-12)


def test_empty_cells_have_a_finite_logarithm():
    found, _ = gather_keys(circle(100, "point", 0).numpy(), np.ones(100), 6, 8)
    occupied = found.log_mass > EMPTY
    assert occupied.sum() == 3  # one cell per level
    np.testing.assert_allclose(found.log_mass[occupied], math.log(100.0), rtol=1e-12)
    assert np.isfinite(found.log_mass).all()


def test_keys_are_found_in_their_cells():
    x, count = circle(2000, "uniform", 5).numpy(), 64
    cell = np.empty(2000, dtype=np.int32)
    assert find_cells(x, 1.0, 0.0, 1.0, count, cell) < 1e-15
    cells, first = circle_cells(6), 2**6 - 2**COARSEST
    cosine = np.einsum("ij,ij->i", x, cells.centre[first + cell])
    assert (np.arccos(np.minimum(cosine, 1.0)) <= cells.half[first + cell] + 1e-7).all()
    assert find_cells(1.1 * x, 1.0, 0.0, 1.0, count, cell) == pytest.approx(0.21, rel=1e-12)
