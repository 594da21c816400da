"""Configs in the Hugging Face form: read, and refused where they describe no encoder with real weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from metastable.encoders.transformers_library import library
from metastable.encoders.weight_file import read_json
from metastable.errors import InvalidInput


def read_config(source: Any) -> Any:
    """A transformers config from a folder, file, dict or config object; decoders and int8 models are refused."""
    transformers = library()
    if isinstance(source, (str, Path)):
        path = Path(source)
        source = read_json(path / "config.json" if path.is_dir() else path)
    if isinstance(source, dict):
        kind = source.get("model_type")
        if kind not in transformers.CONFIG_MAPPING:
            told = "names no model_type" if kind is None else f"names the unknown model_type {kind!r}"
            raise InvalidInput(f"the config {told}, and code that comes with a model is not run")
        refuse_quantised(source)
        try:
            source = transformers.CONFIG_MAPPING[kind].from_dict(source)
        except Exception as error:
            reason = " ".join(str(error).split())[:160]
            raise InvalidInput(f"the config is no {kind} config: {reason}") from error
    if not hasattr(source, "model_type"):
        raise InvalidInput(f"a config is a dictionary or a transformers config, got {type(source).__name__}")
    refuse_decoder(source)
    return source


def refuse_decoder(config: Any) -> None:
    """Refuse a model whose tokens attend only to the past, or that has a decoder."""
    kind = getattr(config, "model_type", "this model")
    if getattr(config, "is_encoder_decoder", False):
        raise InvalidInput(f"{kind} is an encoder-decoder; pass its encoder, metastable audits encoders")
    built = " ".join(getattr(config, "architectures", None) or [])
    if getattr(config, "is_decoder", False) or "CausalLM" in built or "LMHeadModel" in built:
        raise InvalidInput(f"{kind} is a causal decoder; metastable audits encoders, whose tokens attend both ways")


def refuse_quantised(config: Any) -> None:
    """Refuse a model whose weights are not the numbers that it computes with."""
    get = config.get if isinstance(config, dict) else lambda key: getattr(config, key, None)
    told = get("quantization_config")
    if told:
        method = told.get("quant_method", "quantised") if isinstance(told, dict) else "quantised"
        raise InvalidInput(
            f"the model is quantised ({method}); dequantise it first, an audit needs its real weights"
        )


def is_decoder_family(kind: str) -> bool:
    """Whether a family is for causal language modelling only."""
    from transformers.models.auto import modeling_auto as known

    masked, causal = known.MODEL_FOR_MASKED_LM_MAPPING_NAMES, known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return kind in causal and kind not in masked and kind != "xlnet"
