"""`Traffic`: what every head and layer of an encoder does on every single text, kept apart for error bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.audit.text import attention_summary, kappas, participation
from metastable.encoders import Encoder

HEADS = {
    "entropy": "attention entropy / log n",
    "sink": "largest share of attention on one token",
    "kappa": "median |B^T s + g|, the inverse temperature",
}
"""What is measured of a head on a text."""
LAYERS = {
    "cosine": "mean cosine between two tokens",
    "d_eff": "directions that the tokens fill, (tr S)^2 / tr S^2",
}
"""What is measured of the tokens in front of a layer on a text."""


@dataclass(frozen=True, eq=False)
class Traffic:
    """Numbers by text: of every head (texts, layers, heads), of every layer (texts, layers), and the embeddings."""

    heads: dict[str, Float[Tensor, "t l h"]]
    layers: dict[str, Float[Tensor, "t l"]]
    embeddings: Float[Tensor, "t d"]

    @classmethod
    def of(
        cls, encoder: Encoder, items: Sequence[Any], report: Callable[[str], None] = lambda line: None
    ) -> Traffic:
        """Run the model on every text."""
        heads: dict[str, list[Tensor]] = {name: [] for name in HEADS}
        layers: dict[str, list[Tensor]] = {name: [] for name in LAYERS}
        for i, item in enumerate(items):
            report(f"text {i + 1} of {len(items)}")
            seen = list(zip(encoder.layers, encoder.points([item])[0], strict=True))
            told = [attention_summary(layer, points) for layer, points in seen]
            heads["entropy"].append(torch.stack([row[0].cpu() for row in told]))
            heads["sink"].append(torch.stack([row[1].cpu() for row in told]))
            cold = [kappas(layer, points).median(dim=1).values.cpu() for layer, points in seen]
            heads["kappa"].append(torch.stack(cold))
            layers["cosine"].append(torch.tensor([_mean_cosine(points) for _, points in seen], dtype=torch.float64))
            layers["d_eff"].append(torch.tensor([participation(points) for _, points in seen], dtype=torch.float64))
        return cls(
            {name: torch.stack(rows).double() for name, rows in heads.items()},
            {name: torch.stack(rows).double() for name, rows in layers.items()},
            encoder.embed(items).cpu(),
        )


def _mean_cosine(points: Tensor) -> float:
    unit = torch.nn.functional.normalize(points, dim=1)
    n, mean = len(unit), unit.mean(dim=0)
    return (n * n * float(mean @ mean) - n) / max(n * (n - 1), 1)
