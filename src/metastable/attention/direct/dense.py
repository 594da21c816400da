"""The reference kernel: softmax attention with the n_q x n_k matrix written out, row maximum subtracted."""

from __future__ import annotations

import torch
from torch import Tensor

from metastable.attention.operands import Operands


def attend_dense(operands: Operands) -> tuple[Tensor, Tensor]:
    """(mean, log Z) with logits l_ij = beta <q_i, k_j> + log m_j as one dense matrix."""
    logits = operands.beta * (operands.queries @ operands.keys.T) + torch.log(operands.mass)
    top = logits.max(dim=1, keepdim=True).values
    weight = torch.exp(logits - top)
    partition = weight.sum(dim=1, keepdim=True)
    return (weight @ operands.values) / partition, (top + torch.log(partition))[:, 0]
