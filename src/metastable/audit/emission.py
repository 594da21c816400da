"""What heads emit: along what they attended or against it, and in how many directions a layer's updates go.

With the attended mean m_i = sum_j p_ij s_j of a head, its emission is A m_i, and
    copying = mean_i <A m_i, m_i> / (|A m_i| |m_i|)
is 1 where the head adds to a token what it looked at, and -1 where it takes that away.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.encoders import Layer


def copying(layer: Layer, points: Float[Tensor, "n d"]) -> Float[Tensor, "h"]:
    """Mean cosine between what a head emits and what it attended, for every head on one text.

    Through factors: with m = P s, V m = P (s V^T) and <A m, m> = <V m, O^T m>; |m|^2 needs the Gram matrix of the
    tokens only.
    """
    value, output = layer.values_outputs
    output = layer.norm.centre(output.transpose(1, 2))
    tokens = layer.norm.centre(points)
    values, outputs = (torch.einsum("nd,hrd->hnr", tokens, factor) for factor in (value, output))
    gram, outer = tokens @ tokens.T, output @ output.mT
    total = torch.zeros(len(value), dtype=torch.float64, device=points.device)
    for _, p in layer.attention_blocks(points):
        seen = p @ values
        along = (seen * (p @ outputs)).sum(dim=2)
        emitted = ((seen @ outer) * seen).sum(dim=2).clamp_min(1e-300).sqrt()
        attended = ((p @ gram) * p).sum(dim=2).clamp_min(1e-300).sqrt()
        total += (along / (emitted * attended)).sum(dim=1)
    return total / len(points)


class UpdateMoments:
    """First and second moments of a layer's updates over the tokens of all texts."""

    def __init__(self, d: int) -> None:
        self.count = 0
        self.sum = torch.zeros(d, dtype=torch.float64)
        self.square = torch.zeros(d, d, dtype=torch.float64)

    def add(self, updates: Float[Tensor, "n d"]) -> None:
        """The updates of the tokens of one text."""
        rows = updates.cpu()
        self.count += len(rows)
        self.sum += rows.sum(dim=0)
        self.square += rows.T @ rows

    @property
    def directions(self) -> float:
        """(tr S)^2 / tr S^2 of the covariance S of all updates: in how many directions they differ."""
        centre = self.sum / self.count
        covariance = self.square / self.count - torch.outer(centre, centre)
        squares = float(covariance.square().sum())
        return float(covariance.trace()) ** 2 / squares if squares > 0 else 1.0
