"""The check of a model on the user's own input, at its full length: what holds on a sentence may fail on a page."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from metastable.encoders.capture import returning_attention
from metastable.encoders.encoder import Encoder
from metastable.encoders.verification import TOLERANCE, Verification, compare_with_model
from metastable.errors import InvalidInput

CHECKED = 4
"""Items that are compared, the longest ones: the longest shows a window that was missed, the others cost time."""
MOST_PROBABILITIES = 1 << 27
"""Attention probabilities of all layers that a model may return at once, half a gigabyte in float32."""


def verify_on(encoder: Encoder, items: Sequence[Any]) -> Verification:
    """Compare every layer's attention and update with the model's own on the longest of the user's items.

    A model that returns too many probabilities for one item is compared on its beginning (`longest` says how long).
    Refuses a model whose attention is not rebuilt there, as `load` does.
    """
    inputs = encoder.inputs.prepare(list(items))
    chosen = sorted(inputs, key=_length, reverse=True)[:CHECKED]
    most = int((MOST_PROBABILITIES / (len(encoder.layers) * len(encoder.layers[0].heads))) ** 0.5)
    prepared = [_beginning(item, most) for item in chosen]
    with returning_attention(encoder.model):
        found = compare_with_model(encoder.model, encoder.sites, prepared, "float32")
        if not found.holds:  # large logits lose digits in float32: look again in float64
            model, sites = copy.deepcopy((encoder.model, encoder.sites))
            found = compare_with_model(model.double(), sites, [_double(item) for item in prepared], "float64")
    if not found.holds:
        raise InvalidInput(
            f"{encoder.name} is refused: on the given input, {found.longest} tokens long, rebuilt attention "
            f"differs from the model's by {found.attention_error:.1e} in layer {found.worst_layer}, more than "
            f"{TOLERANCE:.0e}"
        )
    return replace(found, own=True)


def _length(item: dict[str, Any] | Tensor) -> int:
    """Tokens of an input; images are all of one length."""
    if isinstance(item, Tensor):
        return max(item.shape[:2])
    ids = item.get("input_ids")
    return 0 if ids is None else int(ids.shape[1])


def _beginning(item: dict[str, Any] | Tensor, most: int) -> dict[str, Any] | Tensor:
    if isinstance(item, Tensor):
        return item[:, :most] if item.shape[0] == 1 else item[:most]
    return item if "pixel_values" in item else {name: value[:, :most] for name, value in item.items()}


def _double(item: dict[str, Any] | Tensor) -> dict[str, Any] | Tensor:
    if isinstance(item, Tensor):
        return item.double()
    return {name: v.double() if torch.is_floating_point(v) else v for name, v in item.items()}
