"""Hardmax attention and the choice among three ways to the same answer.

Tiles of scores (any d), neighbours in sorted angle (unit keys in the plane) and nearest neighbours in a kd-tree
(small d). The largest <q, k> belongs to the key nearest to q in direction when all keys have one length R; others
are lifted there by one more coordinate, sqrt(R^2 - |k|^2), in which queries have 0.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from metastable.arguments import number
from metastable.attention.hardmax.kd_tree import hardmax_tree
from metastable.attention.hardmax.sorted_angles import hardmax_sorted
from metastable.attention.hardmax.tiles import hardmax_tiled
from metastable.attention.inputs import read_operands
from metastable.attention.lengths import squared_lengths

_FEW_PAIRS = 250_000
"""Pairs up to which all scores cost less than sorting keys or building a tree."""
_MOST_COLUMNS = 8
"""Largest d for a kd-tree: its searches visit a share of the tree that grows fast with d."""


def hardmax(
    queries: Any, keys: Any, values: Any = None, mass: Any = None, *, tie: float = 8.0
) -> tuple[Tensor, Tensor]:
    """(mean, best score): the mass-weighted mean of the values of all keys that maximise <q_i, k_j>.

    queries (n_q, d), keys (n_k, d), values (n_k, d_v) or None for the keys, mass (n_k,) or None for equal ones.
    Keys whose scores agree with the maximum to `tie` rounding units of |q_i| max_j|k_j| share the attention in
    proportion to their masses, which is what softmax does as beta -> infinity. Keys of mass zero are not seen.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    >>> hardmax(x, x, x, torch.ones(2, dtype=torch.float64))[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    tie = number(tie, "tie", least=0)
    given = read_operands(queries, keys, values, mass, 1.0)
    return hardmax_unchecked(given.queries, given.keys, given.values, given.mass.to(given.keys.dtype), tie=tie)


def hardmax_unchecked(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, *, tie: float = 8.0
) -> tuple[Tensor, Tensor]:
    """`hardmax` without its checks: for right-hand sides, whose inputs were validated when the run began."""
    if bool(mass.min() <= 0):
        seen = mass > 0
        keys, values, mass = keys[seen], values[seen], mass[seen]
    shortest, longest = (math.sqrt(square) for square in squared_lengths(keys))
    slack = tie * torch.finfo(queries.dtype).eps * longest * torch.linalg.vector_norm(queries, dim=1)
    n, d = queries.shape
    if queries.device.type != "cpu" or d > _MOST_COLUMNS or n * keys.shape[0] <= _FEW_PAIRS or longest == 0.0:
        return hardmax_tiled(queries, keys, values, mass, slack)
    one_length = shortest >= longest * (1.0 - 32 * torch.finfo(queries.dtype).eps)
    if d == 2 and one_length:
        return hardmax_sorted(queries, keys, values, mass, slack)
    return hardmax_tree(queries, keys, values, mass, slack, None if one_length else longest)
