"""A model put together from its config and its tensors, in float32; nothing is made up that a file lacks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from metastable.encoders.transformers_library import library, quiet
from metastable.errors import InvalidInput

FLOATING = ("float64", "float32", "float16", "bfloat16")
"""Precisions in which weights may be stored."""


def assemble(config: Any, state: dict[str, Tensor], name: str) -> tuple[nn.Module, str, tuple[str, ...]]:
    """The model, the precision that most of its matrices are stored in, and what was noticed, one sentence each."""
    transformers = library()
    matrices = Counter(str(t.dtype).split(".")[-1] for t in state.values() if t.ndim == 2)
    small = next((t.dtype for t in state.values() if t.ndim >= 2 and t.element_size() == 1), None)
    if small not in (None, torch.bool):
        told = str(small).split(".")[-1]
        raise InvalidInput(f"{name} stores its weights as {told}; a quantised model must be dequantised first")
    stored = next((kind for kind, _ in matrices.most_common() if kind in FLOATING), "float32")
    state = {k: v.float() if v.is_floating_point() else v for k, v in state.items()}
    with quiet():
        try:
            kind = transformers.MODEL_MAPPING[type(config)]
            model, info = (kind[0] if isinstance(kind, tuple) else kind).from_pretrained(
                None,
                config=config,
                state_dict=state,
                output_loading_info=True,
                attn_implementation="eager",
                ignore_mismatched_sizes=True,  # told below, with the names
            )
        except MemoryError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split())[:160] or type(error).__name__
            raise InvalidInput(f"{name} cannot be opened as a {config.model_type} encoder: {reason}") from error
    missing = [key for key in info["missing_keys"] if "pooler" not in key and "position_ids" not in key]
    wrong = [key[0] if isinstance(key, tuple) else key for key in info.get("mismatched_keys", [])]
    if wrong:
        first = min(wrong)
        held, asked = tuple(state[first].shape) if first in state else "another", _shape(model, first)
        raise InvalidInput(
            f"{name} does not fit its config: {len(wrong)} tensor{'s have' if len(wrong) > 1 else ' has'} another "
            f"shape, among them {first}: {held} where {asked} is expected"
        )
    if missing and all(key.startswith("decoder.") for key in missing):
        raise InvalidInput(
            f"{name} is the encoder of a {config.model_type}, an encoder-decoder, for which there is no adapter"
        )
    if missing:
        raise InvalidInput(
            f"{name} lacks {len(missing)} tensors of its config's model, among them {sorted(missing)[0]}"
        )
    broken = next((key for key, p in model.named_parameters() if not bool(torch.isfinite(p).all())), None)
    if broken is not None:
        raise InvalidInput(f"{name} holds a NaN or infinity in {broken}")
    return model.float().eval(), stored, _left_out(model, info.get("unexpected_keys", ()))


def _left_out(model: nn.Module, unused: Iterable[str]) -> tuple[str, ...]:
    """A remark where the file holds further blocks like those of the model: the config asks for fewer layers."""
    shapes = {re.sub(r"\d+", "#", key) for key, _ in model.named_parameters() if re.search(r"\d", key)}
    further = [key for key in unused if re.sub(r"\d+", "#", key).endswith(tuple(shapes))] if shapes else []
    if not further:
        return ()
    return (f"the file holds further layers that its config leaves out, among them {min(further)}",)


def _shape(model: nn.Module, key: str) -> tuple[int, ...] | str:
    tensor = model.state_dict().get(key)
    return "another" if tensor is None else tuple(tensor.shape)
