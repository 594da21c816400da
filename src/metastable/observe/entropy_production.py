"""How the entropy of attention changes while tokens move: minus a covariance under attention itself."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import instance, number, shown
from metastable.errors import InvalidInput
from metastable.measure import as_measure, as_tensor
from metastable.weights import AttentionWeights

PAIRS = 4_000_000
"""Pairs of tokens that are looked at together: blocks of 32 MB in float64."""


def entropy_production(rho: Any, weights: AttentionWeights, beta: float, velocity: Any) -> Float[Tensor, "n"]:
    """dS_i/dt = -Cov_{A_i}(s_i + log m, s_i'), with scores s_ij = beta <x_i, B x_j>, for every token i (V7).

    S_i = -sum_j A_ij log A_ij is `attention_entropy`, A_ij = m_j e^{s_ij}/Z_i; s_ij' is the change of the scores
    when tokens move with `velocity` (n, d), whatever flow it comes from. For equal masses log m has no effect.
    Source: [arXiv:2605.04279]. Time O(n^2), memory O(n).

    >>> identity = AttentionWeights(V=torch.eye(2), B=torch.eye(2))
    >>> points, inward = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]
    >>> [round(s, 6) for s in entropy_production(points, identity, 1.0, inward).tolist()]
    [0.393224, 0.393224]
    """
    beta = number(beta, "beta", least=0)
    measure = as_measure(rho)
    points, mass = measure.points, measure.mass
    instance(weights, "weights", AttentionWeights, "AttentionWeights")
    if measure.d != weights.d:
        raise InvalidInput(f"the tokens have dimension {measure.d} but the weights have dimension {weights.d}")
    moved = as_tensor(velocity, "velocity", points.dtype).to(points.device)
    if moved.shape != points.shape or not bool(torch.isfinite(moved).all()):
        raise InvalidInput(f"velocity must be finite and of shape {tuple(points.shape)}, got {shown(velocity)}")
    w = weights.to(device=points.device, dtype=points.dtype)
    seen = mass > 0
    queries, keys = beta * w.queries(points), w.keys(points[seen])
    turned, shifted = beta * w.queries(moved), w.keys(moved[seen])
    prior = torch.log(mass[seen])
    block = max(1, PAIRS // len(keys))
    parts = []
    for first in range(0, len(points), block):
        rows = slice(first, first + block)
        logits = queries[rows] @ keys.T + prior
        change = turned[rows] @ keys.T + queries[rows] @ shifted.T
        attention = torch.softmax(logits, dim=1)
        centred = logits - (attention * logits).sum(1, keepdim=True)
        parts.append(-(attention * centred * change).sum(1))
    return torch.cat(parts)
