"""The table of adapters: where each family of encoders keeps its attention.

An adapter is a guess by names. Nothing here is trusted: what comes out is compared with the model itself (see
`verification`). A family that is not listed is tried with every adapter whose modules it has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from torch import nn

from metastable.encoders.adapter import Adapter
from metastable.encoders.positions import modernbert_positions, mpnet_positions, rope_positions


def _albert_blocks(model: Any) -> list[nn.Module]:
    """Groups of blocks that are called again and again: group number floor(l / layers per group) in layer l."""
    config, groups = model.config, model.encoder.albert_layer_groups
    inner = list(groups[0].albert_layers)
    count = int(config.num_hidden_layers)
    per_group = count / int(config.num_hidden_groups)
    return [block for l in range(count) for block in groups[int(l / per_group)].albert_layers][: count * len(inner)]


class _Names(NamedTuple):
    """Paths of four linear maps inside a block; one path three times is a fused projection."""

    query: str
    key: str
    value: str
    output: str


_SELF = _Names("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
_PROJECTED = _Names("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj")
_SELF_ATTN = _Names("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")


def _before_five(adapter: Adapter) -> Adapter:
    """The same family as transformers 4 named its modules."""
    inner = "attention.attention"
    names = _Names(f"{inner}.query", f"{inner}.key", f"{inner}.value", "attention.output.dense")
    return replace(adapter, name=f"{adapter.name} (transformers 4)", **names._asdict())


_BERT = Adapter(
    "bert",
    ("bert", "electra", "camembert", "ernie", "data2vec-text", "layoutlm", "splinter"),
    "encoder.layer",
    *_SELF,
    norm="output.LayerNorm",
    order="post",
    first_norm="embeddings.LayerNorm",
    separated_by="embeddings_project",
)
_BERT_PRE = replace(_BERT, order="pre", first_norm=None, separated_by=None)
_VIT = Adapter("vit", ("vit", "deit", "ijepa"), "layers", *_PROJECTED, norm="layernorm_before", order="pre")
_DINO = replace(
    _VIT, name="dinov2", families=("dinov2",), blocks="encoder.layer", norm="norm1", layer_scale="layer_scale1"
)
_NOMIC = Adapter(
    "nomic_bert",
    ("nomic_bert",),
    "layers",
    *_SELF_ATTN,
    norm="post_mlp_layernorm",
    order="post",
    first_norm="embeddings.LayerNorm",
    positions=rope_positions,
)

ADAPTERS: tuple[Adapter, ...] = (
    _BERT,
    replace(_BERT, name="roberta", families=("roberta", "xlm-roberta", "xmod")),
    replace(
        _BERT_PRE,
        name="esm",
        families=("esm", "roberta-prelayernorm"),
        norm="attention.LayerNorm",
        positions=rope_positions,
    ),
    replace(_BERT_PRE, name="megatron-bert", families=("megatron-bert",), norm="attention.ln"),
    _NOMIC,
    replace(_NOMIC, name="eurobert", families=("eurobert",), norm="input_layernorm", order="pre", first_norm=None),
    Adapter(
        "clip",
        ("clip_vision_model", "siglip_vision_model", "siglip2_vision_model"),
        "encoder.layers",
        *_SELF_ATTN._replace(output="self_attn.out_proj"),
        norm="layer_norm1",
        order="pre",
    ),
    Adapter(
        "distilbert",
        ("distilbert",),
        "transformer.layer",
        *_Names("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"),
        norm="output_layer_norm",
        order="post",
        first_norm="embeddings.LayerNorm",
    ),
    Adapter(
        "albert",
        ("albert",),
        "encoder.albert_layer_groups",
        *_Names("attention.query", "attention.key", "attention.value", "attention.dense"),
        norm="full_layer_layer_norm",
        order="post",
        unroll=_albert_blocks,
    ),
    Adapter(
        "mpnet",
        ("mpnet",),
        "encoder.layer",
        *_Names("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o"),
        norm="output.LayerNorm",
        order="post",
        first_norm="embeddings.LayerNorm",
        positions=mpnet_positions,
    ),
    Adapter(
        "modernbert",
        ("modernbert",),
        "layers",
        *_Names("attn.Wqkv", "attn.Wqkv", "attn.Wqkv", "attn.Wo"),
        norm="attn_norm",
        order="pre",
        first_norm="embeddings.norm",
        positions=modernbert_positions,
    ),
    _VIT,
    _before_five(replace(_VIT, families=("vit", "deit", "vit_msn"), blocks="encoder.layer")),
    _DINO,
    _before_five(replace(_DINO, families=("dinov2", "dinov2_with_registers"))),
)
"""All adapters; the first that fits and agrees with the model is used."""


def families() -> list[str]:
    """The model types that have an adapter of their own."""
    return sorted({family for adapter in ADAPTERS for family in adapter.families})


def candidates(model: nn.Module, family: str | None) -> list[Adapter]:
    """Adapters that fit the model, those of its family first."""
    fitting = [adapter for adapter in ADAPTERS if adapter.fits(model)]
    return sorted(fitting, key=lambda adapter: family not in adapter.families)
