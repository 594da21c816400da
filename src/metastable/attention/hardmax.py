"""Hardmax attention, the limit beta -> infinity at fixed n: every query attends its best key."""

from __future__ import annotations

import torch
from torch import Tensor


def hardmax(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, *, tie: float = 8.0
) -> tuple[Tensor, Tensor]:
    """(mean, best score): the mass-weighted mean of the values of all keys that maximise <q_i, k_j>.

    Keys whose scores agree with the maximum to `tie` rounding units of |q_i| max_j|k_j| share the attention in
    proportion to their masses, which is what softmax does as beta -> infinity. Keys of mass zero are not seen.
    """
    scores = queries @ keys.T
    scores = torch.where(mass > 0, scores, -torch.inf)
    top = scores.max(dim=1, keepdim=True).values
    slack = tie * torch.finfo(scores.dtype).eps * torch.linalg.vector_norm(keys, dim=1).max()
    chosen = torch.where(scores >= top - slack * torch.linalg.vector_norm(queries, dim=1, keepdim=True), mass, 0.0)
    return (chosen @ values) / chosen.sum(dim=1, keepdim=True), top[:, 0]
