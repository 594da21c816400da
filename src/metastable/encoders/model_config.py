"""Configs in the Hugging Face form: read, and refused where they describe no encoder with real weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from metastable.arguments import shown
from metastable.encoders.transformers_library import library
from metastable.encoders.weight_file import read_json
from metastable.errors import InvalidInput


def read_config(source: Any, family: str | None = None) -> Any:
    """A transformers config from a folder, file, dict or config object; decoders and int8 models are refused.

    family: the model_type of a config that names none, or one that nobody knows.
    """
    transformers = library()
    name = "the config"
    if isinstance(source, (str, Path)):
        path = Path(source)
        path = path / "config.json" if path.is_dir() else path
        name = f"{path.name} of {path.absolute().parent.name}"
        source = read_json(path)
    if isinstance(source, dict):
        own = source.get("model_type")
        kind = own if own in transformers.CONFIG_MAPPING else family
        if kind is None:
            told = "names no model_type" if own is None else f"names the unknown model_type {shown(own)}"
            raise InvalidInput(
                f"{name} {told}, and no code of a model is run; if it is a {_likely(source)}, say so: "
                f"--family {_likely(source)} (in Python family={_likely(source)!r})"
            )
        if kind not in transformers.CONFIG_MAPPING:
            raise InvalidInput(f"unknown family {shown(kind)}; a family is a model_type such as bert or roberta")
        refuse_quantised(source)
        try:
            source = transformers.CONFIG_MAPPING[kind].from_dict({**source, "model_type": kind})
        except Exception as error:
            reason = " ".join(str(error).split())[:160]
            raise InvalidInput(f"the config is no {kind} config: {reason}") from error
    if not hasattr(source, "model_type"):
        raise InvalidInput(f"a config is a dictionary or a transformers config, got {type(source).__name__}")
    refuse_decoder(source)
    return source


def family_was_given(config: Any, family: str | None) -> tuple[str, ...]:
    """A remark where the family of a model was told by the user: what shares its names cannot be told apart."""
    if family is None or getattr(config, "model_type", None) != family:
        return ()
    return (f"that this is a {family} was told, not read: families with the same names may count positions apart",)


def _likely(config: dict[str, Any]) -> str:
    """The family that the class names of an old config hint at; BERT where they say nothing."""
    known = library().CONFIG_MAPPING
    built = config.get("architectures")
    words = " ".join(map(str, built)).lower() if isinstance(built, list) else ""
    # The longest that fits: "roberta" before "bert".
    fits = [kind for kind in known if words.startswith(kind.replace("-", "").replace("_", ""))]
    return max(fits, key=len, default="bert")


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
