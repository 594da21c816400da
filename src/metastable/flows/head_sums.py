"""`head_sums`: partition and attended vectors of many symmetric heads at once, from all scores."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

SCORES_AT_ONCE = 1 << 22
"""Scores H n^2 that are held together, 32 MB in float64; more heads go in turns."""


def head_sums(
    points: Float[Tensor, "*m n d"], mass: Float[Tensor, "n"], heads: Float[Tensor, "*m h d d"]
) -> tuple[Float[Tensor, "*m h n"], Float[Tensor, "*m h n d"]]:
    """log Z_i^h = log sum_j m_j e^{<x_i, D_h x_j>} and w_i^h = sum_j m_j e^{<x_i, D_h x_j>} D_h x_j/Z_i^h.

    Tokens at m times with their weights are as many problems at once.

    >>> log_z, w = head_sums(torch.eye(2), torch.tensor([0.5, 0.5]), torch.zeros(1, 2, 2))
    >>> log_z.abs().max().item(), w.abs().max().item()
    (0.0, 0.0)
    """
    turn = max(1, SCORES_AT_ONCE // (points[..., 0].numel() * points.shape[-2]))
    parts = [_sums(points, mass, part) for part in heads.split(turn, dim=-3)]
    if len(parts) == 1:
        return parts[0]
    return torch.cat([z for z, _ in parts], dim=-2), torch.cat([w for _, w in parts], dim=-3)


def _sums(points: Tensor, mass: Tensor, heads: Tensor) -> tuple[Tensor, Tensor]:
    rows = points.unsqueeze(-3)
    turned = rows @ heads  # rows D_h x_j, for symmetric D_h
    scores = turned @ rows.mT
    top = scores.amax(dim=-1, keepdim=True)
    weight = torch.exp(scores.sub_(top)).mul_(mass)
    total = weight.sum(dim=-1, keepdim=True)
    return (torch.log(total) + top).squeeze(-1), weight @ turned / total
