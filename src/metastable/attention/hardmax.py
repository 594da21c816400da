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

from metastable.attention.exp2 import REDUCTION
from metastable.attention.fused import contiguous
from metastable.threads import blas_can_be_held, over_rows

_ROWS, _KEYS = 256, 2048
_FEW_PAIRS = 250_000
_NEIGHBOURS = 3


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
    if bool((mass <= 0).any()):
        seen = mass > 0
        keys, values, mass = keys[seen], values[seen], mass[seen]
    length = torch.linalg.vector_norm(keys, dim=1)
    longest = float(length.max())
    slack = tie * torch.finfo(queries.dtype).eps * longest * torch.linalg.vector_norm(queries, dim=1)
    n, d = queries.shape
    if queries.device.type != "cpu" or d > 8 or n * keys.shape[0] <= _FEW_PAIRS or longest == 0.0:
        return hardmax_tiled(queries, keys, values, mass, slack)
    one_length = float(length.min()) >= longest * (1.0 - 32 * torch.finfo(queries.dtype).eps)
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
    """Keys of one length in the plane: scores fall on both sides of the query's angle, so ties are neighbours."""
    q, k = queries.double().numpy(), keys.double().numpy()
    angle = np.arctan2(k[:, 1], k[:, 0])
    order = np.argsort(angle)
    angle, k = angle[order], np.ascontiguousarray(k[order])
    weights = mass.double().numpy()[order]
    sums = _pyramid(np.column_stack([weights[:, None] * values.double().numpy()[order], weights]))
    direction = np.arctan2(q[:, 1], q[:, 0])
    near = np.searchsorted(angle, direction)
    far = np.searchsorted(angle, np.where(direction > 0.0, direction - math.pi, direction + math.pi))
    mean, best = np.empty((len(q), values.shape[1])), np.empty(len(q))
    allowed = slack.double().numpy()

    def rows(start: int, stop: int) -> None:
        here = slice(start, stop)
        _ties_on_circle(q[here], k, near[here], far[here], allowed[here], sums, mean[here], best[here])

    over_rows(rows, len(q), cost=200.0 * len(q))
    return torch.from_numpy(mean).to(values.dtype), torch.from_numpy(best).to(queries.dtype)


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
def _ties_on_circle(
    queries: Any, keys: Any, near: Any, far: Any, slack: Any, tree: Any, mean: Any, best: Any
) -> None:
    n, width = keys.shape[0], mean.shape[1]
    total = np.empty(width + 1)
    for i in range(queries.shape[0]):
        q = queries[i]
        at, top = 0, -np.inf
        for offset in range(-2, 2):
            j = (near[i] + offset) % n
            score = q[0] * keys[j, 0] + q[1] * keys[j, 1]
            if score > top:
                at, top = j, score
        above = (far[i] - 1 - at) % n
        up = _reach(q, keys, at, 1, above, top - slack[i])
        down = _reach(q, keys, at, -1, n - 1 - above, top - slack[i])
        total[:] = 0.0
        if up + down + 1 >= n:
            total += tree[1]
        else:
            start = at - down
            if start < 0:
                _add_range(tree, start + n, n, total)
                _add_range(tree, 0, at + up + 1, total)
            elif at + up >= n:
                _add_range(tree, start, n, total)
                _add_range(tree, 0, at + up + 1 - n, total)
            else:
                _add_range(tree, start, at + up + 1, total)
        for c in range(width):
            mean[i, c] = total[c] / total[width]
        best[i] = top


def hardmax_tree(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, slack: Tensor, lift_to: float | None
) -> tuple[Tensor, Tensor]:
    """Best keys as nearest neighbours; rows whose ties go beyond the neighbours found are done by tiles."""
    q, k = queries.double(), keys.double()
    radius = float(torch.linalg.vector_norm(k, dim=1).max())
    size = torch.linalg.vector_norm(q, dim=1)
    seen = size > 0
    place = torch.where(seen, radius / torch.where(seen, size, 1.0), 0.0)[:, None] * q
    if lift_to is not None:
        height = torch.sqrt(torch.clamp(lift_to**2 - torch.linalg.vecdot(k, k), min=0.0))
        k, place = torch.cat([k, height[:, None]], dim=1), torch.nn.functional.pad(place, (0, 1))
    # Neighbouring queries walk the same branches: in the order of coarse boxes they find them in the cache.
    where = place.numpy()
    boxes = np.floor((where[:, :3] / radius + 1.0) * 31.99).astype(np.int64)
    order = np.argsort(boxes @ (64 ** np.arange(boxes.shape[1])), kind="stable")
    count = min(_NEIGHBOURS, len(k))
    tree = cKDTree(k.numpy(), balanced_tree=False)
    _, found = tree.query(where[order], k=count, workers=torch.get_num_threads())
    mean, best = np.empty((len(q), values.shape[1])), np.empty(len(q))
    unsure = np.zeros(len(q), dtype=np.bool_)
    # Neighbours are ranked by rounded squared distances: the last one must be clearly worse.
    margin = (32 * np.finfo(np.float64).eps * radius * size).numpy()
    arrays: list[Any] = [contiguous(x.double()) for x in (q, keys, mass, values, slack)]
    ties: Any = _ties_among
    ties(order, found.reshape(len(q), count), *arrays, margin, count < len(k), mean, best, unsure)
    attended, score = torch.from_numpy(mean).to(values.dtype), torch.from_numpy(best).to(queries.dtype)
    if unsure.any():
        rows = torch.from_numpy(unsure)
        attended[rows], score[rows] = _among_distinct(queries[rows], keys, values, mass, slack[rows])
    return attended, score


@njit(nogil=True, cache=True, error_model="numpy")
def _ties_among(
    order: Any,
    found: Any,
    queries: Any,
    keys: Any,
    mass: Any,
    values: Any,
    slack: Any,
    margin: Any,
    more: bool,
    mean: Any,
    best: Any,
    unsure: Any,
) -> None:
    """Ties among the neighbours found; `unsure` where the last of them is too good to rule out more."""
    count, width = found.shape[1], mean.shape[1]
    scores = np.empty(count)
    for place in range(order.shape[0]):
        i = order[place]
        top = -np.inf
        for a in range(count):
            scores[a] = 0.0
            for c in range(queries.shape[1]):
                scores[a] += queries[i, c] * keys[found[place, a], c]
            top = max(top, scores[a])
        weight = 0.0
        mean[i] = 0.0
        for a in range(count):
            if scores[a] >= top - slack[i]:
                j = found[place, a]
                weight += mass[j]
                for c in range(width):
                    mean[i, c] += mass[j] * values[j, c]
        mean[i] /= weight
        best[i] = top
        unsure[i] = more and scores[count - 1] >= top - slack[i] - margin[i]


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
