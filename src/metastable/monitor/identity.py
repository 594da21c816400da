"""Which model a calibration belongs to: its weights, their precision, its tokenizer; another one is refused."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from metastable.arguments import OneLine
from metastable.encoders.load import inside_sentence_transformer
from metastable.errors import InvalidInput

LEFT_OUT = ("pooler", "position_ids")
"""Parts of names of tensors that a hidden state does not depend on, and that some files lack."""


@dataclass(frozen=True, repr=False)
class Identity(OneLine):
    """sha256 of the weights and of the tokenizer, and the precision in which the model computes."""

    weights: str
    dtype: str
    tokenizer: str

    @classmethod
    def of(cls, model: nn.Module, tokenizer: Any = None) -> Identity:
        """The identity of a model (the encoder inside it, see `encoder_inside`) and of its tokenizer."""
        digest = hashlib.sha256()
        held = {n: t for n, t in model.state_dict().items() if not any(part in n for part in LEFT_OUT)}
        for name in sorted(held):
            value = held[name]
            digest.update(name.encode())
            if isinstance(value, Tensor) and not value.is_quantized:
                digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
                digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return cls(digest.hexdigest(), precision(model), tokenizer_digest(tokenizer))

    def refuse(self, other: Identity) -> None:
        """Refuse a model that is not the one this identity was taken from, with the reason."""
        if other.dtype != self.dtype:
            raise InvalidInput(
                f"the calibration was made in {self.dtype}, this model computes in {other.dtype}: calibrate it anew"
            )
        if other.weights != self.weights:
            raise InvalidInput(
                f"the calibration belongs to weights {self.weights[:12]}, this model has {other.weights[:12]}: "
                "calibrate it anew"
            )
        if other.tokenizer not in (self.tokenizer, "none"):
            raise InvalidInput(
                f"the calibration belongs to tokenizer {self.tokenizer[:12]}, this one is {other.tokenizer[:12]}: "
                "calibrate anew"
            )

    def to_dict(self) -> dict[str, str]:
        """Its fields."""
        return asdict(self)


def precision(model: nn.Module) -> str:
    """The precision of most parameters of a model, or "quantised" where a module of it says so."""
    kinds = {type(module).__module__ for module in model.modules()}
    config = getattr(model, "config", None)
    if any("quantized" in kind for kind in kinds) or getattr(config, "quantization_config", None) is not None:
        return "quantised"
    sizes: dict[str, int] = {}
    for parameter in model.parameters():
        name = str(parameter.dtype).removeprefix("torch.")
        sizes[name] = sizes.get(name, 0) + parameter.numel()
    largest = max(sizes, key=lambda name: sizes[name]) if sizes else "none"
    return largest if largest.startswith(("float", "bfloat")) else "quantised"


def tokenizer_digest(tokenizer: Any) -> str:
    """sha256 of what a tokenizer does, its settings of padding and truncation left out; "none" without one."""
    if tokenizer is None:
        return "none"
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        told = json.loads(backend.to_str())
        told = {name: part for name, part in told.items() if name not in ("truncation", "padding")}
    else:
        told = {"class": type(tokenizer).__name__, "vocabulary": sorted(tokenizer.get_vocab().items())}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def encoder_inside(model: Any) -> tuple[nn.Module, Any]:
    """The encoder inside a user's model, and the tokenizer that it carries, if any.

    model: a Hugging Face model (of one with a head, the encoder inside it), a SentenceTransformer, or a torch
    `nn.TransformerEncoder`.
    """
    if isinstance(model, nn.TransformerEncoder):
        return model, None
    tokenizer = None
    if isinstance(model, nn.Module):
        inner = inside_sentence_transformer(model)
        if inner is not None:
            model, tokenizer = inner.auto_model, inner.tokenizer
        if hasattr(model, "config") and isinstance(getattr(model, "base_model", None), nn.Module):
            return model.base_model, tokenizer
    raise InvalidInput(
        f"a monitor listens to a Hugging Face model, a SentenceTransformer or a torch nn.TransformerEncoder, got "
        f"{type(model).__name__}"
    )
