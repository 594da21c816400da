"""`Site`: where one attention layer lives in a running model."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from metastable.encoders.layer import Layer


@dataclass(frozen=True, eq=False)
class Site:
    """Where one layer lives in a running model: the modules that are listened to, and the folded layer."""

    layer: Layer
    block: nn.Module
    block_call: int
    """Which call of `block` is this layer (models such as ALBERT call one block many times)."""
    norm: nn.Module | None
    norm_call: int
    entry: nn.Module
    """Its first input is what the queries are computed from."""
    exit: nn.Module
    """The output projection, or the attention module itself where that is `one_module`."""
    update_module: nn.Module
    """Its output is the attention update: the output projection, or the layer scale behind it."""
    one_module: bool = False
    """Whether projections, softmax and output are one module with nothing to listen to in between (torch's own)."""
