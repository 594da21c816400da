"""Tokenizers beside the weights: found, read, and a problem of theirs kept until a text is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metastable.encoders.transformers_library import library, quiet
from metastable.errors import StorageError

TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")
"""Files by which a folder is known to hold a tokenizer."""


@dataclass(frozen=True)
class UnreadableTokenizer:
    """A tokenizer beside the weights that cannot be read: no matter until a text is given."""

    problem: str


def read_tokenizer(tokenizer: Any, folder: Path | None, config: Any) -> Any:
    """The tokenizer that was given (an object, or a folder), else the one in the model's folder, else None."""
    if tokenizer is not None and not isinstance(tokenizer, (str, Path)):
        return tokenizer
    place = folder if tokenizer is None else Path(tokenizer)
    if place is None or not has_tokenizer(place):
        if tokenizer is not None:
            raise StorageError(f"the folder {place} holds no tokenizer")
        return None
    transformers = library()
    with quiet():
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
            return UnreadableTokenizer(problem)


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder holds one of the files of a tokenizer."""
    return any((folder / file).is_file() for file in TOKENIZER_FILES)


def _bare_vocabulary(folder: Path) -> bool:
    """A WordPiece vocabulary and nothing that says how to read it."""
    beside = ("tokenizer.json", "tokenizer_config.json", "config.json", "vocab.json")
    return (folder / "vocab.txt").is_file() and not any((folder / file).is_file() for file in beside)


def _has_capitals(vocabulary: Path) -> bool:
    words = vocabulary.read_text(encoding="utf-8", errors="replace").splitlines()
    return any(word != word.lower() for word in words if not word.startswith(("[", "<")))
