"""Models in the Hugging Face layout: folders, ids, bare weight files, models in memory."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metastable.arguments import shown
from metastable.encoders.assemble import assemble
from metastable.encoders.images import Pictures
from metastable.encoders.inputs import Inputs
from metastable.encoders.model_config import family_was_given, read_config, refuse_decoder, refuse_quantised
from metastable.encoders.tokenizer import UnreadableTokenizer, read_tokenizer
from metastable.encoders.transformers_library import library
from metastable.encoders.weight_file import lacks_config, read_weights, weight_files
from metastable.errors import InvalidInput, StorageError


@dataclass(frozen=True, eq=False)
class Opened:
    """A model ready to run in float32, what it reads, how its embedding is pooled, how it was stored."""

    model: nn.Module = field(repr=False)
    inputs: Inputs
    pooling: str = "mean"
    stored_dtype: str = "float32"
    remarks: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    """The files that hold the weights; none for a model in memory."""


def read_folder(path: Path, tokenizer: Any = None, config: Any = None, family: str | None = None) -> Opened:
    """A folder with weights and config.json, or a config given."""
    library()
    config = read_config(path if config is None else config, family)
    state: dict[str, Tensor] = {}
    files = weight_files(path)
    for file in files:
        state.update(read_weights(file))
    model, stored, remarks = assemble(config, state, path.name)
    inputs = inputs_of(model, read_tokenizer(tokenizer, path, config), path)
    remarks = (*remarks, *family_was_given(config, family))
    return Opened(model, inputs, _pooling(config), stored, remarks, tuple(files))


def read_file(path: Path, config: Any = None, tokenizer: Any = None, family: str | None = None) -> Opened:
    """A bare weight file with its config (given, or config.json beside it)."""
    library()
    if config is None:
        config = path.parent / "config.json"
        if not config.is_file():
            raise InvalidInput(lacks_config(path))
    config = read_config(config, family)
    model, stored, remarks = assemble(config, read_weights(path), path.name)
    inputs = inputs_of(model, read_tokenizer(tokenizer, path.parent, config), path.parent)
    remarks = (*remarks, *family_was_given(config, family))
    return Opened(model, inputs, _pooling(config), stored, remarks, (path,))


def folder_of_id(name: str) -> Path:
    """The folder of a model id: in the local cache when all of it is there, else fetched from the hub."""
    library()
    return _cached(name) or _fetched(name)


WANTED = ["*.json", "*.txt", "*.model", "*.safetensors"]
"""What is read of a model on the hub: its configs, its tokenizer, its weights without code."""


def _cached(name: str) -> Path | None:
    """The model's folder in the local cache; None where the cache has no such model, or not all of it."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        path = Path(snapshot_download(name, local_files_only=True, allow_patterns=WANTED))
    except LocalEntryNotFoundError:
        return None
    except HFValidationError:
        raise InvalidInput(f"{shown(name)} is no local folder, and no model id such as 'owner/name'") from None
    except Exception as error:
        raise StorageError(f"{name} is in the local cache but cannot be read: {_first_line(error)}") from error
    whole = any(path.rglob("config.json")) and any(path.rglob("*.safetensors"))
    return path if whole else None


def _fetched(name: str) -> Path:
    """The model's folder after it was fetched from the hub."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, OfflineModeIsEnabled, RepositoryNotFoundError

    missing = f"{name} is no local folder and not (wholly) in the local cache"
    try:
        return Path(snapshot_download(name, allow_patterns=WANTED))
    except OfflineModeIsEnabled as error:
        raise StorageError(f"{missing}, and the hub is switched off (HF_HUB_OFFLINE)") from error
    except GatedRepoError as error:
        raise StorageError(f"{missing}, and the hub wants you to accept its terms and to log in first") from error
    except RepositoryNotFoundError as error:
        raise StorageError(f"{missing}, and the hub has no public model of this name") from error
    except Exception as error:
        raise StorageError(f"{missing}, and the hub could not be reached: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return " ".join(text.splitlines()[0].split())[:80] if text else type(error).__name__


def wrap(model: Any, tokenizer: Any = None) -> Opened:
    """A Hugging Face model in memory; of a model with a head, the encoder inside it."""
    base = model.base_model if model.base_model is not None else model
    refuse_decoder(base.config)
    refuse_quantised(base.config)
    dtype = next(base.parameters()).dtype
    if not dtype.is_floating_point:
        raise InvalidInput(f"the model's parameters are {dtype}; a quantised model must be dequantised first")
    if dtype != torch.float32:
        base = copy.deepcopy(base).float()
    return Opened(
        base,
        inputs_of(base, read_tokenizer(tokenizer, None, base.config)),
        _pooling(base.config),
        str(dtype).split(".")[-1],
    )


def inputs_of(model: Any, tokenizer: Any, folder: Path | None = None) -> Inputs:
    """What the model reads, and how much of it at once; the folder may say how images are read."""
    config = model.config
    if hasattr(config, "image_size") and hasattr(config, "num_channels"):
        size = config.image_size
        height, width = (size, size) if isinstance(size, int) else size
        shape = (int(config.num_channels), int(height), int(width))
        return Inputs("image", shape=shape, pictures=Pictures.of(folder))
    limit = getattr(config, "max_position_embeddings", None)
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if isinstance(table, nn.Embedding) and table.padding_idx is not None:
        limit = table.num_embeddings - table.padding_idx - 1  # RoBERTa counts positions from padding_idx + 1
    problem = tokenizer.problem if isinstance(tokenizer, UnreadableTokenizer) else ""
    tokenizer = None if problem else tokenizer
    told = getattr(tokenizer, "model_max_length", None)
    limits = [int(x) for x in (limit, told) if x and x < 10**9]
    vocabulary = int(getattr(config, "vocab_size", 0))
    return Inputs("text", tokenizer, vocabulary, min(limits) if limits else None, problem=problem)


def _pooling(config: Any) -> str:
    return "cls" if hasattr(config, "image_size") else "mean"
