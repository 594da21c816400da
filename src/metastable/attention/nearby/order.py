"""Tokens along a curve, so that neighbours in the order are neighbours on the sphere: angles, or a Hilbert curve.

On S^2 the octahedron |x| + |y| + |z| = 1, unfolded into a square, carries the curve.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from metastable.attention.diamond import diamond

_BITS = 16
"""Bits of each coordinate of the square: cells of 3e-5. Tokens of one cell are in any order, which costs nothing:
clusters so tight are one point to every expansion."""


def _automaton() -> np.ndarray:
    """[state, two bits of x and y each]: four bits of the place on the curve, and 16 times the next state."""
    step = np.array(
        [
            [(0, 3), (1, 0), (3, 1), (2, 0)],
            [(2, 1), (1, 1), (3, 0), (0, 2)],
            [(2, 2), (3, 3), (1, 2), (0, 1)],
            [(0, 0), (3, 2), (1, 3), (2, 3)],
        ]
    )
    """[state, 2 bit of x + bit of y]: (place in the quadrants, next state)."""
    table = np.empty((4, 16), dtype=np.int64)
    for state in range(4):
        for x in range(4):
            for y in range(4):
                first, between = step[state, 2 * (x >> 1) + (y >> 1)]
                second, after = step[between, 2 * (x & 1) + (y & 1)]
                table[state, 4 * x + y] = 4 * first + second + 16 * after
    return table


_TWO_BITS = _automaton()


def curve_order(points: np.ndarray) -> np.ndarray:
    """Row numbers of points (n, d), d = 2 or 3, none of them zero, in the order of the curve."""
    if points.shape[1] == 2:
        angle = np.empty(len(points))
        _angles(points, angle)
        return np.argsort(angle)
    place = np.empty(len(points), dtype=np.int64)
    _places(points, _TWO_BITS, place)
    return np.argsort(place)


@njit(cache=True, nogil=True, error_model="numpy")
def _angles(points: Any, angle: Any) -> None:
    for i in range(len(points)):
        angle[i] = diamond(points[i, 0], points[i, 1])


@njit(cache=True, nogil=True, error_model="numpy")
def _places(points: Any, table: Any, place: Any) -> None:
    """Places on the Hilbert curve."""
    last = (1 << _BITS) - 1
    for i in range(len(points)):
        x, y, z = points[i, 0], points[i, 1], points[i, 2]
        inverse = 1.0 / max(abs(x) + abs(y) + abs(z), 1e-300)
        x, y = x * inverse, y * inverse
        if z < 0.0:  # the lower half folds out over the edges of the square
            x, y = (1.0 - abs(y)) * (1.0 if x >= 0.0 else -1.0), (1.0 - abs(x)) * (1.0 if y >= 0.0 else -1.0)
        across = min(max(int((x + 1.0) * 0.5 * last), 0), last)
        up = min(max(int((y + 1.0) * 0.5 * last), 0), last)
        code, state = 0, 0
        for shift in range(_BITS - 2, -1, -2):
            entry = table[state, 4 * ((across >> shift) & 3) + ((up >> shift) & 3)]
            code = 16 * code + (entry & 15)
            state = entry >> 4
        place[i] = code
