"""What heads emit: along what they attended or against it, and in how many directions a layer's updates go.

With the attended mean m_i = sum_j p_ij s_j of a head, its emission is A m_i, and
    copying = mean_i <A m_i, m_i> / (|A m_i| |m_i|)
is 1 where the head adds to a token what it looked at, and -1 where it takes that away.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

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


GROUPS = 4
"""Groups of texts that are left out in turn for the standard error of the directions."""


class UpdateMoments:
    """First and second moments of a layer's updates over the tokens of all texts, by groups of texts."""

    def __init__(self, d: int) -> None:
        self.texts = 0
        self.count = [0] * GROUPS
        self.sum = torch.zeros(GROUPS, d, dtype=torch.float64)
        self.square = torch.zeros(GROUPS, d, d, dtype=torch.float64)

    def add(self, updates: Float[Tensor, "n d"]) -> None:
        """The updates of the tokens of one text."""
        rows, group = updates.cpu(), self.texts % GROUPS
        self.texts += 1
        self.count[group] += len(rows)
        self.sum[group] += rows.sum(dim=0)
        self.square[group] += rows.T @ rows

    @property
    def directions(self) -> float:
        """(tr S)^2 / tr S^2 of the covariance S of all updates: in how many directions they differ."""
        return self._participation(range(GROUPS))

    @property
    def error(self) -> float:
        """Its standard error, sqrt((g - 1)/g sum_k (D_k - mean)^2), D_k without group k of g; 0 for one text."""
        groups = range(min(self.texts, GROUPS))
        if len(groups) < 2:
            return 0.0
        without = [self._participation([k for k in groups if k != left]) for left in groups]
        return math.sqrt((len(groups) - 1) * statistics.pvariance(without))

    def _participation(self, groups: Sequence[int]) -> float:
        index = list(groups)
        count = sum(self.count[k] for k in index)
        centre = self.sum[index].sum(dim=0) / count
        covariance = self.square[index].sum(dim=0) / count - torch.outer(centre, centre)
        squares = float(covariance.square().sum())
        return float(covariance.trace()) ** 2 / squares if squares > 0 else 1.0
