"""Trees for `sphere.cells`: keys in cells of the cube's six faces, queries in an octree.

A key k on S^2 has the gnomonic coordinates (x, y) in [-1, 1]^2 on the face of the cube that it pierces. Keys
are sorted along the Morton curve of the faces; a cell is a range of that order with the tight box of its keys.
A cell of at least p^2 keys also has p x p proxies, for several p (`sphere.proxies`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from metastable.attention.sphere.proxies import gather, inherit, lagrange
from metastable.threads import over_rows

KEY_LEAF, QUERY_LEAF = 32, 16
"""Most keys or queries of a cell that is not split; 36 keys are the fewest that proxies (6 x 6) can stand for."""
_FACE_BITS, _SPACE_BITS = 29, 21
"""Bits of each coordinate in a Morton code of 63 bits: three for the face and two coordinates, or three of them."""


class KeyTree(NamedTuple):
    """Cells of the keys, children after parents; `order` is -1 without proxies, `children` 0 for leaves."""

    start: np.ndarray
    stop: np.ndarray
    child: np.ndarray
    children: np.ndarray
    log_mass: np.ndarray
    mean: np.ndarray
    """(cells, 3): centre of mass, for Jensen's lower bound."""
    cone: np.ndarray
    """(cells, 4): axis and half-angle of the cone that holds the cell's box."""
    box: np.ndarray
    """(cells, 4): least and largest x, least and largest y."""
    face: np.ndarray
    """(cells,): the face of the cell; meaningless where the half-angle is pi."""
    chart: np.ndarray
    """(cells, 5): |x|, |y| of the centre, half-sides, largest |cosine| of the angle between the sides."""
    orders: np.ndarray
    """Numbers p of proxies per side that are on offer, increasing."""
    order: np.ndarray
    """(cells,): index of the largest p of the cell, p^2 at most its number of keys."""
    offset: np.ndarray
    """(cells,): where the weights of the cell begin, the p^2 of every order one after the other."""
    weights: np.ndarray
    """(1 + columns, ...): of the masses, and of each column of other values."""
    lagrange: np.ndarray
    """(orders, p, p): `lagrange(p)` of every order."""
    keys: np.ndarray
    """(4 + columns, n): sorted keys, masses, and masses times each column of other values."""


def key_tree(
    keys: np.ndarray, mass: np.ndarray, orders: np.ndarray, values: np.ndarray | None = None
) -> KeyTree:  # fmt: skip
    """Cells of unit keys (n, 3) with masses (n,), all positive, and of other values (n, c), if any."""
    code, xy = np.empty(len(keys), dtype=np.int64), np.empty((len(keys), 2))
    _face_code(keys, code, xy)
    sorting = np.argsort(code)
    code, xy = code[sorting], xy[sorting]
    start, stop, child, children = cells(code, 2, KEY_LEAF)
    columns = 0 if values is None else values.shape[1]
    sorted_keys = np.empty((4 + columns, len(sorting)))
    sorted_keys[:3], sorted_keys[3] = keys[sorting].T, mass[sorting]
    if values is not None:
        sorted_keys[4:] = values[sorting].T * sorted_keys[3]
    face = (code >> (2 * _FACE_BITS)).astype(np.int8)
    count = len(start)
    log_mass, mean = np.empty(count), np.empty((count, 3))
    cone, box, chart = np.empty((count, 4)), np.empty((count, 4)), np.zeros((count, 5))
    _measure_cells(start, stop, child, children, sorted_keys, xy, face, box, log_mass, mean, cone, chart)
    order = np.searchsorted(orders**2, stop - start, side="right") - 1
    order[cone[:, 3] > 1.0] = -1
    sizes = np.concatenate(([0], np.cumsum(orders**2)))[order + 1]
    offset = np.cumsum(sizes) - sizes
    tables = np.zeros((len(orders), orders[-1], orders[-1]))
    for table, p in zip(tables, orders, strict=True):
        table[:p, :p] = lagrange(p)
    tree = KeyTree(
        start, stop, child, children, log_mass, mean, cone, box, face[start], chart, orders, order, offset,
        np.empty((1 + columns, int(sizes.sum()))), tables, sorted_keys,
    )  # fmt: skip
    owners = np.flatnonzero(order >= 0)
    top = len(orders) - 1
    # A cell whose children all have the largest order too inherits their moments; all others look at their keys.
    inherits = (order == top) & (children > 0)
    for i in range(4):
        inherits &= (i >= children) | (order[np.minimum(child + i, count - 1)] == top)
    fresh, heirs = owners[~inherits[owners]], owners[inherits[owners]]

    def look(first: int, last: int) -> None:
        gather(tree, xy, fresh[first:last])

    over_rows(look, len(fresh), cost=float(orders[-1] ** 2 * len(sorting) * (1 + columns)), quantum=16)
    inherit(tree, heirs[::-1])
    return tree


