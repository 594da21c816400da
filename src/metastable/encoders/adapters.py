"""The table of adapters: where each family of encoders keeps its attention.

An adapter is a guess by names. Nothing here is trusted: `verify` compares what comes out with the model itself.
A family that is not listed is tried with every adapter whose modules it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from metastable.encoders.layer import Layer, Positions, RawAttention
from metastable.encoders.norm import Norm
from metastable.errors import InvalidInput


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
    """The output projection, or the whole attention module when `whole` is set."""
    emitter: nn.Module
    """Its output is the attention update: the output projection, or the layer scale behind it."""
    whole: bool = False


@dataclass(frozen=True)
class Adapter:
    """Names of the modules of one family: `blocks`, `first_norm`, `unless` in the model, the rest in a block."""

    name: str
    families: tuple[str, ...]
    blocks: str
    query: str
    key: str
    value: str
    output: str
    norm: str
    """Post-norm: the norm that ends a block. Pre-norm: the norm in front of attention."""
    order: str
    first_norm: str | None = None
    """Post-norm: the norm in front of the first block; pre-norm: the one that replaces an identity there."""
    unless: str | None = None
    """A module that, if present, stands between `first_norm` and the first block, which then has no norm."""
    layer_scale: str | None = None
    """A learned factor per coordinate on the attention output, folded into W_O."""
    positions: Callable[[nn.Module, int], Positions] | None = None
    unroll: Callable[[nn.Module], list[nn.Module]] | None = None
    """The sequence of blocks as they are called, for models that share blocks."""

    def fits(self, model: nn.Module) -> bool:
        """Whether the model has the modules that the adapter names."""
        blocks = self.stack(model)
        if not blocks:
            return False
        names = {self.query, self.key, self.value, self.output, self.norm}
        return all(_find(blocks[-1], name) is not None for name in names)

    def stack(self, model: nn.Module) -> list[nn.Module]:
        """The blocks in the order in which they are called."""
        found = _find(model, self.blocks)
        if not isinstance(found, nn.ModuleList):
            return []
        return self.unroll(model) if self.unroll else list(found)

    def sites(self, model: nn.Module, n_heads: int) -> list[Site]:
        """Every attention layer of the model, folded."""
        calls: Counter[int] = Counter()
        norm_calls: Counter[int] = Counter()
        blocks = self.stack(model)
        result = []
        for l, block in enumerate(blocks):
            norm = self._norm_before(model, blocks, l)
            raw = self._raw(block, n_heads)
            folds = Norm.of(norm, raw.query.shape[1])
            if folds.d != raw.query.shape[1]:
                raise InvalidInput(
                    f"the norm of layer {l} has {folds.d} entries, its queries read {raw.query.shape[1]}"
                )
            positions = Positions() if self.positions is None else self.positions(model, l)
            folded = Layer.fold(l, raw, folds, self.order, positions)
            entry, exit_ = _find(block, self.query), _find(block, self.output)
            assert entry is not None and exit_ is not None
            emitter = exit_ if self.layer_scale is None else _find(block, self.layer_scale) or exit_
            result.append(Site(folded, block, calls[id(block)], norm, norm_calls[id(norm)], entry, exit_, emitter))
            calls[id(block)] += 1
            norm_calls[id(norm)] += 1
        return result

    def _norm_before(self, model: nn.Module, blocks: Sequence[nn.Module], l: int) -> nn.Module | None:
        first = None if self.first_norm is None else _find(model, self.first_norm)
        if self.unless is not None and _find(model, self.unless) is not None:
            first = None
        if self.order == "post":
            return first if l == 0 else _find(blocks[l - 1], self.norm)
        norm = _find(blocks[l], self.norm)
        return first if isinstance(norm, nn.Identity) else norm

    def _raw(self, block: nn.Module, n_heads: int) -> RawAttention:
        modules = [_find(block, name) for name in (self.query, self.key, self.value, self.output)]
        if modules[0] is modules[1]:  # one fused projection
            weight, bias = _linear(modules[0])
            (q, k, v), (bq, bk, bv) = weight.chunk(3), bias.chunk(3)
        else:
            (q, bq), (k, bk), (v, bv) = (_linear(m) for m in modules[:3])
        o, bo = _linear(modules[3])
        scale = None if self.layer_scale is None else _find(block, self.layer_scale)
        if scale is not None:
            factor = next(iter(scale.parameters())).detach().double().cpu()
            o, bo = factor[:, None] * o, factor * bo
        if k.shape != q.shape:
            raise InvalidInput(
                f"keys must be as many as queries, got {k.shape[0]} and {q.shape[0]} rows (grouped-query attention)"
            )
        if q.shape[0] % n_heads:
            raise InvalidInput(f"{q.shape[0]} rows of queries cannot be split into {n_heads} heads")
        return RawAttention(q, k, v, o, bq, bk, bv, bo, n_heads, (q.shape[0] // n_heads) ** -0.5)


def _find(module: nn.Module, path: str) -> nn.Module | None:
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name, None)
        if found is None:
            return None
    return found if isinstance(found, nn.Module) else None


def _linear(module: nn.Module | None) -> tuple[Tensor, Tensor]:
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        kind = f"{type(module).__name__}" + (f" of {weight.dtype}" if isinstance(weight, Tensor) else "")
        raise InvalidInput(f"a projection must be a linear map with floating weights, got {kind}")
    bias = getattr(module, "bias", None)
    w = weight.detach().double().cpu()
    return w, torch.zeros(w.shape[0], dtype=torch.float64) if bias is None else bias.detach().double().cpu()


def _albert_blocks(model: nn.Module) -> list[nn.Module]:
    config: Any = model.config
    groups: Any = _find(model, "encoder.albert_layer_groups")
    inner = list(groups[0].albert_layers)
    count = int(config.num_hidden_layers)
    per_group = count / int(config.num_hidden_groups)
    return [block for l in range(count) for block in groups[int(l / per_group)].albert_layers][: count * len(inner)]


def _mpnet_positions(model: nn.Module, l: int) -> Positions:
    encoder: Any = _find(model, "encoder")

    def bias(n: int) -> Tensor:
        table = encoder.relative_attention_bias.weight
        with torch.no_grad():
            return (
                encoder.compute_position_bias(torch.zeros(1, n, 1, dtype=table.dtype, device=table.device))[0]
                .double()
                .cpu()
            )

    return Positions(bias=bias)


def _modernbert_positions(model: nn.Module, l: int) -> Positions:
    config: Any = model.config
    attention: Any = model.layers[l].attn  # type: ignore[union-attr, index]
    if hasattr(model, "rotary_emb"):  # transformers >= 5
        kind = config.layer_types[l]
        frequencies = getattr(model.rotary_emb, f"{kind}_inv_freq")
        window = config.sliding_window if kind == "sliding_attention" else None
    else:
        frequencies = attention.rotary_emb.inv_freq
        window = None if l % config.global_attn_every_n_layers == 0 else config.local_attention // 2
    return Positions(frequencies.detach().double().cpu(), window)


def _rope_positions(model: nn.Module, l: int) -> Positions:
    """One rotation for all layers, wherever the model keeps its frequencies; none if it has none."""
    held = (getattr(module, "inv_freq", None) for module in model.modules())
    frequencies: Any = next((f for f in held if isinstance(f, Tensor)), None)
    return Positions() if frequencies is None else Positions(frequencies.detach().double().cpu())


_BERT = Adapter(
    "bert",
    ("bert", "electra", "camembert", "ernie", "data2vec-text", "layoutlm", "splinter"),
    blocks="encoder.layer",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    output="attention.output.dense",
    norm="output.LayerNorm",
    order="post",
    first_norm="embeddings.LayerNorm",
    unless="embeddings_project",
)

ADAPTERS: tuple[Adapter, ...] = (
    _BERT,
    replace(_BERT, name="roberta", families=("roberta", "xlm-roberta", "xmod")),
    replace(
        _BERT,
        name="esm",
        families=("esm", "roberta-prelayernorm"),
        norm="attention.LayerNorm",
        order="pre",
        first_norm=None,
        unless=None,
        positions=_rope_positions,
    ),
    replace(
        _BERT,
        name="megatron-bert",
        families=("megatron-bert",),
        norm="attention.ln",
        order="pre",
        first_norm=None,
        unless=None,
    ),
    Adapter(
        "nomic_bert",
        ("nomic_bert",),
        blocks="layers",
        query="self_attn.q_proj",
        key="self_attn.k_proj",
        value="self_attn.v_proj",
        output="self_attn.o_proj",
        norm="post_mlp_layernorm",
        order="post",
        first_norm="embeddings.LayerNorm",
        positions=_rope_positions,
    ),
    Adapter(
        "eurobert",
        ("eurobert",),
        blocks="layers",
        query="self_attn.q_proj",
        key="self_attn.k_proj",
        value="self_attn.v_proj",
        output="self_attn.o_proj",
        norm="input_layernorm",
        order="pre",
        positions=_rope_positions,
    ),
    Adapter(
        "clip",
        ("clip_vision_model", "siglip_vision_model", "siglip2_vision_model"),
        blocks="encoder.layers",
        query="self_attn.q_proj",
        key="self_attn.k_proj",
        value="self_attn.v_proj",
        output="self_attn.out_proj",
        norm="layer_norm1",
        order="pre",
    ),
    Adapter(
        "distilbert",
        ("distilbert",),
        blocks="transformer.layer",
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        output="attention.out_lin",
        norm="output_layer_norm",
        order="post",
        first_norm="embeddings.LayerNorm",
    ),
    Adapter(
        "albert",
        ("albert",),
        blocks="encoder.albert_layer_groups",
        query="attention.query",
        key="attention.key",
        value="attention.value",
        output="attention.dense",
        norm="full_layer_layer_norm",
        order="post",
        unroll=_albert_blocks,
    ),
    Adapter(
        "mpnet",
        ("mpnet",),
        blocks="encoder.layer",
        query="attention.attn.q",
        key="attention.attn.k",
        value="attention.attn.v",
        output="attention.attn.o",
        norm="output.LayerNorm",
        order="post",
        first_norm="embeddings.LayerNorm",
        positions=_mpnet_positions,
    ),
    Adapter(
        "modernbert",
        ("modernbert",),
        blocks="layers",
        query="attn.Wqkv",
        key="attn.Wqkv",
        value="attn.Wqkv",
        output="attn.Wo",
        norm="attn_norm",
        order="pre",
        first_norm="embeddings.norm",
        positions=_modernbert_positions,
    ),
    Adapter(
        "vit",
        ("vit", "deit", "ijepa"),
        blocks="layers",
        query="attention.q_proj",
        key="attention.k_proj",
        value="attention.v_proj",
        output="attention.o_proj",
        norm="layernorm_before",
        order="pre",
    ),
    Adapter(
        "vit (transformers 4)",
        ("vit", "deit", "vit_msn"),
        blocks="encoder.layer",
        query="attention.attention.query",
        key="attention.attention.key",
        value="attention.attention.value",
        output="attention.output.dense",
        norm="layernorm_before",
        order="pre",
    ),
    Adapter(
        "dinov2",
        ("dinov2",),
        blocks="encoder.layer",
        query="attention.q_proj",
        key="attention.k_proj",
        value="attention.v_proj",
        output="attention.o_proj",
        norm="norm1",
        order="pre",
        layer_scale="layer_scale1",
    ),
    Adapter(
        "dinov2 (transformers 4)",
        ("dinov2", "dinov2_with_registers"),
        blocks="encoder.layer",
        query="attention.attention.query",
        key="attention.attention.key",
        value="attention.attention.value",
        output="attention.output.dense",
        norm="norm1",
        order="pre",
        layer_scale="layer_scale1",
    ),
)
"""All adapters; the first that fits and passes the verification is used."""


def families() -> list[str]:
    """The model types that have an adapter of their own."""
    return sorted({family for adapter in ADAPTERS for family in adapter.families})


def candidates(model: nn.Module, family: str | None) -> list[Adapter]:
    """Adapters that fit the model, those of its family first."""
    fitting = [adapter for adapter in ADAPTERS if adapter.fits(model)]
    return sorted(fitting, key=lambda adapter: family not in adapter.families)


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
        result.append(Site(folded, block, 0, norm, 0, attention, attention, attention, whole=True))
    return result


def _torch_raw(attention: nn.MultiheadAttention) -> RawAttention:
    weight = attention.in_proj_weight.detach().double().cpu()
    width = attention.embed_dim
    zeros = torch.zeros(3 * width, dtype=torch.float64)
    bias = zeros if attention.in_proj_bias is None else attention.in_proj_bias.detach().double().cpu()
    o, bo = _linear(attention.out_proj)
    (q, k, v), (bq, bk, bv) = weight.chunk(3), bias.chunk(3)
    return RawAttention(q, k, v, o, bq, bk, bv, bo, attention.num_heads, attention.head_dim**-0.5)
