"""The reference kernel: softmax attention with the n_q x n_k matrix written out, row maximum subtracted."""

from __future__ import annotations

import torch
from torch import Tensor

from metastable.attention.operands import Operands

_SINGLE_KEYS = 512
"""Keys up to which float32 weights are summed in float32; more are summed in float64."""


def dense_additions(operands: Operands) -> float:
    """Float32 additions after one another in a sum."""
    n_k = operands.keys.size(0)
    return float(n_k) if n_k <= _SINGLE_KEYS else 0.0


def attend_dense(operands: Operands) -> tuple[Tensor, Tensor]:
    """(mean, log Z) with logits l_ij = beta <q_i, k_j> + log m_j as one dense matrix."""
    values, dtype = operands.values, operands.queries.dtype
    logits = operands.beta * (operands.queries @ operands.keys.T) + torch.log(operands.mass)
    top = logits.max(dim=1, keepdim=True).values
    weight = torch.exp(logits - top)
    if dtype != torch.float64 and values.size(0) > _SINGLE_KEYS:
        weight, values, top = weight.double(), values.double(), top.double()
    partition = weight.sum(dim=1, keepdim=True)
    mean, log_partition = (weight @ values) / partition, (top + torch.log(partition))[:, 0]
    return (mean, log_partition) if mean.dtype == dtype else (mean.to(dtype), log_partition.to(dtype))