class QueryTree(NamedTuple):
    """Octree of the scaled queries z = beta q: ranges of the sorted `points` (3, n); `order` undoes the sorting."""

    start: np.ndarray
    stop: np.ndarray
    child: np.ndarray
    children: np.ndarray
    points: np.ndarray
    order: np.ndarray


def query_tree(points: np.ndarray) -> QueryTree:
    """Octree of points (n, 3) down to a handful of points per leaf."""
    low = points.min(axis=0)
    width = float((points - low).max())
    scale = (2**_SPACE_BITS - 1) / width if width > 0.0 and math.isfinite(1.0 / width) else 0.0
    code = np.empty(len(points), dtype=np.int64)
    _space_code(points, low, scale, code)
    order = np.argsort(code)
    start, stop, child, children = cells(code[order], 3, QUERY_LEAF)
    return QueryTree(start, stop, child, children, np.ascontiguousarray(points[order].T), order)


def cells(code: np.ndarray, stride: int, leaf: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(start, stop, first child, children) of the tree over sorted Morton codes, breadth first, without chains."""
    size = 64 + 4 * len(code) // leaf
    while True:
        start, stop, child = (np.zeros(size, dtype=np.int64) for _ in range(3))
        children = np.zeros(size, dtype=np.int64)
        count = _split(code, stride, leaf, start, stop, child, children)
        if count >= 0:
            return start[:count].copy(), stop[:count].copy(), child[:count].copy(), children[:count].copy()
        size *= 2


@njit(cache=True, nogil=True)
def _split(code: Any, stride: int, leaf: int, start: Any, stop: Any, child: Any, children: Any) -> int:
    """Fills the arrays of `cells`; -1 when they are too short."""
    start[0], stop[0] = 0, len(code)
    count = 1
    cell = 0
    while cell < count:
        a, b = start[cell], stop[cell]
        difference = code[a] ^ code[b - 1]
        if b - a > leaf and difference != 0:
            top = 0
            while (difference >> top) > 1:
                top += 1
            shift = (top // stride) * stride
            child[cell] = count
            while a < b:
                prefix = code[a] >> shift
                low, high = a, b
                while high - low > 1:
                    middle = (low + high) // 2
                    if (code[middle] >> shift) == prefix:
                        low = middle
                    else:
                        high = middle
                if count == len(start):
                    return -1
                start[count], stop[count] = a, high
                count += 1
                a = high
            children[cell] = count - child[cell]
        cell += 1
    return count


@njit(cache=True, nogil=True)
def _spread(i: int) -> int:
    """The 29 low bits of i at the even places."""
    i = (i | (i << 16)) & 0x0000FFFF0000FFFF
    i = (i | (i << 8)) & 0x00FF00FF00FF00FF
    i = (i | (i << 4)) & 0x0F0F0F0F0F0F0F0F
    i = (i | (i << 2)) & 0x3333333333333333
    return (i | (i << 1)) & 0x5555555555555555


@njit(cache=True, nogil=True)
def _face_code(keys: Any, code: Any, xy: Any) -> None:
    for i in range(len(code)):
        axis = 0
        for c in range(1, 3):
            if abs(keys[i, c]) > abs(keys[i, axis]):
                axis = c
        along = abs(keys[i, axis])
        xy[i, 0] = keys[i, (axis + 1) % 3] / along
        xy[i, 1] = keys[i, (axis + 2) % 3] / along
        face = 2 * axis + (1 if keys[i, axis] < 0.0 else 0)
        last = (1 << _FACE_BITS) - 1
        ix = min(max(int((xy[i, 0] + 1.0) * 0.5 * last), 0), last)
        iy = min(max(int((xy[i, 1] + 1.0) * 0.5 * last), 0), last)
        code[i] = (face << (2 * _FACE_BITS)) | (_spread(ix) << 1) | _spread(iy)


@njit(cache=True, nogil=True)
def _space_code(points: Any, low: Any, scale: float, code: Any) -> None:
    for i in range(len(code)):
        word = 0
        for c in range(3):
            at = int((points[i, c] - low[c]) * scale)
            at = (at | (at << 32)) & 0x001F00000000FFFF
            at = (at | (at << 16)) & 0x001F0000FF0000FF
            at = (at | (at << 8)) & 0x100F00F00F00F00F
            at = (at | (at << 4)) & 0x10C30C30C30C30C3
            at = (at | (at << 2)) & 0x1249249249249249
            word |= at << c
        code[i] = word


@njit(cache=True, nogil=True)
def _on_face(face: int, x: float, y: float) -> tuple[float, float, float]:
    """The unit vector of face coordinates."""
    along = 1.0 / math.sqrt(1.0 + x * x + y * y)
    signed = along if face % 2 == 0 else -along
    if face < 2:
        return signed, x * along, y * along
    if face < 4:
        return y * along, signed, x * along
    return x * along, y * along, signed


@njit(cache=True, nogil=True)
def _measure_cells(
    start: Any, stop: Any, child: Any, children: Any, keys: Any, xy: Any, face: Any,
    box: Any, log_mass: Any, mean: Any, cone: Any, chart: Any,
) -> None:  # fmt: skip
    """Boxes, masses, means, cones and chart derivatives of all cells, children first."""
    for cell in range(len(start) - 1, -1, -1):
        total = 0.0
        mean[cell] = 0.0
        box[cell, 0], box[cell, 1], box[cell, 2], box[cell, 3] = np.inf, -np.inf, np.inf, -np.inf
        if children[cell] == 0:
            for j in range(start[cell], stop[cell]):
                box[cell, 0], box[cell, 1] = min(box[cell, 0], xy[j, 0]), max(box[cell, 1], xy[j, 0])
                box[cell, 2], box[cell, 3] = min(box[cell, 2], xy[j, 1]), max(box[cell, 3], xy[j, 1])
                total += keys[3, j]
                for c in range(3):
                    mean[cell, c] += keys[3, j] * keys[c, j]
        else:
            for part in range(child[cell], child[cell] + children[cell]):
                box[cell, 0], box[cell, 1] = min(box[cell, 0], box[part, 0]), max(box[cell, 1], box[part, 1])
                box[cell, 2], box[cell, 3] = min(box[cell, 2], box[part, 2]), max(box[cell, 3], box[part, 3])
                weight = math.exp(log_mass[part])
                total += weight
                for c in range(3):
                    mean[cell, c] += weight * mean[part, c]
        log_mass[cell] = math.log(total)
        for c in range(3):
            mean[cell, c] /= total
        side = face[start[cell]]
        if side != face[stop[cell] - 1]:
            cone[cell, 0], cone[cell, 1], cone[cell, 2], cone[cell, 3] = 0.0, 0.0, 1.0, math.pi
            continue
        x, y = 0.5 * (box[cell, 0] + box[cell, 1]), 0.5 * (box[cell, 2] + box[cell, 3])
        h_x, h_y = 0.5 * (box[cell, 1] - box[cell, 0]), 0.5 * (box[cell, 3] - box[cell, 2])
        axis = _on_face(side, x, y)
        chord = 0.0
        for corner in range(4):
            at = _on_face(side, box[cell, corner % 2], box[cell, 2 + corner // 2])
            chord = max(chord, (at[0] - axis[0]) ** 2 + (at[1] - axis[1]) ** 2 + (at[2] - axis[2]) ** 2)
        cone[cell, 0], cone[cell, 1], cone[cell, 2] = axis
        cone[cell, 3] = 2.0 * math.asin(min(0.5 * math.sqrt(chord), 1.0)) * (1.0 + 1e-12) + 1e-15
        chart[cell, 0], chart[cell, 1], chart[cell, 2], chart[cell, 3] = abs(x), abs(y), h_x, h_y
        far_x, far_y = abs(x) + h_x, abs(y) + h_y
        chart[cell, 4] = far_x * far_y / math.sqrt((1.0 + far_x**2) * (1.0 + far_y**2))
