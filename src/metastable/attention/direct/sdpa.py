"""torch's scaled-dot-product attention in its flash form on the CPU, as a kernel of `attend`.

Unequal masses ride in one more column, <[beta q, 1], [k, log m]> = beta <q, k> + log m, m over the largest of them;
equal ones only shift the log-partition. The operator behind `torch.nn.functional.scaled_dot_product_attention` is
called itself, because only it returns the log-partition. It sums in the precision of the tensors, in an order of
its own: for one query, all keys one after the other.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from metastable.attention.operands import Operands


def attend_sdpa(operands: Operands) -> tuple[Tensor, Tensor]:
    """(mean, log Z) of `attend` by torch's flash attention (4-D, one head); O(n d) memory."""
    operands.require_cpu("sdpa")
    operands = operands.seen
    queries, keys, values, mass = operands.queries, operands.keys, operands.values, operands.mass
    if len(queries) == 0:  # which the operator divides by
        return queries.new_empty(0, values.shape[1]), queries.new_empty(0)
    d_v, scale, largest = values.shape[1], operands.beta, float(mass.max())
    if not bool((mass == largest).all()):
        queries = torch.cat([scale * queries, torch.ones_like(queries[:, :1])], dim=1)
        keys = torch.cat([keys, operands.log_shares[:, None]], dim=1)
        scale = 1.0
    width = max(queries.shape[1], d_v)
    # The operator reads rows of strided tensors wrongly, so it gets contiguous ones.
    q, k, v = (pad(x, (0, width - x.shape[1])).contiguous()[None, None] for x in (queries, keys, values))
    mean, log_partition = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, False, scale=scale
    )
    log_z = log_partition.reshape(-1).double() + math.log(largest)
    return mean[0, 0, :, :d_v], log_z.to(operands.queries.dtype)
