"""`Positions`: what the places of two tokens add to their score, and where families of models keep it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class Positions:
    """What the positions i, j of two tokens add to their score: a rotation, a window, a bias."""

    frequencies: Float[Tensor, "f"] | None = None
    """RoPE: pair m of head coordinates (m, m + d_h/2) turns by frequencies[m] per position."""
    window: int | None = None
    """Tokens farther apart than this do not see each other."""
    bias: Callable[[int], Tensor] | None = field(default=None, repr=False)
    """n -> (H, n, n), added to the scores."""

    @property
    def seen(self) -> bool:
        """Whether scores depend on positions at all."""
        return self.frequencies is not None or self.window is not None or self.bias is not None

    def rotate(self, rows: Float[Tensor, "h n k"]) -> Float[Tensor, "h n k"]:
        """Every row turned by its position (unchanged without RoPE)."""
        if self.frequencies is None:
            return rows
        place = torch.arange(rows.shape[1], dtype=rows.dtype, device=rows.device)
        angle = place[:, None] * self.frequencies.to(rows)
        cos, sin = angle.cos(), angle.sin()
        first, second = rows.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def mpnet_positions(model: Any, l: int) -> Positions:
    """One bias by relative position for all layers, as the model's own method computes it."""
    encoder = model.encoder

    def bias(n: int) -> Tensor:
        table = encoder.relative_attention_bias.weight
        with torch.no_grad():
            return (
                encoder.compute_position_bias(torch.zeros(1, n, 1, dtype=table.dtype, device=table.device))[0]
                .double()
                .cpu()
            )

    return Positions(bias=bias)


def modernbert_positions(model: Any, l: int) -> Positions:
    """A rotation in every layer, and a window in those that attend locally."""
    config, attention = model.config, model.layers[l].attn
    if hasattr(model, "rotary_emb"):  # transformers >= 5
        kind = config.layer_types[l]
        frequencies = getattr(model.rotary_emb, f"{kind}_inv_freq")
        window = config.sliding_window if kind == "sliding_attention" else None
    else:
        frequencies = attention.rotary_emb.inv_freq
        window = None if l % config.global_attn_every_n_layers == 0 else config.local_attention // 2
    return Positions(frequencies.detach().double().cpu(), window)


def rope_positions(model: nn.Module, l: int) -> Positions:
    """One rotation for all layers, wherever the model keeps its frequencies; none if it has none."""
    held = (getattr(module, "inv_freq", None) for module in model.modules())
    frequencies: Any = next((f for f in held if isinstance(f, Tensor)), None)
    return Positions() if frequencies is None else Positions(frequencies.detach().double().cpu())
