"""From where layers are iterated: tokens of texts and random tokens, of several numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.encoders import Encoder, Layer

LENGTHS = (16, 32, 64)
"""Numbers of tokens that starts have, in turn. The first is the smallest from which anything is said.

With fewer tokens the loop is a matter of luck: in layer 1 of all-MiniLM-L6-v2 half of the starts of 16 tokens end
elsewhere than those of 64.
"""
STARTS = 24
"""Starts of every layer. A layer that does the same from all of them does so from at least 86% (95% interval)."""
TEXT_STARTS = 16
"""Starts that are tokens of texts, at most, each of a text of its own; the others are random tokens."""


@dataclass(frozen=True, eq=False)
class Start:
    """Tokens on the unit sphere from which a layer is iterated, and where they are from.

    kind: "text", "image" or "sequence" for tokens that the layer sees of one, or "random".
    """

    kind: str
    points: Float[Tensor, "n d"]


def text_starts(encoder: Encoder, texts: Sequence[Any]) -> list[Float[Tensor, "layers n d"]]:
    """Tokens that every layer sees of up to `TEXT_STARTS` texts, 16, 32, 64, 16, ... of them, spread over the text.

    A text that has fewer gives the next smaller number; one with fewer than 16 tokens gives no start.
    """
    found: list[Tensor] = []
    for i in torch.linspace(0, len(texts) - 1, min(len(texts), TEXT_STARTS)).round().long().tolist():
        points = encoder.points([texts[i]])[0]
        wanted = LENGTHS[len(found) % len(LENGTHS)]
        fitting = [n for n in LENGTHS if n <= min(wanted, points.shape[1])]
        if fitting:
            found.append(torch.stack([spread(layer, fitting[-1]) for layer in points]))
    return found


def starts_of(layer: Layer, texts: Sequence[Float[Tensor, "layers _ d"]], item: str, seed: int) -> list[Start]:
    """`STARTS` starts of one layer: those of the texts, then random ones, 16, 32, 64, 16, ... tokens."""
    own = [Start(item, points[layer.index]) for points in texts]
    drawn = [
        Start("random", random_tokens(layer, LENGTHS[i % len(LENGTHS)], seed + 1000 * i))
        for i in range(STARTS - len(own))
    ]
    return own + drawn


def random_tokens(layer: Layer, n: int, seed: int = 0) -> Float[Tensor, "n d"]:
    """Tokens without preferred direction on the layer's sphere (centred where its norm centres)."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(n, layer.d, generator=generator, dtype=torch.float64).to(layer.device)
    points = layer.norm.centre(drawn)
    return points / torch.linalg.vector_norm(points, dim=1, keepdim=True)


def spread(points: Float[Tensor, "n d"], n: int) -> Float[Tensor, "m d"]:
    """At most n tokens, evenly spread over the text, on the unit sphere."""
    pick = torch.linspace(0, len(points) - 1, min(n, len(points))).round().long()
    chosen = points[pick]
    return chosen / torch.linalg.vector_norm(chosen, dim=1, keepdim=True).clamp_min(1e-300)
