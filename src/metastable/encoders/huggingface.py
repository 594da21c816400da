"""Models in the Hugging Face layout: folders, ids, bare safetensors files, SentenceTransformer folders."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metastable.encoders.inputs import Inputs
from metastable.encoders.weight_file import lacks_config, read_json, read_weights, weight_files
from metastable.errors import InvalidInput, MissingExtra, StorageError

DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")


@dataclass(frozen=True, eq=False)
class Opened:
    """A model ready to run in float32, what it reads, how its embedding is pooled, how it was stored."""

    model: nn.Module = field(repr=False)
    inputs: Inputs
    pooling: str = "mean"
    stored_dtype: str = "float32"
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unreadable:
    """A tokenizer beside the weights that cannot be read: no matter until a text is given."""

    problem: str


def library() -> Any:
    """The transformers package, or a sentence that says how to install it."""
    try:
        import transformers
    except ImportError as error:
        raise MissingExtra.of("transformers", "encoders") from error
    return transformers


def read_folder(path: Path, tokenizer: Any = None) -> Opened:
    """A folder with config.json and weights."""
    library()
    config = read_config(path)
    state: dict[str, Tensor] = {}
    files = weight_files(path)
    for file in files:
        state.update(read_weights(file))
    model, stored, remarks = _instantiate(config, state, path.name)
    inputs = _inputs(model, _tokenizer(tokenizer, path, config))
    return Opened(model, inputs, _pooling(config), stored, remarks)


def read_file(path: Path, config: Any = None, tokenizer: Any = None) -> Opened:
    """A bare weight file with its config (given, or config.json beside it)."""
    library()
    if config is None:
        config = path.parent / "config.json"
        if not config.is_file():
            raise InvalidInput(lacks_config(path))
    config = read_config(config)
    model, stored, remarks = _instantiate(config, read_weights(path), path.name)
    inputs = _inputs(model, _tokenizer(tokenizer, path.parent, config))
    return Opened(model, inputs, _pooling(config), stored, remarks)


def read_id(name: str, tokenizer: Any = None) -> Opened:
    """A model id: from the local cache when it is there, else from the hub."""
    library()
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.txt", "*.model", "*.safetensors"]
    try:
        folder = snapshot_download(name, local_files_only=True, allow_patterns=wanted)
    except Exception:
        try:
            folder = snapshot_download(name, allow_patterns=wanted)
        except Exception as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise StorageError(
                f"{name} is no local folder and could not be fetched as a model id: {reason}"
            ) from error
    path = Path(folder)
    if (path / "modules.json").is_file():
        return read_sentence_transformer(path, tokenizer)
    return read_folder(path, tokenizer)


def read_sentence_transformer(path: Path, tokenizer: Any = None) -> Opened:
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
    opened = read_folder(folder, tokenizer)
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


def wrap(model: Any, tokenizer: Any = None) -> Opened:
    """A Hugging Face model in memory; of a model with a head, the encoder inside it."""
    base = model.base_model if model.base_model is not None else model
    _refuse_decoder(base.config)
    _refuse_quantised(base.config)
    dtype = next(base.parameters()).dtype
    if not dtype.is_floating_point:
        raise InvalidInput(f"the model's parameters are {dtype}; a quantised model must be dequantised first")
    if dtype != torch.float32:
        import copy

        base = copy.deepcopy(base).float()
    return Opened(
        base,
        _inputs(base, _tokenizer(tokenizer, None, base.config)),
        _pooling(base.config),
        str(dtype).split(".")[-1],
    )


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
        _refuse_quantised(source)
        try:
            source = transformers.CONFIG_MAPPING[kind].from_dict(source)
        except Exception as error:
            reason = " ".join(str(error).split())[:160]
            raise InvalidInput(f"the config is no {kind} config: {reason}") from error
    if not hasattr(source, "model_type"):
        raise InvalidInput(f"a config is a dictionary or a transformers config, got {type(source).__name__}")
    _refuse_decoder(source)
    return source


def _instantiate(config: Any, state: dict[str, Tensor], name: str) -> tuple[nn.Module, str, tuple[str, ...]]:
    transformers = library()
    matrices = Counter(str(t.dtype).split(".")[-1] for t in state.values() if t.ndim == 2)
    small = next((t.dtype for t in state.values() if t.ndim >= 2 and t.element_size() == 1), None)
    if small not in (None, torch.bool):
        told = str(small).split(".")[-1]
        raise InvalidInput(f"{name} stores its weights as {told}; a quantised model must be dequantised first")
    stored = next((kind for kind, _ in matrices.most_common() if kind in DTYPES.values()), "float32")
    state = {k: v.float() if v.is_floating_point() else v for k, v in state.items()}
    with _quiet():
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


def _inputs(model: Any, tokenizer: Any) -> Inputs:
    config = model.config
    if hasattr(config, "image_size") and hasattr(config, "num_channels"):
        size = config.image_size
        height, width = (size, size) if isinstance(size, int) else size
        return Inputs("image", shape=(int(config.num_channels), int(height), int(width)))
    limit = getattr(config, "max_position_embeddings", None)
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if isinstance(table, nn.Embedding) and table.padding_idx is not None:
        limit = table.num_embeddings - table.padding_idx - 1  # RoBERTa counts positions from padding_idx + 1
    problem = tokenizer.problem if isinstance(tokenizer, Unreadable) else ""
    tokenizer = None if problem else tokenizer
    told = getattr(tokenizer, "model_max_length", None)
    limits = [int(x) for x in (limit, told) if x and x < 10**9]
    vocabulary = int(getattr(config, "vocab_size", 0))
    return Inputs("text", tokenizer, vocabulary, min(limits) if limits else None, problem=problem)


def _tokenizer(tokenizer: Any, folder: Path | None, config: Any) -> Any:
    if tokenizer is not None and not isinstance(tokenizer, (str, Path)):
        return tokenizer
    place = folder if tokenizer is None else Path(tokenizer)
    if place is None or not any((place / file).is_file() for file in TOKENIZER_FILES):
        if tokenizer is not None:
            raise StorageError(f"the folder {place} holds no tokenizer")
        return None
    transformers = library()
    with _quiet():
        try:
            if _bare_vocabulary(place):
                lower = not _has_capitals(place / "vocab.txt")
                return transformers.BertTokenizerFast.from_pretrained(str(place), do_lower_case=lower)
            return transformers.AutoTokenizer.from_pretrained(str(place), config=config, local_files_only=True)
        except Exception as error:
            reason = " ".join(str(error).split())[:120]
            problem = f"the tokenizer of {place.name} cannot be read: {reason}"
            if tokenizer is not None:
                raise StorageError(problem) from error
            return Unreadable(problem)


def _bare_vocabulary(folder: Path) -> bool:
    """A WordPiece vocabulary and nothing that says how to read it."""
    beside = ("tokenizer.json", "tokenizer_config.json", "config.json", "vocab.json")
    return (folder / "vocab.txt").is_file() and not any((folder / file).is_file() for file in beside)


def _has_capitals(vocabulary: Path) -> bool:
    words = vocabulary.read_text(encoding="utf-8", errors="replace").splitlines()
    return any(word != word.lower() for word in words if not word.startswith(("[", "<")))


def _pooling(config: Any) -> str:
    return "cls" if hasattr(config, "image_size") else "mean"


def _refuse_decoder(config: Any) -> None:
    kind = getattr(config, "model_type", "this model")
    if getattr(config, "is_encoder_decoder", False):
        raise InvalidInput(f"{kind} is an encoder-decoder; pass its encoder, metastable audits encoders")
    built = " ".join(getattr(config, "architectures", None) or [])
    if getattr(config, "is_decoder", False) or "CausalLM" in built or "LMHeadModel" in built:
        raise InvalidInput(f"{kind} is a causal decoder; metastable audits encoders, whose tokens attend both ways")


def is_decoder_family(kind: str) -> bool:
    """Whether a family is for causal language modelling only."""
    from transformers.models.auto import modeling_auto as known

    masked, causal = known.MODEL_FOR_MASKED_LM_MAPPING_NAMES, known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return kind in causal and kind not in masked and kind != "xlnet"


def _refuse_quantised(config: Any) -> None:
    get = config.get if isinstance(config, dict) else lambda key: getattr(config, key, None)
    told = get("quantization_config")
    if told:
        method = told.get("quant_method", "quantised") if isinstance(told, dict) else "quantised"
        raise InvalidInput(
            f"the model is quantised ({method}); dequantise it first, an audit needs its real weights"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and no loading report from transformers; its settings are put back."""
    transformers = library()
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
