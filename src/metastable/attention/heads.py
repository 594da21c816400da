"""`attend_heads`: attention of several heads over the same few tokens, in batched products."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.errors import InvalidInput


def attend_heads(
    queries: Float[Tensor, "h q r"],
    keys: Float[Tensor, "h k r"],
    values: Float[Tensor, "h k v"],
    log_mass: Float[Tensor, "h k"],
) -> Float[Tensor, "h q v"]:
    """m_hi = sum_j e^{<q_hi, k_hj> + l_hj} v_hj / sum_j e^{<q_hi, k_hj> + l_hj}, all scores at once.

    queries (h, n_q, r) have beta in them, log_mass (h, n_k) the logarithm of the masses and whatever else a head
    adds to all scores of a key. For few tokens: all scores are held, in the precision of the queries.

    >>> pair = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]])
    >>> attend_heads(2 * pair[:, :1], pair, pair, torch.zeros(1, 2))[0, 0, 0].item()  # tanh(2)
    0.96402...
    """
    if not all(isinstance(tensor, Tensor) for tensor in (queries, keys, values, log_mass)):
        raise InvalidInput("queries, keys, values and log_mass must be tensors")
    h, n_k, fits = len(keys), keys.shape[1:2], queries.ndim == keys.ndim == values.ndim == 3
    if not fits or queries.shape[::2] != keys.shape[::2] or not (h, *n_k) == values.shape[:2] == log_mass.shape:
        raise InvalidInput(
            "heads need queries (h, n_q, r), keys (h, n_k, r), values (h, n_k, v), log_mass (h, n_k), got shapes "
            f"{', '.join(str(tuple(x.shape)) for x in (queries, keys, values, log_mass))}"
        )
    scores = torch.baddbmm(log_mass[:, None], queries, keys.mT)
    if scores.device.type != "cpu" or scores.requires_grad:
        return torch.softmax(scores, dim=2) @ values
    # numpy in place: torch would share these few numbers among threads, which wait for each other for longer.
    weights = scores.numpy()
    weights -= weights.max(axis=2, keepdims=True)
    np.exp(weights, out=weights)
    total = weights.sum(axis=2, keepdims=True)
    means = torch.bmm(scores, values)
    means.numpy()[...] /= total
    return means
