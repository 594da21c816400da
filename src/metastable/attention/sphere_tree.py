"""Trees for `sphere_cells`: keys in cells of the cube's six faces with Chebyshev proxies, queries in an octree.

A key k on S^2 has the gnomonic coordinates (x, y) in [-1, 1]^2 on the face of the cube that it pierces. Keys are sorted
along the Morton curve of the faces; a cell is a range of that order with the tight box of its keys. A cell of at least
p^2 keys also carries p x p proxies: points k_a at the Chebyshev nodes of its box with the weights
w_a = sum_j m_j L_a(x_j, y_j), so that sum_a w_a f(k_a) is sum_j m_j (interpolant of f)(k_j). All boxes of a face are
parallel, hence a cell inherits the weights of its children without any error.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from metastable.attention.threads import over_rows

KEY_LEAF, QUERY_LEAF = 32, 8
_FACE_BITS, _SPACE_BITS = 29, 21


class KeyTree(NamedTuple):
    """Cells of the keys, children after parents; `proxy` is -1 for cells without proxies, `child` 0 for leaves."""

    start: np.ndarray
    stop: np.ndarray
    child: np.ndarray
    children: np.ndarray
    log_mass: np.ndarray
    mean: np.ndarray
    """(cells, 3): centre of mass, for Jensen's lower bound."""
    cone: np.ndarray
    """(cells, 5): axis, cosine and sine of the half-angle of the cone that holds the cell's box."""
    radius: np.ndarray
    """(cells,): half-angle of the cone."""
    chart: np.ndarray
    """(cells, 11): tangents along x and y as long as the next two, the largest angles of the half-sides; h_x/D, h_y/D with
    D the least length of (x, y, 1); the largest cosine between the tangents."""
    proxy: np.ndarray
    keys: np.ndarray
    """(4, n): sorted keys and masses as columns."""
    nodes: np.ndarray
    """(proxied cells, 4, p^2): proxies and weights as columns."""


def key_tree(keys: np.ndarray, mass: np.ndarray, p: int) -> KeyTree:
    """Cells of unit keys (n, 3) with masses (n,), all positive; p proxies per axis."""
    code, xy = _faces(keys)
    order = np.argsort(code)
    start, stop, child, children = cells(code[order], 2, KEY_LEAF)
    sorted_keys = np.empty((4, len(order)))
    sorted_keys[:3], sorted_keys[3] = keys[order].T, mass[order]
    xy = xy[order]
    face = (code[order] >> (2 * _FACE_BITS)).astype(np.int8)
    box = np.empty((len(start), 4))
    log_mass, mean = np.empty(len(start)), np.empty((len(start), 3))
    cone, radius, chart = np.empty((len(start), 5)), np.empty(len(start)), np.zeros((len(start), 11))
    _measure_cells(start, stop, child, children, sorted_keys, xy, face, box, log_mass, mean, cone, radius, chart)
    proxied = (stop - start >= p * p) & (radius < 1.0)
    proxy = np.where(proxied, np.cumsum(proxied) - 1, -1)
    nodes = np.empty((int(proxied.sum()), 4, p * p))
    owners = np.flatnonzero(proxied)
    transform = _transform(p)

    def gather(first: int, last: int) -> None:
        _gather(owners[first:last], start, stop, child, children, proxy, box, face, xy, sorted_keys, transform, nodes)

    over_rows(gather, len(owners), cost=0.2 * p * p * len(order), quantum=16)
    _inherit(owners, start, child, children, proxy, box, face, xy, sorted_keys, stop, transform, nodes)
    return KeyTree(
        start, stop, child, children, log_mass, mean, cone, radius, chart, proxy, sorted_keys, nodes
    )  # fmt: skip


class QueryTree(NamedTuple):
    """Octree of the scaled queries z = beta q: ranges of `points` (3, n), which are sorted; `order` undoes the sorting."""

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
    """(start, stop, first child, children) of the tree over sorted Morton codes, breadth first; chains are skipped."""
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


