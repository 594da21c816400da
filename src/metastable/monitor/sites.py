"""The attention layers of a user's model, by the adapter that was verified when the encoder was opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from metastable.encoders import ADAPTERS
from metastable.encoders.site import Site
from metastable.encoders.torch_encoder import torch_encoder_sites
from metastable.errors import InvalidInput
from metastable.monitor.listening import Ear


def ear_of(model: nn.Module, about: Mapping[str, Any], sites: Sequence[Site] | None = None) -> Ear:
    """How to hear a model that a calibration is about; `sites` where they are known already."""
    found = sites_of(model, str(about["adapter"]), int(about["heads"])) if sites is None else sites
    return Ear.of(
        model,
        found,
        about["kind"],
        batch_first=about["batch_first"],
        special=about["special"],
        tokens=about["tokens"],
    )


def sites_of(model: nn.Module, adapter: str, heads: int) -> Sequence[Site]:
    """Every attention layer of a model, folded; nothing is run, and nothing of the model is changed."""
    if isinstance(model, nn.TransformerEncoder):
        return torch_encoder_sites(model)
    found = next((one for one in ADAPTERS if one.name == adapter), None)
    if found is None or not found.fits(model):
        raise InvalidInput(f"{type(model).__name__} has no attention where the adapter {adapter!r} looks for it")
    return found.sites(model, heads)
