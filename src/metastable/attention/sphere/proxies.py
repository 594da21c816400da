"""Proxies of a cell of keys: a few weighted points that stand for all of them (`sphere.cells`).

The proxies k_a are the Chebyshev nodes of the cell's box in its face coordinates, with weights w_a = sum_j m_j
L_a(x_j, y_j), so that sum_a w_a f(k_a) is sum_j m_j (interpolant of f)(k_j). The weights of all orders p come
from the same Chebyshev moments sum_j m_j T_k(x_j) T_l(y_j). All boxes of a face are parallel, hence polynomials
of the one are polynomials of the other, and a cell inherits the moments of its children exactly.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

_BLOCK = 64
"""Keys whose polynomials are tabulated before one matrix product adds their moments."""


@njit(cache=True, nogil=True)
def lagrange(p: int) -> Any:
    """(p, p): row a holds the Chebyshev coefficients of the Lagrange polynomial of the node cos((a + 1/2) pi/p)."""
    out = np.empty((p, p))
    for a in range(p):
        for k in range(p):
            out[a, k] = (1.0 if k == 0 else 2.0) / p * math.cos(k * (a + 0.5) * math.pi / p)
    return out


@njit(cache=True, nogil=True)
def chebyshev(t: float, values: Any) -> None:
    """values[k] = T_k(t), t clipped to [-1, 1]."""
    t = min(max(t, -1.0), 1.0)
    values[0] = 1.0
    if len(values) > 1:
        values[1] = t
    for k in range(2, len(values)):
        values[k] = 2.0 * t * values[k - 1] - values[k - 2]


@njit(cache=True, nogil=True)
def proxy_points(tree: Any, cell: int, p: int, out: Any) -> None:
    """out (3, p^2) = the proxies of a cell."""
    box = tree.box[cell]
    x, y = 0.5 * (box[0] + box[1]), 0.5 * (box[2] + box[3])
    h_x, h_y = 0.5 * (box[1] - box[0]), 0.5 * (box[3] - box[2])
    face = tree.face[cell]
    first, second = (face // 2 + 1) % 3, (face // 2 + 2) % 3
    sign = 1.0 if face % 2 == 0 else -1.0
    node = np.empty(p)
    for a in range(p):
        node[a] = math.cos((a + 0.5) * math.pi / p)
    for a in range(p):
        at_x = x + h_x * node[a]
        for b in range(p):
            at_y = y + h_y * node[b]
            along = 1.0 / math.sqrt(1.0 + at_x * at_x + at_y * at_y)
            out[face // 2, a * p + b] = sign * along
            out[first, a * p + b] = at_x * along
            out[second, a * p + b] = at_y * along


@njit(cache=True, nogil=True)
def gather(tree: Any, xy: Any, cells: Any) -> None:
    """Weights of cells from their keys: moments sum_j m_j T_k(x_j) T_l(y_j), and from them every order."""
    for cell in cells:
        for column in range(len(tree.weights)):
            _gather_one(tree, xy, cell, column)


@njit(cache=True, nogil=True)
def _gather_one(tree: Any, xy: Any, cell: int, column: int) -> None:
    t_x, t_y = np.empty(_BLOCK), np.empty(_BLOCK)
    p = tree.orders[tree.order[cell]]
    moments, product = np.zeros((p, p)), np.empty((p, p))
    left, right = np.empty((p, _BLOCK)), np.empty((p, _BLOCK))
    box = tree.box[cell]
    x, y = 0.5 * (box[0] + box[1]), 0.5 * (box[2] + box[3])
    h_x, h_y = max(0.5 * (box[1] - box[0]), 1e-300), max(0.5 * (box[3] - box[2]), 1e-300)
    for first in range(tree.start[cell], tree.stop[cell], _BLOCK):
        length = min(_BLOCK, tree.stop[cell] - first)
        left[0, length:] = 0.0
        for a in range(length):
            t_x[a] = min(max((xy[first + a, 0] - x) / h_x, -1.0), 1.0)
            t_y[a] = min(max((xy[first + a, 1] - y) / h_y, -1.0), 1.0)
            left[0, a] = tree.keys[3 + column, first + a]
        t_x[length:], t_y[length:] = 0.0, 0.0
        right[0] = 1.0
        for a in range(_BLOCK):
            left[1, a] = left[0, a] * t_x[a]
            right[1, a] = t_y[a]
        for k in range(2, p):
            for a in range(_BLOCK):
                left[k, a] = 2.0 * t_x[a] * left[k - 1, a] - left[k - 2, a]
                right[k, a] = 2.0 * t_y[a] * right[k - 1, a] - right[k - 2, a]
        np.dot(left, right.T, product)
        moments += product
    _store(tree, cell, column, moments)


@njit(cache=True, nogil=True)
def _store(tree: Any, cell: int, column: int, moments: Any) -> None:
    at = tree.offset[cell]
    for index in range(tree.order[cell] + 1):
        p = tree.orders[index]
        from_moments = tree.lagrange[index]
        _product(from_moments, moments, from_moments, p, tree.weights[column, at : at + p * p].reshape(p, p))
        at += p * p


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _product(left: Any, middle: Any, right: Any, p: int, out: Any) -> None:
    """out = left @ middle @ right^T for the leading p rows and columns of each."""
    half = np.empty(p)
    for a in range(p):
        half[:] = 0.0
        for k in range(p):
            factor = left[a, k]
            for l in range(p):
                half[l] += factor * middle[k, l]
        for b in range(p):
            total = 0.0
            for l in range(p):
                total += half[l] * right[b, l]
            out[a, b] = total


@njit(cache=True, nogil=True)
def inherit(tree: Any, cells: Any) -> None:
    """Weights of cells from those of their children, which must come first."""
    p = tree.orders[-1]
    before = 0
    for other in tree.orders[:-1]:
        before += other * other
    along_x, along_y, transferred, values = np.empty((p, p)), np.empty((p, p)), np.empty((p, p)), np.empty(p)
    for cell in cells:
        box = tree.box[cell]
        x, y = 0.5 * (box[0] + box[1]), 0.5 * (box[2] + box[3])
        h_x, h_y = max(0.5 * (box[1] - box[0]), 1e-300), max(0.5 * (box[3] - box[2]), 1e-300)
        moments = np.zeros((len(tree.weights), p, p))
        for part in range(tree.child[cell], tree.child[cell] + tree.children[cell]):
            inner = tree.box[part]
            part_x, part_y = 0.5 * (inner[0] + inner[1]), 0.5 * (inner[2] + inner[3])
            part_h_x, part_h_y = 0.5 * (inner[1] - inner[0]), 0.5 * (inner[3] - inner[2])
            for a in range(p):
                node = math.cos((a + 0.5) * math.pi / p)
                chebyshev((part_x + part_h_x * node - x) / h_x, values)
                along_x[:, a] = values
                chebyshev((part_y + part_h_y * node - y) / h_y, values)
                along_y[:, a] = values
            first = tree.offset[part] + before
            for column in range(len(moments)):
                weights = tree.weights[column, first : first + p * p].reshape(p, p)
                _product(along_x, weights, along_y, p, transferred)
                moments[column] += transferred
        for column in range(len(moments)):
            _store(tree, cell, column, moments[column])
