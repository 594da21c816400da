"""Hardmax by tiles of all scores: any d, any keys, any device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from metastable.attention.exp2 import REDUCTION
from metastable.attention.operands import contiguous
from metastable.threads import blas_can_be_held, over_rows

_ROWS, _KEYS = 256, 2048
"""Rows and keys of a tile: 4 MB of scores in float64."""
_MOST_SCORES = 1 << 24
"""Scores that are held at once on a GPU: 128 MB in float64."""


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
        step = max(_MOST_SCORES // n_k, 1)
        for start in range(0, n, step):
            here = slice(start, start + step)
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
