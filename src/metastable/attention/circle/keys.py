"""Keys on the circle, gathered into cells: p proxy keys per cell stand for all keys in it, at every level.

Over one cell, e^{<z, k(theta)>} k(theta) is interpolated at p Chebyshev nodes k_a, so that

    sum_j m_j e^{<z, k_j>} k_j = sum_a W_a e^{<z, k_a>} k_a,    W_a = sum_j m_j L_a(s_j),

with an error relative to the (positive) sum of the cell. Cells are dyadic in the diamond angle, which costs
a division instead of an arctangent; the coordinate in a cell is s = sin(theta - centre) / sin(half). W_a comes from
the Chebyshev moments sum_j m_j T_k(s_j), to which a token adds a whole row at once (`circle.row_polynomials`):
for p = 8 all T_k as polynomials in s, for p = 16 T_{2k} and T_{2k+1} / s as polynomials in T_2, of half the degree.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from metastable.attention.circle.chebyshev import chebyshev_nodes
from metastable.attention.circle.row_polynomials import polynomials_to_row
from metastable.attention.diamond import diamond
from metastable.attention.exp2 import REDUCTION
from metastable.threads import over_rows

COARSEST = 4
"""Level of the coarsest cells: level l cuts the circle into 2^l of them. The 16 widest are below half a radian,
where s and the angle are nearly proportional."""
EMPTY = -1e30
"""Log of the mass of an empty cell: finite, so that loops over it may be compiled without care for infinities."""
BLOCK = 512
"""Tokens whose cells are found before their rows are touched: the first loop becomes vector instructions over
tokens, the second cannot."""
TOGETHER = 16_384
"""Least number of keys whose moments are summed before a second sum takes them: rounding grows with these, not with
n. With more cells than a quarter of them, four keys per cell, so that the second sum costs little."""


class Cells(NamedTuple):
    """Geometry of the cells of levels COARSEST..finest; cell c of level l has index 2^l - 2^COARSEST + c."""

    centre: np.ndarray
    """(cells, 2) unit vectors."""
    half: np.ndarray
    """(cells,) half widths in radians."""
    sine: np.ndarray
    """(cells,) sines of the half widths."""


class KeyCells(NamedTuple):
    """Proxy weights of the keys in all cells."""

    cells: Cells
    weight: np.ndarray
    """(cells, p): W_a."""
    log_mass: np.ndarray
    """(cells,): log of the mass in a cell, EMPTY where it is empty."""
    nodes: np.ndarray
    """(p,): Chebyshev nodes at which the proxies of every cell are."""
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
    half = np.concatenate(halves)
    return Cells(np.concatenate(centres), half, np.sin(half))


def _degrees(p: int) -> list[int]:
    """Which T_k the columns of the moments hold."""
    return list(range(p)) if p == 8 else [*range(0, p, 2), *range(1, p, 2)]


@cache
def from_moments(p: int) -> np.ndarray:
    """(p, p): Lagrange weights at the nodes from the columns of the moments."""
    matrix = np.cos(np.arange(p)[:, None] * (2 * np.arange(p) + 1) * math.pi / (2 * p)) * (2.0 / p)
    matrix[0] *= 0.5
    return np.ascontiguousarray(matrix[_degrees(p)])


def _table(first: tuple[float, ...], second: tuple[float, ...], by: tuple[float, ...]) -> np.ndarray:
    """(8, 8): coefficients, in columns, of eight polynomials with P_{k+1} = by P_k - P_{k-1}."""
    polynomials = [np.array(first), np.array(second)]
    while len(polynomials) < 8:
        polynomials.append(np.polynomial.polynomial.polysub(np.convolve(by, polynomials[-1]), polynomials[-2]))
    table = np.zeros((8, 8))
    for a, polynomial in enumerate(polynomials):
        table[: len(polynomial), a] = polynomial
    return table


_add_all: Any = polynomials_to_row(_table((1.0,), (0.0, 1.0), (0.0, 2.0)))
_add_odd: Any = polynomials_to_row(_table((1.0,), (-1.0, 2.0), (0.0, 2.0)))


def summed_together(finest: int) -> int:
    """Keys whose moments are one sum."""
    return max(TOGETHER, 4 * 2**finest)


def gather_keys(keys: np.ndarray, mass: np.ndarray, finest: int, p: int) -> tuple[KeyCells, float]:
    """Proxy weights, p = 8 or 16, of the keys (n, 2), of masses >= 0, at all levels down to `finest`.

    Also returns the largest difference of |k|^2 from one.
    """
    cells = circle_cells(finest)
    count, first = 2**finest, 2**finest - 2**COARSEST
    centre, sine = cells.centre[first:], cells.sine[first:]
    together = summed_together(finest)
    parts: dict[int, tuple[np.ndarray, float]] = {}

    def gather(start: int, stop: int) -> None:
        total, off = np.zeros(count * p), 0.0
        for low in range(start, stop, together):
            here, moments = slice(low, min(low + together, stop)), total if low == start else np.zeros(count * p)
            off = max(off, _moments(keys[here], mass[here], centre, sine, moments, p))
            if moments is not total:
                total += moments
        parts[start] = total, off

    over_rows(gather, len(keys), cost=8.0 * len(keys), quantum=max(4 * count, 1024))
    # In the order of the rows, not of the threads: the same call gives the same digits.
    moments, *others = [parts[start][0] for start in sorted(parts)]
    for other in others:
        moments += other
    weight = np.empty((2 * count - 2**COARSEST, p))
    np.matmul(moments.reshape(count, p), from_moments(p), out=weight[first:])
    _merge(*cells, weight, finest, chebyshev_nodes(p), from_moments(p))
    cell_mass = weight.sum(axis=1)
    log_mass = np.log(cell_mass, out=np.full(len(weight), EMPTY), where=cell_mass > 0.0)
    return KeyCells(cells, weight, log_mass, chebyshev_nodes(p), finest), max(off for _, off in parts.values())


@njit(nogil=True, cache=True, fastmath=REDUCTION, error_model="numpy")
def find_cells(points: Any, xx: float, xy: float, yy: float, count: int, cell: Any) -> float:
    """cell[j] = cell, of `count` ones, of y_j = [[xx, xy], [xy, yy]] points[j]; returns max_j ||y_j|^2 - 1|."""
    scale, off = count / 4.0, 0.0
    for j in range(points.shape[0]):
        x, y = xx * points[j, 0] + xy * points[j, 1], xy * points[j, 0] + yy * points[j, 1]
        c = int(diamond(x, y) * scale)
        cell[j] = c if c < count else count - 1
        away = abs(x * x + y * y - 1.0)
        off = away if away > off else off
    return off


@njit(nogil=True, cache=True, fastmath=REDUCTION, error_model="numpy")
def _add_moments(
    x: float, y: float, m: float, cx: float, cy: float, h: float, moments: Any, at: int, p: int
) -> None:
    s = (cx * y - cy * x) / h
    if p == 8:
        _add_all(moments, at, s, m)
    else:
        double = 2.0 * s * s - 1.0
        _add_all(moments, at, double, m)
        _add_odd(moments, at + 8, double, m * s)


@njit(nogil=True, cache=True, fastmath=REDUCTION, error_model="numpy")
def _moments(keys: Any, mass: Any, centre: Any, sine: Any, moments: Any, p: int) -> float:
    cell = np.empty(BLOCK, np.int32)
    off = 0.0
    for start in range(0, keys.shape[0], BLOCK):
        some = keys[start : start + BLOCK]
        off = max(off, find_cells(some, 1.0, 0.0, 1.0, sine.shape[0], cell))
        for j in range(some.shape[0]):
            c = cell[j]
            _add_moments(
                some[j, 0], some[j, 1], mass[start + j], centre[c, 0], centre[c, 1], sine[c], moments, c * p, p
            )
    return off


@njit(nogil=True, cache=True, error_model="numpy")
def _merge(centre: Any, _half: Any, sine: Any, weight: Any, finest: int, nodes: Any, matrix: Any) -> None:
    """Weights of a cell from those of its two halves, whose proxies are keys of the cell."""
    p = nodes.shape[0]
    moments = np.empty(p)
    for level in range(finest - 1, COARSEST - 1, -1):
        first, below = 2**level - 2**COARSEST, 2 ** (level + 1) - 2**COARSEST
        for c in range(first, first + 2**level):
            moments[:] = 0.0
            for child in (below + 2 * (c - first), below + 2 * (c - first) + 1):
                if weight[child].any():
                    u, v = centre[child, 0], centre[child, 1]
                    for a in range(p):
                        along = nodes[a] * sine[child]
                        up = math.sqrt(1.0 - along * along)
                        x, y = u * up - v * along, v * up + u * along
                        _add_moments(x, y, weight[child, a], centre[c, 0], centre[c, 1], sine[c], moments, 0, p)
            weight[c] = 0.0
            for k in range(p):
                for a in range(p):
                    weight[c, a] += moments[k] * matrix[k, a]
