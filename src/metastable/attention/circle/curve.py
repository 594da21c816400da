"""Queries on an ellipse around the origin, as q = B^T x of tokens x on the circle: one coordinate instead of two.

An ellipse is q = A y with |y| = 1 and A = R^{-1}, R symmetric. On a cell of the circle of y, around the direction
c, z = beta A y = cos(delta) beta A c + sin(delta) beta A c', so F e^{-<z, u>} is a function of s = sin(delta) /
sin(half) alone. It and F e^{-<z, u>} mean(k) are computed at the Chebyshev nodes of a patch from the proxies and
evaluated, one query after the other, as polynomials in s. Patches with fewer queries than nodes are summed over the
proxies themselves.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit

from metastable.attention.circle.bounds import least_order
from metastable.attention.circle.chebyshev import MOST, chebyshev_tables
from metastable.attention.circle.ellipse import Ellipse
from metastable.attention.circle.keys import BLOCK, COARSEST, KeyCells, circle_cells, find_cells
from metastable.attention.circle.patch import Interpolants, Patches, fresh, patch_level, scan, scanned_level
from metastable.attention.circle.proxy_sums import proxy_sums, shifted_proxies, sum_alone
from metastable.attention.circle.row_polynomials import four_polynomials
from metastable.attention.exp2 import REDUCTION, log
from metastable.threads import over_rows


class Curve(NamedTuple):
    """z = cos(delta) along + sin(delta) across on every patch, |sin(delta)| <= sine."""

    along: np.ndarray
    across: np.ndarray
    sine: np.ndarray


def attend_ellipse(
    keys: KeyCells, queries: np.ndarray, beta: float, ellipse: Ellipse, rtol: float
) -> tuple[np.ndarray, np.ndarray, float] | None:
    """(mean, log F, error) of queries on an ellipse; None where they are too far from it for the tolerance."""
    n, sharpest = len(queries), beta * ellipse.longest
    level = patch_level(sharpest)
    count, first = 2**level, 2**level - 2**COARSEST
    cells = circle_cells(level)
    centre, half, sine = (part[first:] for part in cells)
    (xx, xy), (_, yy) = ellipse.to_circle
    patch = fresh(n, dtype=torch.int32)
    parts: list[tuple[np.ndarray, float]] = []

    def find(start: int, stop: int) -> None:
        counts = np.zeros(count, dtype=np.int64)
        parts.append((counts, _find_patches(queries[start:stop], xx, xy, yy, patch[start:stop], counts)))

    over_rows(find, n, cost=4.0 * n, quantum=BLOCK)
    # A query with |y| = 1 + e instead of one has scores that are off by at most |z| e.
    off_curve = sharpest * (0.5 * max(off for _, off in parts) + 4e-16 * ellipse.condition)
    if off_curve > 0.2 * rtol:
        return None
    counts = np.sum([part for part, _ in parts], axis=0)
    turned = np.stack([-centre[:, 1], centre[:, 0]], axis=1)
    curve = Curve(beta * (centre @ ellipse.from_circle), beta * (turned @ ellipse.from_circle), sine)
    patches = _patches_of_curve(curve, half, counts, scanned_level(sharpest, keys.finest, rtol))
    found = Interpolants(
        np.zeros((count, MOST, 4)), np.zeros((count, 2)), np.zeros(count, dtype=np.int64), np.zeros(count)
    )
    occupied = np.flatnonzero(counts)

    def solve(start: int, stop: int) -> None:
        _solve(occupied[start:stop], keys, patches, curve, rtol, chebyshev_tables(), found)

    over_rows(solve, len(occupied), cost=5e3 * len(occupied))
    order = max(int(found.orders.max()), 1)
    table = np.ascontiguousarray(found.coefficients[:, :order]).ravel()
    mean, log_partition = fresh(n, 2), fresh(n)

    def evaluate(start: int, stop: int) -> None:
        here = slice(start, stop)
        _evaluate(
            queries[here], xx, xy, yy, patch[here], centre, 1.0 / sine, order, table, beta * found.towards,
            mean[here], log_partition[here],
        )  # fmt: skip

    over_rows(evaluate, n, cost=10.0 * n, quantum=BLOCK)
    alone = sum_alone(keys, patches, queries, beta, patch, found.orders == 0, rtol, mean, log_partition)
    return mean, log_partition, max(float(found.errors.max()), alone) + off_curve


@njit(nogil=True, cache=True, error_model="numpy")
def _find_patches(queries: Any, xx: float, xy: float, yy: float, patch: Any, counts: Any) -> float:
    off = 0.0
    for start in range(0, queries.shape[0], BLOCK):
        here = patch[start : start + BLOCK]
        off = max(off, find_cells(queries[start : start + BLOCK], xx, xy, yy, counts.shape[0], here))
        for j in range(here.shape[0]):
            counts[here[j]] += 1
    return off


def _patches_of_curve(curve: Curve, half: np.ndarray, counts: np.ndarray, level: int) -> Patches:
    """Directions and lengths of z = cos(delta) along + sin(delta) across for |delta| <= half."""
    along, across = curve.along, curve.across
    length = np.maximum(np.hypot(*along.T), 1e-300)
    direction = along / length[:, None]
    # Slightly wider than the cell, for queries that rounding puts outside.
    wide = 1.001 * half
    spread, ends = np.zeros(len(half)), []
    for delta in (-wide, wide):
        z = np.cos(delta)[:, None] * along + np.sin(delta)[:, None] * across
        ends.append(np.hypot(*z.T))
        cross, dot = z[:, 1] * direction[:, 0] - z[:, 0] * direction[:, 1], np.einsum("ij,ij->i", z, direction)
        spread = np.maximum(spread, np.abs(np.arctan2(cross, dot)))
    # |z|^2 = (P + Q cos 2 delta + S sin 2 delta) / 2 has its extremes where tan 2 delta = S / Q, or at the ends.
    square, turned = length**2, np.einsum("ij,ij->i", across, across)
    p, q, s = square + turned, square - turned, 2.0 * np.einsum("ij,ij->i", along, across)
    swing, peak = np.hypot(q, s), 0.5 * np.arctan2(s, q)
    trough = peak - np.copysign(0.5 * math.pi, peak)
    low = np.where(np.abs(trough) <= wide, np.sqrt(np.maximum(0.5 * (p - swing), 0.0)), np.minimum(*ends))
    high = np.where(np.abs(peak) <= wide, np.sqrt(0.5 * (p + swing)), np.maximum(*ends))
    return Patches(direction, spread, low, high, counts, level)


@njit(nogil=True, cache=True, error_model="numpy")
def _solve(occupied: Any, keys: Any, patches: Any, curve: Any, rtol: float, tables: Any, found: Any) -> None:
    """Monomial coefficients in s of F e^{-<z,u>} (1, mean of k), and errors, of the patches worth their nodes."""
    centre, half = keys.cells.centre, keys.cells.half
    for patch in occupied:
        ax, ay, bx, by = (
            curve.along[patch, 0],
            curve.along[patch, 1],
            curve.across[patch, 0],
            curve.across[patch, 1],
        )
        sine, coefficients = curve.sine[patch], found.coefficients[patch]
        coefficients[0, 0] = 1.0
        best, cells, log_share = scan(keys, patches, patch, rtol)
        u = centre[best]
        found.towards[patch] = u
        # The exponent of a key cell is cos(delta) <along, k - u> + sin(delta) <across, k - u>.
        edge = math.asin(min(1.001 * sine, 1.0))
        ranges, bends, reach = np.empty(cells.shape[0]), np.empty(cells.shape[0]), np.empty(cells.shape[0])
        size, turned = math.hypot(ax, ay), math.hypot(bx, by)
        for i in range(cells.shape[0]):
            dx, dy, wider = centre[cells[i], 0] - u[0], centre[cells[i], 1] - u[1], half[cells[i]]
            ranges[i] = edge * (abs(bx * dx + by * dy) + turned * wider)
            bends[i] = abs(ax * dx + ay * dy) + size * wider
            reach[i] = log_share[i] + 2.0 * ranges[i] + edge * edge * bends[i]
        order = least_order(reach, ranges, bends, edge, rtol)
        if order > MOST or order > patches.queries[patch]:
            continue
        dx, dy, w, key_error = shifted_proxies(keys, patches, patch, cells, log_share, u, rtol)
        at_nodes = np.empty((order, 3))
        least = np.inf
        for a in range(order):
            s = tables.nodes[order, a] * sine
            c = math.sqrt(1.0 - s * s)
            total, first, second = proxy_sums(c * ax + s * bx, c * ay + s * by, dx, dy, w)
            at_nodes[a, 0] = total
            at_nodes[a, 1], at_nodes[a, 2] = first + total * u[0], second + total * u[1]
            least = min(least, total)
        tail, rounding = _polynomials(at_nodes, tables.transform[order], tables.monomials, coefficients)
        tail, rounding = tail / least, 2e-16 * rounding / least
        if tail > 0.2 * rtol or rounding > 0.05 * rtol:
            coefficients[:] = 0.0
            coefficients[0, 0] = 1.0
            continue
        found.orders[patch] = order
        found.errors[patch] = key_error + 0.3 * rtol + tail + rounding


@njit(nogil=True, cache=True, fastmath=REDUCTION, error_model="numpy")
def _polynomials(at_nodes: Any, transform: Any, monomials: Any, coefficients: Any) -> tuple[float, float]:
    """Monomial coefficients of the interpolants; returns the sums of the last Chebyshev and all monomial ones."""
    order = at_nodes.shape[0]
    tail = rounding = 0.0
    coefficients[:] = 0.0
    for f in range(3):
        for k in range(order):
            value = 0.0
            for a in range(order):
                value += transform[k, a] * at_nodes[a, f]
            if order > 2 and k == order - 1:
                tail += abs(value)
            for power in range(k % 2, k + 1, 2):
                coefficients[power, f] += monomials[k, power] * value
    for power in range(order):
        rounding += abs(coefficients[power, 0]) + abs(coefficients[power, 1]) + abs(coefficients[power, 2])
    return tail, rounding


@njit(nogil=True, cache=True, fastmath=REDUCTION, error_model="numpy")
def _evaluate(
    queries: Any,
    xx: float,
    xy: float,
    yy: float,
    patch: Any,
    centre: Any,
    inverse_sine: Any,
    order: int,
    table: Any,
    towards: Any,
    mean: Any,
    log_partition: Any,
) -> None:
    """mean and log F from the polynomials; table is (patches, order, 4) in a row, towards is beta u."""
    sums = np.empty(4 * BLOCK)
    for start in range(0, queries.shape[0], BLOCK):
        length = min(BLOCK, queries.shape[0] - start)
        for j in range(length):
            c = patch[start + j]
            qx, qy = queries[start + j, 0], queries[start + j, 1]
            s = centre[c, 0] * (xy * qx + yy * qy) - centre[c, 1] * (xx * qx + xy * qy)
            four_polynomials(table, c * 4 * order, order, s * inverse_sine[c], sums, 4 * j)
            sums[4 * j + 3] = qx * towards[c, 0] + qy * towards[c, 1]
        for j in range(length):
            total = sums[4 * j]
            inverse = 1.0 / total
            mean[start + j, 0] = sums[4 * j + 1] * inverse
            mean[start + j, 1] = sums[4 * j + 2] * inverse
            log_partition[start + j] = log(total) + sums[4 * j + 3]
