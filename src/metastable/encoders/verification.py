"""The check behind every number: attention rebuilt from the folded weights against the model's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from metastable.arguments import OneLine
from metastable.encoders.capture import evaluating, forward, recorded
from metastable.encoders.layer import Layer
from metastable.encoders.site import Site
from metastable.errors import InvalidInput

TOLERANCE = 1e-5
"""Largest difference of an attention probability (and relative difference of the update) that is accepted.

Models run in float32: right adapters were measured to differ by 1e-6 to 5e-6, swapped projections by 1 or more.
"""


@dataclass(frozen=True, repr=False)
class Verification(OneLine):
    """Largest differences between what was rebuilt and what the model computed on `tokens` tokens of real input."""

    attention_error: float
    update_error: float
    worst_layer: int
    tokens: int
    precision: str
    items: int = 0
    """Texts (or images, or sequences) that were compared."""
    longest: int = 0
    """Tokens of the longest of them."""
    layers: int = 0
    """Layers that were compared: all of the model's."""
    own: bool = False
    """Whether the input was the user's own, and not that on which every model is tried when it is opened."""

    @property
    def holds(self) -> bool:
        """Whether both differences are within 1e-5."""
        return self.attention_error <= TOLERANCE and self.update_error <= TOLERANCE


def compare_with_model(
    model: nn.Module, sites: Sequence[Site], inputs: Sequence[dict[str, Any] | Tensor], precision: str
) -> Verification:
    """Rebuild every layer's attention probabilities and update on `inputs` and measure the differences."""
    worst = (0.0, 0.0, 0)
    tokens, longest = 0, 0
    for item in inputs:
        modules = [m for s in sites for m in (s.norm, s.entry, s.update_module) if m is not None]
        with recorded(modules) as heard:
            output = forward(model, item, **_ask_for_attention(item))
        for l, site in enumerate(sites):
            layer = site.layer
            seen = heard.input(site.entry, site.block_call).to(layer.device)
            before = seen if site.norm is None else heard.input(site.norm, site.norm_call)
            points = layer.norm.points(before.to(layer.device))
            own = _own_attention(site, output, seen, l)
            if own.shape != (len(layer.heads), len(points), len(points)):
                raise InvalidInput(
                    f"layer {l} returned attention of shape {tuple(own.shape)} where "
                    f"{(len(layer.heads), len(points), len(points))} was expected"
                )
            _refuse_causal(own, l)
            error = _largest_difference(layer, points, own)
            update = layer.d**0.5 * layer.update(points) + layer.offset
            true = heard.output(site.update_module, site.block_call).double().to(layer.device)
            gap = float(torch.linalg.vector_norm(update - true) / torch.linalg.vector_norm(true).clamp_min(1e-300))
            error = error if error == error else float("inf")
            gap = gap if gap == gap else float("inf")
            worst = (max(worst[0], error), max(worst[1], gap), l if (error, gap) > worst[:2] else worst[2])
            tokens += len(points) if l == 0 else 0
            longest = max(longest, len(points))
    return Verification(worst[0], worst[1], worst[2], tokens, precision, len(inputs), longest, len(sites))


def _largest_difference(layer: Layer, points: Tensor, own: Tensor) -> float:
    """Of the attention probabilities, by blocks of rows: next to the model's own no second matrix is held."""
    found = [(p - own[:, rows].to(p)).abs().max() for rows, p in layer.attention_blocks(points)]
    return float(torch.stack(found).max())


def _ask_for_attention(item: dict[str, Any] | Tensor) -> dict[str, Any]:
    return {} if isinstance(item, Tensor) else {"output_attentions": True, "return_dict": True}


def _own_attention(site: Site, output: Any, x: Tensor, l: int) -> Tensor:
    if site.one_module:
        attention: Any = site.entry
        batch = (x[None] if attention.batch_first else x[:, None]).to(next(attention.parameters()).device)
        with torch.no_grad(), evaluating(attention):
            _, own = attention(batch, batch, batch, need_weights=True, average_attn_weights=False)
        return own[0]
    attentions = getattr(output, "attentions", None)
    if not attentions or len(attentions) <= l or attentions[l] is None:
        raise InvalidInput("the model does not return its attention probabilities, so nothing can be verified")
    return attentions[l][0]


def _refuse_causal(own: Tensor, l: int) -> None:
    n = own.shape[-1]
    if n > 2 and float(torch.triu(own, diagonal=1).abs().max()) == 0.0:
        raise InvalidInput(
            f"layer {l} attends only to the past: this is a causal decoder, and metastable audits encoders"
        )
