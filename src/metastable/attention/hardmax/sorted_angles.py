"""Hardmax for keys of one length in the plane, by their order in angle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from metastable.attention.diamond import diamond
from metastable.attention.exp2 import REDUCTION
from metastable.attention.operands import contiguous
from metastable.threads import over_rows

_MOST_IN_SLOT = 40
"""Keys of one slot up to which they are sorted by insertion; with more in any slot, all keys are sorted at once."""
_SEARCHED = 8
"""Keys of one slot beyond which a place in it is found by halving it."""


def hardmax_sorted(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, slack: Tensor
) -> tuple[Tensor, Tensor]:
    """Keys of one length in the plane: scores fall on both sides of the query's angle, so ties are neighbours.

    Angles are diamond angles (`attention.diamond`), counted in about n slots: the keys of a slot are sorted by
    themselves, and the first one of each stands in for a binary search. Only rows with a tie need sums over ranges.
    """
    q, k = contiguous(queries.double()), contiguous(keys.double())
    angle = np.empty(len(k))
    _diamonds(k, angle)
    first = _slots(angle, 1 << max(len(k) - 1, 1).bit_length())
    order = np.empty(len(k), dtype=np.int32)
    if not _sort_slots(angle, first, order):
        order = np.argsort(angle).astype(np.int32)
    k = k[order]
    weights, value = contiguous(mass.double()), contiguous(values.double())
    mean, best = (
        torch.empty((len(q), values.shape[1]), dtype=torch.float64),
        torch.empty(len(q), dtype=torch.float64),
    )
    means, tops, allowed = mean.numpy(), best.numpy(), contiguous(slack.double())
    tied = np.empty(len(q), dtype=np.bool_)

    def best_keys(start: int, stop: int) -> None:
        here = slice(start, stop)
        _best_on_circle(q[here], k, first, allowed[here], order, value, means[here], tops[here], tied[here])

    over_rows(best_keys, len(q), cost=60.0 * len(q))
    some = np.flatnonzero(tied)
    if len(some) > 0:
        start, length = np.empty(len(some), dtype=np.int64), np.empty(len(some), dtype=np.int64)

        def tied_rows(low: int, high: int) -> None:
            _tied_ranges(some[low:high], q, k, first, allowed, start[low:high], length[low:high])

        over_rows(tied_rows, len(some), cost=200.0 * len(some))
        if length.sum() < len(k):
            _means_of_ranges(some, start, length, order, weights, value, means)
        else:
            sums = _pyramid(np.column_stack([weights[order, None] * value[order], weights[order]]))
            _means_from_tree(some, start, length, len(k), sums, means)
    return torch.from_numpy(means).to(values.dtype), torch.from_numpy(tops).to(queries.dtype)


@njit(nogil=True, cache=True, fastmath=REDUCTION, error_model="numpy")
def _diamonds(points: Any, angle: Any) -> None:
    for i in range(points.shape[0]):
        angle[i] = diamond(points[i, 0], points[i, 1])


@njit(nogil=True, cache=True, error_model="numpy")
def _slots(angle: Any, count: int) -> Any:
    """first[s] = number of angles in the slots before s, of `count` equal ones that cut [0, 4]."""
    first = np.zeros(count + 1, dtype=np.int32)
    scale = count / 4.0
    for j in range(angle.shape[0]):
        first[min(int(angle[j] * scale), count - 1) + 1] += 1
    for s in range(count):
        first[s + 1] += first[s]
    return first


@njit(nogil=True, cache=True, error_model="numpy")
def _sort_slots(angle: Any, first: Any, order: Any) -> bool:
    """order = argsort of the angles, slot by slot; False, and nothing done, where a slot holds too many of them."""
    count = first.shape[0] - 1
    scale = count / 4.0
    for s in range(count):
        if first[s + 1] - first[s] > _MOST_IN_SLOT:
            return False
    free = first[:-1].copy()
    for j in range(angle.shape[0]):
        s = min(int(angle[j] * scale), count - 1)
        place = free[s]
        free[s] += 1
        while place > first[s] and angle[order[place - 1]] > angle[j]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = j
    return True


@njit(nogil=True, cache=True, error_model="numpy")
def _position(keys: Any, first: Any, x: float, y: float) -> tuple[int, int]:
    """Places low <= high of sorted keys with all keys of smaller angle than (x, y) before high, others from low on.

    They are the ends of the slot, or one place by binary search where the slot is crowded.
    """
    count, at = first.shape[0] - 1, diamond(x, y)
    slot = min(int(at * (count / 4.0)), count - 1)
    low, high = first[slot], first[slot + 1]
    if high - low > _SEARCHED:
        while low < high:
            middle = (low + high) // 2
            if diamond(keys[middle, 0], keys[middle, 1]) < at:
                low = middle + 1
            else:
                high = middle
    return low, high


@njit(nogil=True, cache=True, error_model="numpy")
def _best_place(keys: Any, first: Any, x: float, y: float) -> tuple[int, float]:
    """(place, score) of the best key: in the slot of the query, or of two on either side of it.

    Two, because rounding may have put the nearest ones in the wrong order.
    """
    n = keys.shape[0]
    low, high = _position(keys, first, x, y)
    at, top = 0, -np.inf
    if low >= 2 and high <= low + 3 and low + 5 <= n:
        # As most often; a loop of fixed length, which the processor need not guess.
        near = keys[low - 2 : low + 5]
        for j in range(7):
            score = x * near[j, 0] + y * near[j, 1]
            at = j if score > top else at
            top = score if score > top else top
        return low - 2 + at, top
    for place in range(low - 2, high + 2):
        score = x * keys[place % n, 0] + y * keys[place % n, 1]
        if score > top:
            at, top = place % n, score
    return at, top


@njit(nogil=True, cache=True, error_model="numpy")
def _best_on_circle(
    queries: Any, keys: Any, first: Any, slack: Any, order: Any, values: Any, mean: Any, best: Any, tied: Any
) -> None:
    """The best key of every query and whether a neighbour of it ties."""
    n = keys.shape[0]
    for i in range(queries.shape[0]):
        x, y = queries[i, 0], queries[i, 1]
        at, top = _best_place(keys, first, x, y)
        above, below = at + 1 if at + 1 < n else 0, at - 1 if at > 0 else n - 1
        second = max(x * keys[above, 0] + y * keys[above, 1], x * keys[below, 0] + y * keys[below, 1])
        tied[i] = n > 1 and second >= top - slack[i]
        best[i] = top
        for c in range(mean.shape[1]):
            mean[i, c] = values[order[at], c]


def _pyramid(leaves: np.ndarray) -> np.ndarray:
    """Binary tree of sums, root in row 1 and leaves in rows size..2 size: sums of ranges without cancellation."""
    size = 1 << max(math.ceil(math.log2(len(leaves))), 0)
    tree = np.zeros((2 * size, leaves.shape[1]))
    tree[size : size + len(leaves)] = leaves
    while size > 1:
        size //= 2
        tree[size : 2 * size] = tree[2 * size : 4 * size : 2] + tree[2 * size + 1 : 4 * size : 2]
    return tree


@njit(nogil=True, cache=True, error_model="numpy")
def _reach(q: Any, keys: Any, at: int, step: int, most: int, least: float) -> int:
    """How many of the `most` keys beyond `at` in the direction of `step` have scores >= `least`; by doubling steps.

    `most` ends before the antipode of the query, so that scores fall all the way.
    """
    n = keys.shape[0]
    inside, outside, stride = 0, most + 1, 1
    while inside + stride < outside:
        j = (at + step * (inside + stride)) % n
        if q[0] * keys[j, 0] + q[1] * keys[j, 1] < least:
            outside = inside + stride
        else:
            inside += stride
            stride *= 2
    while outside - inside > 1:
        middle = (inside + outside) // 2
        j = (at + step * middle) % n
        if q[0] * keys[j, 0] + q[1] * keys[j, 1] < least:
            outside = middle
        else:
            inside = middle
    return inside


@njit(nogil=True, cache=True, error_model="numpy")
def _add_range(tree: Any, start: int, stop: int, total: Any) -> None:
    """total += sum of the leaves start..stop-1."""
    size = tree.shape[0] // 2
    low, high = start + size, stop + size
    while low < high:
        if low & 1:
            total += tree[low]
            low += 1
        if high & 1:
            high -= 1
            total += tree[high]
        low //= 2
        high //= 2


@njit(nogil=True, cache=True, error_model="numpy")
def _tied_ranges(rows: Any, queries: Any, keys: Any, first: Any, slack: Any, start: Any, length: Any) -> None:
    """First place, and number, of the sorted keys around the best one that tie, for the given rows."""
    n = keys.shape[0]
    for r in range(rows.shape[0]):
        q = queries[rows[r]]
        at, top = _best_place(keys, first, q[0], q[1])
        above = (_antipode(keys, first, q[0], q[1]) - 1 - at) % n
        up = _reach(q, keys, at, 1, above, top - slack[rows[r]])
        down = _reach(q, keys, at, -1, n - 1 - above, top - slack[rows[r]])
        start[r], length[r] = (at - down) % n, min(up + down + 1, n)


@njit(nogil=True, cache=True, error_model="numpy")
def _means_of_ranges(rows: Any, start: Any, length: Any, order: Any, mass: Any, values: Any, mean: Any) -> None:
    n, width = order.shape[0], mean.shape[1]
    for r in range(rows.shape[0]):
        total = 0.0
        mean[rows[r]] = 0.0
        for place in range(start[r], start[r] + length[r]):
            j = order[place % n]
            total += mass[j]
            for c in range(width):
                mean[rows[r], c] += mass[j] * values[j, c]
        mean[rows[r]] /= total


@njit(nogil=True, cache=True, error_model="numpy")
def _means_from_tree(rows: Any, start: Any, length: Any, n: int, tree: Any, mean: Any) -> None:
    width = mean.shape[1]
    total = np.empty(width + 1)
    for r in range(rows.shape[0]):
        total[:] = 0.0
        if length[r] == n:
            total += tree[1]
        else:
            _add_range(tree, start[r], min(start[r] + length[r], n), total)
            _add_range(tree, 0, max(start[r] + length[r] - n, 0), total)
        for c in range(width):
            mean[rows[r], c] = total[c] / total[width]


@njit(nogil=True, cache=True, error_model="numpy")
def _antipode(keys: Any, first: Any, x: float, y: float) -> int:
    """Number of sorted keys of smaller angle than -(x, y)."""
    low, high = _position(keys, first, -x, -y)
    at = diamond(-x, -y)
    while low < high and diamond(keys[low, 0], keys[low, 1]) < at:
        low += 1
    return low
