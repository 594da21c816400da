"""Hardmax attention, the limit beta -> infinity at fixed n: every query attends its best key.

Three ways to the same answer: tiles of scores (any d), neighbours in sorted angle (unit keys in the plane) and
nearest neighbours in a kd-tree (d <= 8). The largest <q, k> belongs to the key nearest to q in direction when all
keys have one length R; others are lifted there by one more coordinate, sqrt(R^2 - |k|^2), in which queries have 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit
from scipy.spatial import cKDTree
from torch import Tensor

from metastable.attention.circle.keys import diamond
from metastable.attention.direct.fused import contiguous
from metastable.attention.exp2 import REDUCTION
from metastable.attention.lengths import squared_lengths
from metastable.threads import blas_can_be_held, over_rows

_ROWS, _KEYS = 256, 2048
_FEW_PAIRS = 250_000
_CROWD = 40


def hardmax(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, *, tie: float = 8.0
) -> tuple[Tensor, Tensor]:
    """(mean, best score): the mass-weighted mean of the values of all keys that maximise <q_i, k_j>.

    Keys whose scores agree with the maximum to `tie` rounding units of |q_i| max_j|k_j| share the attention in
    proportion to their masses, which is what softmax does as beta -> infinity. Keys of mass zero are not seen.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    >>> hardmax(x, x, x, torch.ones(2, dtype=torch.float64))[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if bool(mass.min() <= 0):
        seen = mass > 0
        keys, values, mass = keys[seen], values[seen], mass[seen]
    shortest, longest = (math.sqrt(square) for square in squared_lengths(keys))
    slack = tie * torch.finfo(queries.dtype).eps * longest * torch.linalg.vector_norm(queries, dim=1)
    n, d = queries.shape
    if queries.device.type != "cpu" or d > 8 or n * keys.shape[0] <= _FEW_PAIRS or longest == 0.0:
        return hardmax_tiled(queries, keys, values, mass, slack)
    one_length = shortest >= longest * (1.0 - 32 * torch.finfo(queries.dtype).eps)
    if d == 2 and one_length:
        return hardmax_sorted(queries, keys, values, mass, slack)
    return hardmax_tree(queries, keys, values, mass, slack, None if one_length else longest)


def hardmax_tiled(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, slack: Tensor
) -> tuple[Tensor, Tensor]:
    """All scores, a tile at a time; scores within slack_i of the maximum are ties.

    On the CPU a first pass keeps the maximum of every row and tile, and a second one looks for ties only where they
    can be. Memory: O(n d) and one tile per thread.
    """
    n, n_k = queries.shape[0], keys.shape[0]
    mean = torch.empty((n, values.shape[1]), dtype=values.dtype, device=values.device)
    best = torch.empty(n, dtype=queries.dtype, device=queries.device)
    if queries.device.type != "cpu":
        for start in range(0, n, max((1 << 24) // n_k, 1)):
            here = slice(start, start + max((1 << 24) // n_k, 1))
            scores = queries[here] @ keys.T
            top = scores.max(dim=1, keepdim=True).values
            chosen = torch.where(scores >= top - slack[here, None], mass, 0.0)
            mean[here] = (chosen @ values) / chosen.sum(dim=1, keepdim=True)
            best[here] = top[:, 0]
        return mean, best
    keys, size = keys.contiguous(), torch.linalg.vector_norm(queries, dim=1)
    rounding = 4.0 * torch.finfo(queries.dtype).eps * float(torch.linalg.vector_norm(keys, dim=1).max()) * size
    k, m, v = contiguous(keys), contiguous(mass), contiguous(values)

    def block_of_rows(start: int, stop: int) -> None:
        buffer = torch.empty(_ROWS * min(_KEYS, n_k), dtype=queries.dtype)
        for first in range(start, stop, _ROWS):
            here = slice(first, min(first + _ROWS, stop))
            q = queries[here].contiguous()
            tops = np.empty((q.shape[0], -(-n_k // _KEYS)))
            for number, key in enumerate(range(0, n_k, _KEYS)):
                some = keys[key : key + _KEYS]
                tile = buffer[: q.shape[0] * some.shape[0]].view(q.shape[0], some.shape[0])
                torch.mm(q, some.T, out=tile)
                _row_maxima(tile.numpy(), tops[:, number])
            near = (slack[here].numpy(), rounding[here].numpy())
            _ties_in_tiles(q.numpy(), k, tops, *near, m, v, mean[here].numpy(), best[here].numpy())

    if blas_can_be_held():
        over_rows(block_of_rows, n, cost=n * n_k * (0.5 + 0.05 * queries.shape[1]), quantum=_ROWS)
    else:
        block_of_rows(0, n)
    return mean, best


@njit(nogil=True, cache=True, fastmath=REDUCTION, error_model="numpy")
def _row_maxima(tile: Any, tops: Any) -> None:
    for i in range(tile.shape[0]):
        row = tile[i]
        top = row[0]
        for j in range(row.shape[0]):
            top = row[j] if row[j] > top else top
        tops[i] = top


@njit(nogil=True, cache=True, error_model="numpy")
def _ties_in_tiles(
    queries: Any, keys: Any, tops: Any, slack: Any, rounding: Any, mass: Any, values: Any, mean: Any, best: Any
) -> None:
    """Scores of a row again, only in tiles whose maximum is near the row's; the second pass adds the ties."""
    n, d, width = keys.shape[0], keys.shape[1], values.shape[1]
    total = np.empty(width)
    for i in range(queries.shape[0]):
        least = tops[i].max() - slack[i] - rounding[i]
        top, weight = -np.inf, 0.0
        total[:] = 0.0
        for adding in (False, True):
            for number in range(tops.shape[1]):
                if tops[i, number] < least:
                    continue
                for j in range(number * _KEYS, min((number + 1) * _KEYS, n)):
                    score = 0.0
                    for c in range(d):
                        score += queries[i, c] * keys[j, c]
                    if not adding:
                        top = max(top, score)
                    elif score >= top - slack[i]:
                        weight += mass[j]
                        for c in range(width):
                            total[c] += mass[j] * values[j, c]
        for c in range(width):
            mean[i, c] = total[c] / weight
        best[i] = top


def hardmax_sorted(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, slack: Tensor
) -> tuple[Tensor, Tensor]:
    """Keys of one length in the plane: scores fall on both sides of the query's angle, so ties are neighbours.

    Angles are diamond angles (`circle.keys`), counted in about n slots: the keys of a slot are sorted by
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

    def rows(start: int, stop: int) -> None:
        here = slice(start, stop)
        _best_on_circle(q[here], k, first, allowed[here], order, value, means[here], tops[here], tied[here])

    over_rows(rows, len(q), cost=60.0 * len(q))
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
        if first[s + 1] - first[s] > _CROWD:
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
    if high - low > 8:
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


def hardmax_tree(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, slack: Tensor, lift_to: float | None
) -> tuple[Tensor, Tensor]:
    """Best keys as nearest neighbours, two of each; rows whose ties may go beyond them see more, then all keys."""
    q, k, m, v, allowed = (contiguous(x.double()) for x in (queries, keys, mass, values, slack))
    radius = math.sqrt(squared_lengths(keys)[1])
    place, boxes = np.empty((len(q), q.shape[1] + (lift_to is not None))), np.empty(len(q), dtype=np.int32)
    _place(q, radius, place, boxes)
    lifted = k
    if lift_to is not None:
        height = np.sqrt(np.maximum(lift_to**2 - np.einsum("jc,jc->j", k, k), 0.0))
        lifted = np.concatenate([k, height[:, None]], axis=1)
    tree = cKDTree(lifted, leafsize=24, balanced_tree=False)
    mean, best = np.empty((len(q), values.shape[1])), np.empty(len(q))
    # Neighbouring queries walk the same branches: in the order of coarse boxes they find them in the cache.
    rows = np.argsort(boxes, kind="stable")
    for count in (2, 16):
        count = min(count, len(k))
        _, found = tree.query(place[rows], k=count, workers=torch.get_num_threads())
        unsure = np.zeros(len(rows), dtype=np.bool_)
        neighbours, more = found.reshape(len(rows), count), count < len(k)
        _ties_among(rows, neighbours, q, k, m, v, allowed, radius, more, mean, best, unsure)
        rows = rows[unsure]
        if len(rows) == 0:
            break
    attended, score = torch.from_numpy(mean).to(values.dtype), torch.from_numpy(best).to(queries.dtype)
    if len(rows) > 0:
        left = torch.from_numpy(rows)
        attended[left], score[left] = _among_distinct(queries[left], keys, values, mass, slack[left])
    return attended, score


@njit(nogil=True, cache=True, error_model="numpy")
def _place(queries: Any, radius: float, place: Any, boxes: Any) -> None:
    """Queries brought to the length of the keys (further coordinates zero), and a coarse box of each."""
    d = queries.shape[1]
    for i in range(queries.shape[0]):
        square = 0.0
        for c in range(d):
            square += queries[i, c] * queries[i, c]
        scale = radius / math.sqrt(square) if square > 0.0 else 0.0
        box = 0
        for c in range(place.shape[1]):
            place[i, c] = queries[i, c] * scale if c < d else 0.0
            if c < 3:
                box = 32 * box + int((place[i, c] / radius + 1.0) * 15.99)
        boxes[i] = box


@njit(nogil=True, cache=True, error_model="numpy")
def _ties_among(
    rows: Any,
    found: Any,
    queries: Any,
    keys: Any,
    mass: Any,
    values: Any,
    slack: Any,
    radius: float,
    more: bool,
    mean: Any,
    best: Any,
    unsure: Any,
) -> None:
    """Ties among the neighbours found; `unsure` where the last of them is too good to rule out more."""
    count, width, d = found.shape[1], mean.shape[1], queries.shape[1]
    scores = np.empty(count)
    for r in range(rows.shape[0]):
        i = rows[r]
        top, square = -np.inf, 0.0
        for c in range(d):
            square += queries[i, c] * queries[i, c]
        for a in range(count):
            score = 0.0
            for c in range(d):
                score += queries[i, c] * keys[found[r, a], c]
            scores[a] = score
            top = max(top, score)
        weight = 0.0
        for c in range(width):
            mean[i, c] = 0.0
        for a in range(count):
            if scores[a] >= top - slack[i]:
                j = found[r, a]
                weight += mass[j]
                for c in range(width):
                    mean[i, c] += mass[j] * values[j, c]
        for c in range(width):
            mean[i, c] /= weight
        best[i] = top
        # Neighbours are ranked by rounded squared distances: the last one must be clearly worse.
        margin = 32 * 2.220446049250313e-16 * radius * math.sqrt(square)
        unsure[r] = more and scores[count - 1] >= top - slack[i] - margin


def _among_distinct(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, slack: Tensor
) -> tuple[Tensor, Tensor]:
    """Tiles over the distinct keys, each with the whole mass and the mean value of its copies."""
    distinct, which = torch.unique(keys, dim=0, return_inverse=True)
    if len(distinct) == len(keys):
        return hardmax_tiled(queries, keys, values, mass, slack)
    total = torch.zeros(len(distinct), dtype=mass.dtype).index_add_(0, which, mass)
    value = torch.zeros((len(distinct), values.shape[1]), dtype=values.dtype)
    value.index_add_(0, which, mass[:, None] * values)
    return hardmax_tiled(queries, distinct, value / total[:, None], total, slack)