def _faces(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    code, xy = np.empty(len(keys), dtype=np.int64), np.empty((len(keys), 2))
    _face_code(keys, code, xy)
    return code, xy


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
            for bit in range(_SPACE_BITS):
                word |= ((at >> bit) & 1) << (3 * bit + c)
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
    box: Any, log_mass: Any, mean: Any, cone: Any, radius: Any, chart: Any,
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
            cone[cell, 2], cone[cell, 3], cone[cell, 4], radius[cell] = 1.0, -1.0, 0.0, math.pi
            cone[cell, 0], cone[cell, 1] = 0.0, 0.0
            continue
        x, y = 0.5 * (box[cell, 0] + box[cell, 1]), 0.5 * (box[cell, 2] + box[cell, 3])
        h_x, h_y = 0.5 * (box[cell, 1] - box[cell, 0]), 0.5 * (box[cell, 3] - box[cell, 2])
        axis = _on_face(side, x, y)
        chord = 0.0
        for corner in range(4):
            at = _on_face(side, box[cell, corner % 2], box[cell, 2 + corner // 2])
            chord = max(chord, (at[0] - axis[0]) ** 2 + (at[1] - axis[1]) ** 2 + (at[2] - axis[2]) ** 2)
        angle = 2.0 * math.asin(min(0.5 * math.sqrt(chord), 1.0)) * (1.0 + 1e-12) + 1e-15
        radius[cell] = angle
        cone[cell, 0], cone[cell, 1], cone[cell, 2] = axis
        cone[cell, 3], cone[cell, 4] = math.cos(angle), math.sin(angle)
        d_square = 1.0 + x * x + y * y
        d = math.sqrt(d_square)
        # d k/dx = (e_x - k x/D)/D, written out on the face's own axes.
        e_x = _on_face(side, 1.0, 0.0)
        zero = _on_face(side, 0.0, 0.0)
        e_y = _on_face(side, 0.0, 1.0)
        for c in range(3):
            unit_x, unit_y = math.sqrt(2.0) * e_x[c] - zero[c], math.sqrt(2.0) * e_y[c] - zero[c]
            chart[cell, c] = h_x * (unit_x - axis[c] * x / d) / d
            chart[cell, 3 + c] = h_y * (unit_y - axis[c] * y / d) / d
        # Along x the angle grows at the rate s/(s^2 + x^2), s^2 = 1 + y^2, fastest where |x| and |y| are least.
        near_x, near_y = max(abs(x) - h_x, 0.0), max(abs(y) - h_y, 0.0)
        near = 1.0 + near_x**2 + near_y**2
        chart[cell, 6] = h_x * math.sqrt(1.0 + near_y**2) / near
        chart[cell, 7] = h_y * math.sqrt(1.0 + near_x**2) / near
        for c in range(3):  # the tangents scaled to those largest angles
            chart[cell, c] *= chart[cell, 6] / max(h_x * math.sqrt(1.0 + y * y) / d_square, 1e-300)
            chart[cell, 3 + c] *= chart[cell, 7] / max(h_y * math.sqrt(1.0 + x * x) / d_square, 1e-300)
        chart[cell, 8], chart[cell, 9] = h_x / math.sqrt(near), h_y / math.sqrt(near)
        far_x, far_y = abs(x) + h_x, abs(y) + h_y
        chart[cell, 10] = far_x * far_y / math.sqrt((1.0 + far_x**2) * (1.0 + far_y**2))


def _transform(p: int) -> np.ndarray:
    """(p, p): row a holds the Chebyshev coefficients of the Lagrange polynomial of node cos((a + 1/2) pi/p)."""
    k, a = np.arange(p), np.arange(p)[:, None]
    rows = 2.0 / p * np.cos(k * (a + 0.5) * np.pi / p)
    rows[:, 0] *= 0.5
    return np.ascontiguousarray(rows)


@njit(cache=True, nogil=True)
def _chebyshev(t: float, values: Any) -> None:
    """values[k] = T_k(t)."""
    t = min(max(t, -1.0), 1.0)
    values[0] = 1.0
    if len(values) > 1:
        values[1] = t
    for k in range(2, len(values)):
        values[k] = 2.0 * t * values[k - 1] - values[k - 2]


@njit(cache=True, nogil=True)
def _add_keys(a: int, b: int, x: float, y: float, h_x: float, h_y: float, xy: Any, keys: Any, moments: Any) -> None:
    """moments[k, l] += sum_j m_j T_k T_l over the keys a <= j < b."""
    p = moments.shape[0]
    t_x, t_y = np.empty(p), np.empty(p)
    for j in range(a, b):
        _chebyshev((xy[j, 0] - x) / h_x, t_x)
        _chebyshev((xy[j, 1] - y) / h_y, t_y)
        for k in range(p):
            factor = keys[3, j] * t_x[k]
            for l in range(p):
                moments[k, l] += factor * t_y[l]


@njit(cache=True, nogil=True)
def _gather(
    owners: Any, start: Any, stop: Any, child: Any, children: Any, proxy: Any, box: Any, face: Any, xy: Any,
    keys: Any, transform: Any, nodes: Any,
) -> None:  # fmt: skip
    """Proxies of the given cells, and the weights of those that have no children with proxies."""
    p = transform.shape[0]
    moments = np.empty((p, p))
    for cell in owners:
        x, y = 0.5 * (box[cell, 0] + box[cell, 1]), 0.5 * (box[cell, 2] + box[cell, 3])
        h_x = max(0.5 * (box[cell, 1] - box[cell, 0]), 1e-300)
        h_y = max(0.5 * (box[cell, 3] - box[cell, 2]), 1e-300)
        out = nodes[proxy[cell]]
        for a in range(p):
            at_x = x + h_x * math.cos((a + 0.5) * math.pi / p)
            for b in range(p):
                at = _on_face(face[start[cell]], at_x, y + h_y * math.cos((b + 0.5) * math.pi / p))
                for c in range(3):
                    out[c, a * p + b] = at[c]
        inner = False
        for part in range(child[cell], child[cell] + children[cell]):
            inner = inner or proxy[part] >= 0
        if not inner:
            moments[:, :] = 0.0
            _add_keys(start[cell], stop[cell], x, y, h_x, h_y, xy, keys, moments)
            _product(transform, moments, transform, out[3])


@njit(cache=True, nogil=True)
def _product(left: Any, middle: Any, right: Any, out: Any) -> None:
    """out = left @ middle @ right^T, flattened."""
    p = left.shape[0]
    half = np.zeros((p, p))
    for a in range(p):
        for k in range(p):
            for l in range(p):
                half[a, l] += left[a, k] * middle[k, l]
    for a in range(p):
        for b in range(p):
            total = 0.0
            for l in range(p):
                total += half[a, l] * right[b, l]
            out[a * p + b] = total


@njit(cache=True, nogil=True)
def _inherit(
    owners: Any, start: Any, child: Any, children: Any, proxy: Any, box: Any, face: Any, xy: Any, keys: Any,
    stop: Any, transform: Any, nodes: Any,
) -> None:  # fmt: skip
    """Weights of the cells that have children with proxies: exact transfer, children first."""
    p = transform.shape[0]
    moments, along_x, along_y = np.empty((p, p)), np.empty((p, p)), np.empty((p, p))
    part_moments, values = np.empty(p * p), np.empty(p)
    for cell in owners[::-1]:
        inner = False
        for part in range(child[cell], child[cell] + children[cell]):
            inner = inner or proxy[part] >= 0
        if not inner:
            continue
        x, y = 0.5 * (box[cell, 0] + box[cell, 1]), 0.5 * (box[cell, 2] + box[cell, 3])
        h_x = max(0.5 * (box[cell, 1] - box[cell, 0]), 1e-300)
        h_y = max(0.5 * (box[cell, 3] - box[cell, 2]), 1e-300)
        moments[:, :] = 0.0
        for part in range(child[cell], child[cell] + children[cell]):
            if proxy[part] < 0:
                _add_keys(start[part], stop[part], x, y, h_x, h_y, xy, keys, moments)
                continue
            part_x, part_y = 0.5 * (box[part, 0] + box[part, 1]), 0.5 * (box[part, 2] + box[part, 3])
            part_h_x, part_h_y = 0.5 * (box[part, 1] - box[part, 0]), 0.5 * (box[part, 3] - box[part, 2])
            for a in range(p):
                node = math.cos((a + 0.5) * math.pi / p)
                _chebyshev((part_x + part_h_x * node - x) / h_x, values)
                along_x[:, a] = values
                _chebyshev((part_y + part_h_y * node - y) / h_y, values)
                along_y[:, a] = values
            _product(along_x, nodes[proxy[part], 3].copy().reshape(p, p), along_y, part_moments)
            for k in range(p):
                for l in range(p):
                    moments[k, l] += part_moments[k * p + l]
        _product(transform, moments, transform, nodes[proxy[cell], 3])
