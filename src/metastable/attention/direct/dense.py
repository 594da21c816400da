"""The reference kernel: softmax attention with the n_q x n_k matrix written out, row maximum subtracted."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from metastable.attention.operands import Operands


def attend_dense(operands: Operands) -> tuple[Tensor, Tensor]:
    """(mean, log Z) with logits l_ij = beta <q_i, k_j> + log(m_j / max m) as one matrix, summed in float64."""
    dtype = operands.queries.dtype
    logits = operands.beta * (operands.queries @ operands.keys.T) + operands.log_shares
    top = logits.max(dim=1, keepdim=True).values
    weight = torch.exp(logits - top).double()
    partition = weight.sum(dim=1, keepdim=True)
    log_partition = top.double() + torch.log(partition) + math.log(operands.mass.max())
    return ((weight @ operands.values.double()) / partition).to(dtype), log_partition[:, 0].to(dtype)
