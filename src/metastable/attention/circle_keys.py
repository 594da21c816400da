"""Keys on the circle, gathered into cells: p proxy keys per cell stand for all keys in it, at every level.

Over one cell, e^{<z, k(theta)>} k(theta) is interpolated at p Chebyshev nodes k_a, so that

    sum_j m_j e^{<z, k_j>} k_j = sum_a W_a e^{<z, k_a>} k_a,    W_a = sum_j m_j L_a(s_j),

with an error relative to the (positive) sum of the cell. Cells are dyadic in the "diamond angle" y / (|x| + |y|),
which costs a division instead of an arctangent; the coordinate in a cell is s = sin(theta - centre) / sin(half).
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from metastable.attention.exp2 import REDUCTION
from metastable.threads import over_rows

COARSEST = 4
"""Level of the coarsest cells: level l cuts the circle into 2^l of them."""


class Cells(NamedTuple):
    """Geometry of the cells of levels COARSEST..finest; cell c of level l has index 2^l - 2^COARSEST + c."""

    centre: np.ndarray
    """(cells, 2) unit vectors."""
    half: np.ndarray
    """(cells,) half widths in radians."""


class KeyCells(NamedTuple):
    """Proxy weights of the keys in all cells."""

    cells: Cells
    weight: np.ndarray
    """(cells, p): W_a."""
    log_mass: np.ndarray
    """(cells,): log of the mass in a cell, -inf where it is empty."""
    finest: int


@cache
def circle_cells(finest: int) -> Cells:
    """Centres and half widths of all cells down to a level."""
    centres, halves = [], []
    for level in range(COARSEST, finest + 1):
        edge = np.arange(2**level + 1) * (4.0 / 2**level)
        quadrant, a = np.divmod(edge, 1.0)
        angle = quadrant * (math.pi / 2) + np.arctan2(a, 1.0 - a)
        middle = 0.5 * (angle[1:] + angle[:-1])
        centres.append(np.stack([np.cos(middle), np.sin(middle)], axis=1))
        halves.append(0.5 * np.diff(angle))
    return Cells(np.concatenate(centres), np.concatenate(halves))


@njit(nogil=True, cache=True, inline="always")
def diamond(x: float, y: float) -> float:
    """Diamond angle in [0, 4] of a non-zero vector: monotone in the angle, without trigonometry."""
    size = abs(x) + abs(y)
    a = y / size if size > 0.0 else 0.0
    if x >= 0.0:
        return a if a >= 0.0 else 4.0 + a
    return 2.0 - a


@cache
def chebyshev_nodes(p: int) -> np.ndarray:
    """Nodes cos((2a + 1) pi / 2p), a = 0..p-1."""
    return np.cos((2 * np.arange(p) + 1) * math.pi / (2 * p))


@cache
def from_moments(p: int) -> np.ndarray:
    """(p, p): Lagrange weights at the nodes from Chebyshev moments, W_a = sum_k A[k, a] sum_j m_j T_k(s_j)."""
    matrix = np.cos(np.arange(p)[:, None] * (2 * np.arange(p) + 1) * math.pi / (2 * p)) * (2.0 / p)
    matrix[0] *= 0.5
    return matrix


def gather_keys(keys: np.ndarray, mass: np.ndarray, finest: int, p: int) -> KeyCells:
    """Proxy weights of the keys (n, 2), of positive masses, at all levels down to `finest`."""
    cells = circle_cells(finest)
    count, first = 2**finest, 2**finest - 2**COARSEST
    centre, half = cells.centre[first:], cells.half[first:]
    parts: dict[int, np.ndarray] = {}

    def rows(start: int, stop: int) -> None:
        moments = np.zeros((count, p))
        _moments(keys[start:stop], mass[start:stop], centre, 1.0 / np.sin(half), moments)
        parts[start] = moments

    over_rows(rows, len(keys), cost=25.0 * len(keys), quantum=max(8 * count, 1024))
    # In the order of the rows, not of the threads: the same call gives the same digits.
    moments = sum((parts[start] for start in sorted(parts)), np.zeros((count, p)))
    weight = np.empty((2 * count - 2**COARSEST, p))
    weight[first:] = moments @ from_moments(p)
    _merge(cells.centre, cells.half, weight, finest, chebyshev_nodes(p), from_moments(p))
    with np.errstate(divide="ignore"):
        log_mass = np.log(np.maximum(weight.sum(axis=1), 0.0))
    return KeyCells(cells, weight, log_mass, finest)


@njit(nogil=True, cache=True, fastmath=REDUCTION, error_model="numpy")
def _moments(keys: Any, mass: Any, centre: Any, inverse_sine: Any, moments: Any) -> None:
    count, p = moments.shape
    scale = count / 4.0
    for j in range(keys.shape[0]):
        x, y = keys[j, 0], keys[j, 1]
        c = min(int(diamond(x, y) * scale), count - 1)
        s = (centre[c, 0] * y - centre[c, 1] * x) * inverse_sine[c]
        s = min(max(s, -1.0), 1.0)
        m = mass[j]
        row = moments[c]
        # Two interleaved recurrences T_{k+2} = 2 T_2 T_k - T_{k-2} halve the chain of dependent operations.
        even, odd = m, m * s
        two = 4.0 * s * s - 2.0
        even_before, odd_before = 0.5 * m * two, odd
        for k in range(0, p - 1, 2):
            row[k] += even
            row[k + 1] += odd
            even, even_before = two * even - even_before, even
            odd, odd_before = two * odd - odd_before, odd


@njit(nogil=True, cache=True, error_model="numpy")
def _merge(centre: Any, half: Any, weight: Any, finest: int, nodes: Any, matrix: Any) -> None:
    """Weights of a cell from those of its two halves, whose proxies are keys of the cell."""
    p = nodes.shape[0]
    moments = np.empty(p)
    for level in range(finest - 1, COARSEST - 1, -1):
        first, below = 2**level - 2**COARSEST, 2 ** (level + 1) - 2**COARSEST
        for c in range(2**level):
            moments[:] = 0.0
            x, y = centre[first + c]
            inverse = 1.0 / math.sin(half[first + c])
            for child in (below + 2 * c, below + 2 * c + 1):
                if weight[child].any():
                    u, v, sine = centre[child, 0], centre[child, 1], math.sin(half[child])
                    for a in range(p):
                        along = nodes[a] * sine
                        up = math.sqrt(1.0 - along * along)
                        s = (x * (v * up + u * along) - y * (u * up - v * along)) * inverse
                        before, here = s, 1.0
                        for k in range(p):
                            moments[k] += weight[child, a] * here
                            before, here = here, 2.0 * s * here - before
            for a in range(p):
                total = 0.0
                for k in range(p):
                    total += moments[k] * matrix[k, a]
                weight[first + c, a] = total
