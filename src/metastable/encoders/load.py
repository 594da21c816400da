"""`load`: open a trained encoder from wherever it is: a folder, an id, a file, or a module in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from metastable.arguments import choice, instance, place, shown
from metastable.encoders import huggingface
from metastable.encoders.encoder import Encoder, build
from metastable.encoders.inputs import Inputs
from metastable.encoders.onnx_file import read_onnx
from metastable.encoders.weight_file import weight_files
from metastable.errors import InvalidInput, StorageError


def load(
    source: Any, *, tokenizer: Any = None, config: Any = None, pooling: str | None = None, name: str | None = None
) -> Encoder:
    """Open a trained encoder, find its attention, fold its norms, and verify that against the model itself.

    source: a Hugging Face folder or id (from the local cache when it is there), a SentenceTransformer folder, a
    `.safetensors` file with its config.json (beside it, or `config=`), an `.onnx` file, a Hugging Face model or a
    torch `nn.TransformerEncoder` in memory. tokenizer: one that replaces (or supplies) the model's own, an object
    or a folder. pooling: "mean" or "cls", how an embedding is made of the last layer.

    Only safetensors and `weights_only` files are read, and no code that comes with a model is run. A model whose
    own attention probabilities are not reproduced to 1e-5 is refused.

    >>> import torch
    >>> block = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> encoder = load(torch.nn.TransformerEncoder(block, 2, enable_nested_tensor=False))
    >>> len(encoder.layers), encoder.layers[1].heads[0].rank, encoder.verification.holds
    (2, 4, True)
    """
    if pooling is not None:
        choice(pooling, "pooling", ("mean", "cls"))
    if name is not None:
        instance(name, "name", str, "a text")
    if isinstance(source, Encoder):
        return source
    if isinstance(source, nn.Module):
        return _from_module(source, tokenizer, pooling, name)
    if not isinstance(source, (str, os.PathLike)):
        raise InvalidInput(f"an encoder is opened from a path, an id or a torch module, got {shown(source)}")
    if source == "":
        raise InvalidInput("an encoder is opened from a path, an id or a torch module, got an empty path")
    return _from_path(place(source, "source"), tokenizer, config, pooling, name)


def _from_path(source: str, tokenizer: Any, config: Any, pooling: str | None, name: str | None) -> Encoder:
    try:
        path = Path(source).expanduser()
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError, RuntimeError):  # a name too long for the file system, a home that nobody has
        raise StorageError(f"there is no file or folder {shown(source)}") from None
    if is_folder:
        return _from_folder(path, tokenizer, config, pooling, name)
    if is_file:
        if path.suffix == ".onnx":
            opened = read_onnx(path, config, tokenizer)
        elif path.suffix in (".safetensors", ".bin", ".pt", ".pth"):
            opened = huggingface.read_file(path, config, tokenizer)
        else:
            raise InvalidInput(f"{path.name} is no weight file: expected .safetensors, .onnx or .bin")
        return _encoder(opened, pooling, name or path.stem)
    if (
        source.startswith((".", "/", "~"))
        or source.count("/") > 1
        or path.suffix in (".safetensors", ".onnx", ".bin")
    ):
        raise StorageError(f"there is no file or folder {shown(source)}")
    return _encoder(huggingface.read_id(source, tokenizer), pooling, name or source)


def _from_folder(path: Path, tokenizer: Any, config: Any, pooling: str | None, name: str | None) -> Encoder:
    if (path / "modules.json").is_file():
        opened = huggingface.read_sentence_transformer(path, tokenizer)
    elif (path / "config.json").is_file() and weight_files(path):
        opened = huggingface.read_folder(path, tokenizer)
    else:
        files = [
            f for pattern in ("*.safetensors", "*.onnx", "onnx/model.onnx") for f in sorted(path.glob(pattern))
        ]
        if not files:
            raise InvalidInput(
                f"the folder {path.name} holds no model (no config.json with weights, no .onnx file)"
            )
        beside = path / "config.json"
        return _from_path(
            str(files[0]), tokenizer, config or (beside if beside.is_file() else None), pooling, name or path.name
        )
    called = path.resolve()
    generic = called.name in ("model", "onnx")
    return _encoder(opened, pooling, name or (f"{called.parent.name}/{called.name}" if generic else called.name))


def _from_module(module: nn.Module, tokenizer: Any, pooling: str | None, name: str | None) -> Encoder:
    if isinstance(module, nn.TransformerEncoder):
        attention: Any = module.layers[0].self_attn
        dtype = next(module.parameters()).dtype
        inputs = Inputs("vectors", shape=(attention.embed_dim,), dtype=dtype, batch_first=attention.batch_first)
        return build(module, name or "nn.TransformerEncoder", inputs, pooling=pooling or "mean")
    inner = inside_sentence_transformer(module)
    if inner is not None:
        module, tokenizer = inner.auto_model, tokenizer or inner.tokenizer
    if not hasattr(module, "config") or not hasattr(module, "base_model"):
        nested = [n for n, m in module.named_modules() if isinstance(m, nn.TransformerEncoder)]
        hint = f"; pass its nn.TransformerEncoder instead: model.{nested[0]}" if nested else ""
        raise InvalidInput(
            f"{type(module).__name__} is neither a Hugging Face model nor a torch nn.TransformerEncoder{hint}"
        )
    opened = huggingface.wrap(module, tokenizer)
    with _eager(opened.model):
        return _encoder(opened, pooling, name or type(module).__name__)


def _encoder(opened: huggingface.Opened, pooling: str | None, name: str) -> Encoder:
    return build(
        opened.model,
        name,
        opened.inputs,
        pooling=pooling or opened.pooling,
        stored_dtype=opened.stored_dtype,
        remarks=opened.remarks,
    )


def inside_sentence_transformer(module: nn.Module) -> Any:
    """The Transformer module of a SentenceTransformer (with `auto_model` and `tokenizer`); None for others."""
    return next((child for child in module.children() if hasattr(child, "auto_model")), None)


@contextmanager
def _eager(model: Any) -> Iterator[None]:
    """A model that returns its attention probabilities; the user's choice of implementation is put back."""
    before = getattr(model.config, "_attn_implementation", None)
    change = getattr(model, "set_attn_implementation", None)
    if before in (None, "eager") or change is None:
        yield
        return
    change("eager")
    try:
        yield
    finally:
        change(before)
