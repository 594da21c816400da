"""The reference kernel: softmax attention with the n_q x n_k matrix written out, row maximum subtracted."""

from __future__ import annotations

import torch
from torch import Tensor


def attend_dense(queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """(mean, log Z) with logits l_ij = beta <q_i, k_j> + log m_j as one dense matrix."""
    logits = beta * (queries @ keys.T) + torch.log(mass)
    top = logits.max(dim=1, keepdim=True).values
    weight = torch.exp(logits - top)
    partition = weight.sum(dim=1, keepdim=True)
    return (weight @ values) / partition, (top + torch.log(partition))[:, 0]
