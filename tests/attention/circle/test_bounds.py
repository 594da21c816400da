"""Bounds of interpolation on the circle hold against interpolation itself."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metastable.attention.circle.bounds import WIDER, least_order, steepest_key_error
from metastable.attention.circle.chebyshev import chebyshev_nodes
from metastable.attention.circle.keys import COARSEST, circle_cells


def interpolated(function, p, at):
    """The interpolant of a function on [-1, 1] at p Chebyshev nodes."""
    nodes = chebyshev_nodes(p)
    fitted = np.polynomial.chebyshev.Chebyshev.fit(nodes, function(nodes), p - 1, domain=[-1, 1])
    return fitted(at)


@pytest.mark.parametrize("p", [8, 16])
@pytest.mark.parametrize(("size", "h"), [(1.0, 0.2), (40.0, 0.02), (300.0, 0.005), (300.0, 0.001)])
def test_the_error_at_the_steepest_score_is_below_its_bound(p, size, h):
    """e^{size cos(theta)} over a cell of half width h, relative to its least value there."""
    at = np.linspace(-1, 1, 501)
    for centre in (0.0, 0.7, math.pi / 2, 2.5):

        def weight(s, centre=centre):
            return np.exp(size * (np.cos(centre + np.arcsin(s * math.sin(h))) - 1.0))

        exact = weight(at)
        miss = np.abs(interpolated(weight, p, at) - exact).max() / exact.min()
        assert miss <= steepest_key_error(h, size, p) + 1e-12 * exact.max() / exact.min()
    assert steepest_key_error(h, size, p) < 0.1


def test_bounds_grow_with_the_score_and_fall_with_the_width():
    assert steepest_key_error(0.1, 10.0, 16) < steepest_key_error(0.1, 100.0, 16)
    assert steepest_key_error(0.05, 100.0, 16) < steepest_key_error(0.1, 100.0, 16)
    assert steepest_key_error(0.05, 100.0, 16) < steepest_key_error(0.05, 100.0, 8)


@pytest.mark.parametrize("slope", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("rtol", [1e-4, 1e-9])
def test_the_least_order_is_enough_for_one_exponential(slope, rtol):
    """e^{slope t}, |t| <= 1: its range is 2 slope, its growth slope (a - 1)."""
    order = least_order(np.array([2 * slope]), np.array([slope]), np.array([0.0]), 0.0, rtol)
    at = np.linspace(-1, 1, 301)
    exact = np.exp(slope * at)
    miss = np.abs(interpolated(lambda t: np.exp(slope * t), order, at) - exact).max() / exact.min()
    assert miss <= 0.1 * rtol + 1e-13 * math.exp(2 * slope)
    tighter = least_order(np.array([2 * slope]), np.array([slope]), np.array([0.0]), 0.0, 1e-3 * rtol)
    assert tighter > order
    steeper = least_order(np.array([4 * slope]), np.array([2 * slope]), np.array([0.0]), 0.0, rtol)
    assert steeper >= order


def test_how_much_wider_the_widest_fine_cell_is():
    cells = circle_cells(14)
    widest = [
        cells.half[2**level - 2**COARSEST : 2 ** (level + 1) - 2**COARSEST].max() for level in range(COARSEST, 15)
    ]
    grown = [width * 2**step / widest[0] for step, width in enumerate(widest)]
    assert 1.07 < max(grown) <= WIDER
