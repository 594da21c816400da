"""What a model's folder holds and how it is opened: Hugging Face, SentenceTransformer, ONNX, torch files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from metastable.encoders.huggingface import Opened, read_file, read_folder
from metastable.encoders.onnx_file import read_onnx
from metastable.encoders.weight_file import TORCH_FILES, onnx_files, read_json, weight_files
from metastable.errors import InvalidInput, StorageError

BESIDE = ("training_args", "optimizer", "scheduler", "rng_state", "scaler")
"""Torch files of a training that hold no weights."""


def open_folder(path: Path, tokenizer: Any = None, config: Any = None, family: str | None = None) -> Opened:
    """The model in a folder: weights with their config if there are any, else an ONNX graph, else a torch file."""
    if (path / "modules.json").is_file():
        return read_sentence_transformer(path, tokenizer, config, family)
    return _open_plain(path, tokenizer, config, family)


def open_file(path: Path, tokenizer: Any = None, config: Any = None, family: str | None = None) -> Opened:
    """The model in one file: .safetensors, .onnx or what `torch.save` wrote."""
    if path.suffix == ".onnx":
        return read_onnx(path, config, tokenizer, family)
    if path.suffix == ".safetensors" or path.suffix in TORCH_FILES:
        return read_file(path, config, tokenizer, family)
    raise InvalidInput(f"{path.name} is no weight file: expected .safetensors, .onnx or {', '.join(TORCH_FILES)}")


def read_sentence_transformer(
    path: Path, tokenizer: Any = None, config: Any = None, family: str | None = None
) -> Opened:
    """A SentenceTransformer folder: its Transformer module, and the pooling that follows it."""
    modules = read_json(path / "modules.json")
    try:
        kinds = {str(m["type"]).rsplit(".", 1)[-1]: m["path"] for m in modules}
    except (KeyError, TypeError) as error:
        raise StorageError(f"modules.json in {path.name} is no list of modules with a type and a path") from error
    if "Transformer" not in kinds:
        raise InvalidInput(
            f"the SentenceTransformer folder {path.name} has no Transformer module, only {list(kinds)}"
        )
    folder = path / kinds["Transformer"]
    opened = _open_plain(folder, tokenizer, config, family)
    pooling, limit = opened.pooling, opened.inputs.max_tokens
    if "Pooling" in kinds:
        modes = read_json(path / kinds["Pooling"] / "config.json")
        chosen = [
            k.removeprefix("pooling_mode_") for k, v in modes.items() if k.startswith("pooling_mode_") and v is True
        ]
        pooling = "cls" if chosen == ["cls_token"] else "mean"
    beside = folder / "sentence_bert_config.json"
    if beside.is_file():
        told = read_json(beside).get("max_seq_length")
        limit = min(x for x in (limit, told) if x) if (limit or told) else None
    inputs = replace(opened.inputs, max_tokens=limit)
    return replace(opened, inputs=inputs, pooling=pooling)


def _open_plain(path: Path, tokenizer: Any, config: Any, family: str | None) -> Opened:
    beside = path / "config.json"
    settings = config if config is not None else beside if beside.is_file() else None
    if settings is not None and weight_files(path):
        return read_folder(path, tokenizer, settings, family)
    files = [
        *sorted(path.glob("*.safetensors")),
        *onnx_files(path),
        *sorted(f for f in path.glob("*") if f.suffix in TORCH_FILES and f.is_file() and f.stem not in BESIDE),
    ]
    if not files:
        raise InvalidInput(
            f"the folder {path.name} holds no model: no .safetensors, no .onnx (there or in onnx/), no torch file"
        )
    try:
        return open_file(files[0], tokenizer, settings, family)
    except InvalidInput as error:
        others = len(files) - 1
        if files[0].suffix == ".onnx" and not others:
            raise InvalidInput(f"{path.name} has no other weights than these: {error}") from error
        raise
