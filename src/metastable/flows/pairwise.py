"""Attention flows as plain arrays: what a compiled loop over many systems needs to know of a right-hand side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from metastable.flows.euclidean import EuclideanAttention
from metastable.flows.flow import Flow
from metastable.flows.multihead import MultiHead
from metastable.flows.softmax import SelfAttention
from metastable.flows.unnormalized import UnnormalizedAttention
from metastable.weights import AttentionWeights


@dataclass(frozen=True, eq=False)
class Pairwise:
    """x_i' = P_{x_i} sum_h V_h y_i^h,   y_i^h = sum_j m_j e^{beta_h <x_i, B_h x_j>} x_j / Z_i^h, of many systems.

    Of an unnormalised head, e^{log_scale} takes the place of Z. The factor of a mean of heads is in V.
    """

    V: Float[np.ndarray, "h d d"]
    B: Float[np.ndarray, "h d d"]
    beta: Float[np.ndarray, "h b"]
    log_scale: Float[np.ndarray, "h b"]
    normalised: Bool[np.ndarray, "h"]
    V_norm: Float[np.ndarray, "h"]
    B_norm: Float[np.ndarray, "h"]
    """Zero where the Lipschitz constant of a head is 2 |V|; see `SelfAttention.rate`."""
    spherical: bool


def pairwise(flow: Flow, b: int) -> Pairwise | None:
    """A flow of b systems as arrays; None where it is more than attention with constant weights."""
    heads, factor = (flow.heads, flow.factor) if type(flow) is MultiHead else ((flow,), 1.0)
    kinds = (SelfAttention, EuclideanAttention, UnnormalizedAttention)
    found: list[SelfAttention | UnnormalizedAttention] = []
    for head in heads:
        # Exactly these classes: a subclass may have a drift of its own.
        if type(head) not in kinds or not isinstance(head, SelfAttention | UnnormalizedAttention):
            return None
        if not isinstance(head.weights, AttentionWeights) or getattr(head, "field", None) is not None:
            return None
        found.append(head)
    weights = [head.weights_at(0.0) for head in found]
    normalised = [isinstance(head, SelfAttention) for head in found]
    spread = [not n or (w.output is None and flow.spherical) for n, w in zip(normalised, weights, strict=True)]
    return Pairwise(
        V=np.stack([factor * w.V.numpy(force=True) for w in weights]),
        B=np.stack([w.B.numpy(force=True) for w in weights]),
        beta=np.stack([_row(head.beta, b) for head in found]),
        log_scale=np.stack([_row(getattr(head, "log_scale", 0.0), b) for head in found]),
        normalised=np.array(normalised),
        V_norm=np.array([factor * w.V_norm for w in weights]),
        B_norm=np.array([w.B_norm if s else 0.0 for w, s in zip(weights, spread, strict=True)]),
        spherical=flow.spherical,
    )


def _row(value: float | Tensor, b: int) -> np.ndarray:
    return np.asarray(torch.as_tensor(value, dtype=torch.float64).expand(b).contiguous().numpy())
