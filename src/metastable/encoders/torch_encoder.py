"""torch's own `nn.TransformerEncoder`, whose attention is one module."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from metastable.encoders.adapter import linear
from metastable.encoders.layer import Layer, RawAttention
from metastable.encoders.norm import Norm
from metastable.encoders.positions import Positions
from metastable.encoders.site import Site
from metastable.errors import InvalidInput


def torch_encoder_sites(model: nn.TransformerEncoder) -> list[Site]:
    """Every layer of a torch `nn.TransformerEncoder`, folded."""
    result: list[Site] = []
    previous: nn.Module | None = None
    for l, block in enumerate(model.layers):
        attention: Any = block.self_attn
        if not isinstance(attention, nn.MultiheadAttention):
            raise InvalidInput(f"layer {l} must attend by nn.MultiheadAttention, got {type(attention).__name__}")
        if attention.in_proj_weight is None or attention.bias_k is not None or attention.add_zero_attn:
            raise InvalidInput(
                f"layer {l} uses kdim/vdim, add_bias_kv or add_zero_attn, which no adapter describes"
            )
        order = "pre" if block.norm_first else "post"
        norm = block.norm1 if block.norm_first else previous
        previous = block.norm2
        raw = _torch_raw(attention)
        folded = Layer.fold(l, raw, Norm.of(norm, attention.embed_dim), order, Positions())
        result.append(Site(folded, block, 0, norm, 0, attention, attention, attention, one_module=True))
    return result


def _torch_raw(attention: nn.MultiheadAttention) -> RawAttention:
    weight = attention.in_proj_weight.detach().double().cpu()
    width = attention.embed_dim
    zeros = torch.zeros(3 * width, dtype=torch.float64)
    bias = zeros if attention.in_proj_bias is None else attention.in_proj_bias.detach().double().cpu()
    o, bo = linear(attention.out_proj)
    (q, k, v), (bq, bk, bv) = weight.chunk(3), bias.chunk(3)
    return RawAttention(q, k, v, o, bq, bk, bv, bo, attention.num_heads, attention.head_dim**-0.5)
