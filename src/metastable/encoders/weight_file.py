"""Weight files: which ones a folder has, and their tensors; only safetensors and `weights_only` torch files."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metastable.errors import InvalidInput, MissingExtra, StorageError

POINTER = b"version https://git-lfs"
"""How a file begins that only points to the weights."""
STATES = ("state_dict", "model_state_dict")
"""Where training code keeps the weights inside a torch file."""
WRAPPERS = ("module.", "_orig_mod.", "model.", "auto_model.", "0.auto_model.")
"""What wrappers of a model put in front of all names of its tensors."""
TORCH_FILES = (".bin", ".pt", ".pth", ".ckpt")
"""How the files are called that `torch.save` writes."""


def weight_files(path: Path) -> list[Path]:
    """The weight files of a folder: safetensors when there are any, else one torch file."""
    index = path / "model.safetensors.index.json"
    if index.is_file():
        try:
            return [path / name for name in sorted(set(read_json(index)["weight_map"].values()))]
        except (KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"{index.name} in {path.name} has no weight_map from tensors to files") from error
    if (path / "model.safetensors").is_file():
        return [path / "model.safetensors"]
    return [path / "pytorch_model.bin"] if (path / "pytorch_model.bin").is_file() else []


def onnx_files(path: Path) -> list[Path]:
    """The ONNX files of a folder and of its onnx/: model.onnx first, names that tell of quantisation last."""
    found = [*path.glob("*.onnx"), *path.glob("onnx/*.onnx")]
    small = re.compile(r"quant|int8|uint8|_q\d|bnb|_O\d", re.IGNORECASE)
    return sorted(found, key=lambda file: (file.name != "model.onnx", bool(small.search(file.stem)), str(file)))


def read_weights(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors or `weights_only` torch file."""
    if not path.is_file():
        raise StorageError(f"the weight file {path.name} is not in {path.parent.name}")
    with path.open("rb") as file:
        if file.read(len(POINTER)) == POINTER:
            raise StorageError(f"{path.name} is a Git LFS pointer, not the weights; fetch them with: git lfs pull")
    if path.suffix != ".safetensors":
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise StorageError(
                f"{path.name} cannot be read as plain weights (truncated, or not weights only)"
            ) from error
        if isinstance(state, dict):
            state = next((state[key] for key in STATES if isinstance(state.get(key), dict)), state)
        if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()) or not state:
            raise InvalidInput(f"{path.name} holds no dictionary of tensors")
        return _without_wrapper(state)
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise MissingExtra.of("safetensors", "encoders") from error
    try:
        return load_file(path)
    except Exception as error:
        raise StorageError(f"{path.name} is truncated or no safetensors file ({_size(path)})") from error


def _without_wrapper(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The names as the model itself has them: parallel and compiled training put a word in front of all."""
    for word in WRAPPERS:
        if all(key.startswith(word) for key in state):
            return _without_wrapper({key.removeprefix(word): tensor for key, tensor in state.items()})
    return state


def lacks_config(path: Path) -> str:
    """Why a bare weight file cannot be opened without a config."""
    if path.suffix != ".safetensors":
        try:
            held = torch.load(path, map_location="cpu", weights_only=True)
        except Exception:
            held = None
        own = held.get("config") if isinstance(held, dict) else None
        if isinstance(own, dict) and "model_type" not in own:
            return (
                f"{path.name} is a checkpoint of an architecture of its own (its config names no model_type), and "
                "code that comes with a model is not run"
            )
    return f"{path.name} needs its config: put config.json beside it, or pass config=... (command line: --config)"


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(f"{path.name} cannot be read in {path.parent.name}") from error
    except ValueError as error:
        raise StorageError(f"{path.name} in {path.parent.name} is not valid JSON") from error


def _size(path: Path) -> str:
    size = path.stat().st_size
    if size < 8:
        return f"{size} bytes"
    with path.open("rb") as file:
        header = struct.unpack("<Q", file.read(8))[0]
    return f"{size} bytes, header of {header} bytes expected" if header > size else f"{size} bytes"
