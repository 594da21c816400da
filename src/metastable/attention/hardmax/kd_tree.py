"""Hardmax as a search for nearest neighbours in a kd-tree: few dimensions, keys of any lengths."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from metastable.attention.hardmax.tiles import hardmax_tiled
from metastable.attention.lengths import squared_lengths
from metastable.attention.operands import contiguous

_NEIGHBOURS = (2, 16)
"""Neighbours that a row looks at: first, and again where these may not be all ties; then it looks at all keys."""


def hardmax_tree(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, slack: Tensor, lift_to: float | None
) -> tuple[Tensor, Tensor]:
    """Best keys as nearest neighbours, two of each; rows whose ties may go beyond them see more, then all keys.

    `lift_to` is the length of the longest key where lengths differ, None where they do not.
    """
    from scipy.spatial import cKDTree

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
    for most in _NEIGHBOURS:
        count = min(most, len(k))
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
