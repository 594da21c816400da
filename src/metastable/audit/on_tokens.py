"""What attention does with the tokens of one text: entropy, sinks, kappa, and how many directions they fill."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.encoders import Layer


def attention_summary(
    layer: Layer, points: Float[Tensor, "n d"]
) -> tuple[Float[Tensor, "h"], Float[Tensor, "h"], Tensor]:
    """Per head: mean entropy / log n, largest column mean (sink mass), and where that column stands (0, -1, 1).

    Attention is formed by blocks of queries; only the column sums are kept.
    """
    n = len(points)
    entropy = torch.zeros(len(layer.heads), dtype=torch.float64, device=points.device)
    received = torch.zeros(len(layer.heads), n, dtype=torch.float64, device=points.device)
    for _, p in layer.attention_blocks(points):
        entropy += torch.special.entr(p).sum(dim=(1, 2))
        received += p.sum(dim=1)
    share, column = (received / n).max(dim=1)
    place = torch.where(column == 0, 0, torch.where(column == n - 1, -1, 1))
    return entropy / (n * math.log(n)) if n > 1 else torch.zeros_like(entropy), share, place


def kappas(layer: Layer, points: Float[Tensor, "n d"]) -> Float[Tensor, "h n"]:
    """|C (B_h^T s + g_h)| for every head and token, through the factors (RoPE: for two tokens at one place)."""
    query, key = layer.queries_keys
    key = layer.norm.centre(key)
    q = torch.einsum("nd,hrd->hnr", points, query) + layer.query_shift[:, None]
    return torch.sqrt(((q @ (key @ key.mT)) * q).sum(dim=2).clamp_min(0))


def participation(points: Float[Tensor, "n d"]) -> float:
    """(tr S)^2 / tr S^2 of the covariance S: the number of directions that a cloud of tokens fills."""
    centred = points - points.mean(dim=0)
    squares = torch.linalg.svdvals(centred).square()
    return float(squares.sum() ** 2 / squares.square().sum().clamp_min(1e-300)) if float(squares.sum()) > 0 else 1.0
