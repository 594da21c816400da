"""Boxes of queries against the cells they see: row by row, by one expansion for the box, or not yet
(`sphere.cells`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.sphere.expansion import NARROWEST, deviations, evaluate, expand, orders_for
from metastable.attention.sphere.values import expand_values, largest_weights, value_rows
from metastable.attention.sphere.walk import descend, row_sums, row_top, unpack, walk

SPLIT, DONE = 0, 1
"""What became of a group: left to its children, or computed."""
_DIRECT_ROWS, _FEWEST_ROWS = 128, 24
"""Most rows of a box that is summed row by row, and fewest for which an expansion can pay."""
_FARTHEST = 2.5
"""Standard deviations of the keys beyond which an expansion is not tried: a forecast, not a bound."""


@njit(cache=True, nogil=True)
def attend_groups(
    tree: Any, queries: Any, groups: Any, rtol: float, most: int, mean: Any, others: Any, log_partition: Any,
    status: Any, errors: Any,
) -> None:  # fmt: skip
    """Fills means (n, 3) of keys, (n, c) of other values, and log-partitions (n,), or marks a group as SPLIT."""
    found = np.empty((2, 1024), dtype=np.int64)
    for g in range(len(groups)):
        group = groups[g]
        first, last = queries.start[group], queries.stop[group]
        status[g] = SPLIT
        leaf = queries.children[group] == 0
        if last - first > most and not leaf:
            continue
        found, done, error = _attend_box(
            tree, queries.points, first, last, leaf, rtol, mean, others, log_partition, found
        )
        if done:
            status[g] = DONE
            errors[g] = error
        elif leaf:
            for i in range(first, last):
                found, done, error = _attend_box(
                    tree, queries.points, i, i + 1, True, rtol, mean, others, log_partition, found
                )
                errors[g] = max(errors[g], error)
            status[g] = DONE


@njit(cache=True, nogil=True)
def _attend_box(
    tree: Any, points: Any, first: int, last: int, leaf: bool, rtol: float, mean: Any, others: Any,
    log_partition: Any, found: Any,
) -> tuple[Any, bool, float]:  # fmt: skip
    """(scratch, whether the box was done, bound of its relative error)."""
    rows, columns = last - first, others.shape[1]
    centre, frame, widths = _box(points, first, last)
    nowhere = np.zeros(3)
    reference = np.empty(3)
    log_floor = descend(tree, centre, reference)
    # With its centre known to a relative error e, Jensen's inequality holds for the box up to e + 2 e reach.
    reach = widths[0] + widths[1] + widths[2]
    rough = rtol if rows == 1 else max(rtol, 0.02 / (1.0 + reach))
    found, count, size, error = _within(tree, centre, reference, frame, nowhere, log_floor, rough, 1 << 60, found)
    seen = unpack(tree, found, count, size, reference)
    log_floor = max(log_floor, row_top(seen, centre) - 300.0)
    s0, s1, s2, total = row_sums(seen, centre[0], centre[1], centre[2], log_floor)
    shift = np.array([s0 / total, s1 / total, s2 / total])
    log_floor += math.log(total) - centre[0] * shift[0] - centre[1] * shift[1] - centre[2] * shift[2]
    reference += shift
    for c in range(3):
        seen[c] -= shift[c]
    if rows == 1:
        log_z = log_floor
        for c in range(3):
            mean[first, c] = reference[c]
            log_z += centre[c] * reference[c]
        log_partition[first] = log_z
        if columns > 0:
            value_rows(seen, points, first, last, log_floor, False, others)
        return found, True, error
    log_floor -= 1.1 * rough * (1.0 + 2.0 * reach)
    # Not a bound, only a forecast: no expansion reaches farther than a few standard deviations of its keys.
    far = deviations(seen, centre, frame, widths, log_floor) > _FARTHEST
    if far and rows > _DIRECT_ROWS and not leaf:
        return found, False, 0.0
    limit = 16 * size + 4096
    found, count, size, error = _within(tree, centre, reference, frame, widths, log_floor, rtol, limit, found)
    if size < 0:
        return found, False, 0.0
    seen = unpack(tree, found, count, size, reference)
    orders, cut_off = np.zeros(3, dtype=np.int64), 0.0
    if not far and rows > _FEWEST_ROWS:
        sized = seen if columns == 0 else largest_weights(seen)
        orders, cut_off = orders_for(sized, centre, frame, widths, log_floor, 0.4 * rtol)
    terms = orders[0] * orders[1] * orders[2]
    # Nanoseconds: an expansion costs its bound, exponentials and matrix product; a row one exponential per key.
    expansion = (
        size * (25.0 + orders[0] + orders[1] + 0.2 * orders[0] * orders[2] + 0.12 * terms) + 0.25 * rows * terms
    ) * (1.0 + columns)
    if terms > 0 and expansion < (1.0 + 0.2 * columns) * rows * size:
        if rows > 8 * size + 4096 and not leaf:
            return found, False, 0.0
        coefficients = expand(seen, 3, centre, frame, widths, log_floor, orders)
        evaluate(
            coefficients, orders, points, first, last, centre, frame, widths, reference, log_floor, mean,
            log_partition,
        )  # fmt: skip
        if columns > 0:
            expand_values(
                seen, coefficients, orders, points, first, last, centre, frame, widths, log_floor, others
            )  # fmt: skip
        return found, True, error + cut_off
    if rows > _DIRECT_ROWS and not leaf:
        return found, False, 0.0
    centre_floor = log_floor
    reaches_far = reach > 100.0
    if columns > 0:
        value_rows(seen, points, first, last, log_floor, reaches_far, others)
    for i in range(first, last):
        z0, z1, z2 = points[0, i], points[1, i], points[2, i]
        if reaches_far:  # e^{<z, k - k̄>}/G may overflow
            log_floor = max(centre_floor, row_top(seen, points[:, i]) - 300.0)
        s0, s1, s2, total = row_sums(seen, z0, z1, z2, log_floor)
        mean[i, 0], mean[i, 1], mean[i, 2] = s0 / total, s1 / total, s2 / total
        for c in range(3):
            mean[i, c] += reference[c]
        log_partition[i] = (
            log_floor + math.log(total) + z0 * reference[0] + z1 * reference[1] + z2 * reference[2]
        )  # fmt: skip
    return found, True, error


@njit(cache=True, nogil=True)
def _within(
    tree: Any, z: Any, reference: Any, frame: Any, widths: Any, log_floor: float, rtol: float, limit: int,
    found: Any,
) -> tuple[Any, int, int, float]:  # fmt: skip
    """`walk` with a share per cell that makes the sum of all errors at most 0.6 rtol, in at most four tries."""
    share = rtol / 32.0
    for _ in range(4):
        found, count, size, error = walk(
            tree, z, reference, frame, widths, log_floor, math.log(share), limit, found
        )
        if size < 0 or error <= 0.6 * rtol:
            break
        share *= 0.5 * rtol / error
    return found, count, size, error


@njit(cache=True, nogil=True)
def _box(points: Any, first: int, last: int) -> tuple[Any, Any, Any]:
    """Centre, frame (rows, widest first) and half-widths of the box of some points along their principal axes."""
    step = max((last - first) // 256, 1)
    average = np.zeros(3)
    spread = np.zeros((3, 3))
    used = 0
    for i in range(first, last, step):
        used += 1
        for c in range(3):
            average[c] += points[c, i] - points[c, first]
    average /= used
    for i in range(first, last, step):
        for c in range(3):
            for d in range(3):
                spread[c, d] += (points[c, i] - points[c, first] - average[c]) * (
                    points[d, i] - points[d, first] - average[d]
                )
    frame = np.eye(3)
    scale = spread[0, 0] + spread[1, 1] + spread[2, 2]
    if scale > 0.0 and scale < np.inf:
        frame = np.ascontiguousarray(np.linalg.eigh(spread / scale)[1].T[::-1])
    centre, widths = np.empty(3), np.empty(3)
    at = np.empty(3)
    for c in range(3):
        low, high = np.inf, -np.inf
        for i in range(first, last):
            t = frame[c, 0] * points[0, i] + frame[c, 1] * points[1, i] + frame[c, 2] * points[2, i]
            low, high = min(low, t), max(high, t)
        at[c], widths[c] = 0.5 * (low + high), 0.5 * (high - low)
    for c in range(3):
        centre[c] = frame[0, c] * at[0] + frame[1, c] * at[1] + frame[2, c] * at[2]
    if last - first == 1:
        for c in range(3):
            centre[c], widths[c] = points[c, first], 0.0
    widths[0], widths[1] = max(widths[0], NARROWEST), max(widths[1], NARROWEST)
    return centre, frame, widths
