"""torch's scaled-dot-product attention in its flash form on the CPU, as a kernel of `attend`.

The mass rides in one more column, <[beta q, 1], [k, log m]> = beta <q, k> + log m, and the operator behind
`torch.nn.functional.scaled_dot_product_attention` is called itself, because only it returns the log-partition.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from metastable.errors import InvalidInput


def attend_sdpa(queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """(mean, log Z) of `attend` by torch's flash attention (4-D, one head); O(n d) memory."""
    if queries.device.type != "cpu":
        raise InvalidInput(f'kernel="sdpa" runs on the CPU, got tensors on {queries.device}')
    kept = mass > 0
    if not bool(kept.all()):
        keys, values, mass = keys[kept], values[kept], mass[kept]
    d, d_v = queries.shape[1], values.shape[1]
    width = max(d + 1, d_v)
    q = pad(torch.cat([beta * queries, torch.ones_like(queries[:, :1])], dim=1), (0, width - d - 1))
    k = pad(torch.cat([keys, torch.log(mass)[:, None]], dim=1), (0, width - d - 1))
    v = pad(values, (0, width - d_v))
    mean, log_partition = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q[None, None], k[None, None], v[None, None], 0.0, False, scale=1.0
    )
    return mean[0, 0, :, :d_v], log_partition.reshape(-1)
