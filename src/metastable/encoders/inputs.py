"""What a model reads: texts, token ids, images or token vectors, made into one input per item."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metastable.arguments import shown
from metastable.encoders.images import Pictures
from metastable.errors import InvalidInput
from metastable.measure import as_tensor

SENTENCES = (
    "The tide went out and left the boats leaning on the sand.",
    "Each particle feels the mean of all the others, weighted by how much it resembles them.",
)
"""Texts on which a model with a tokenizer is compared with what was rebuilt from it."""
LEAST_DIFFERENT_TOKENS = 8
"""Different tokens that these sentences must have; where they have fewer, seeded random tokens are read as well."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """How items become model inputs. kind: "text", "image" or "vectors".

    A text longer than `max_tokens` is cut there, as the model itself would have it.
    """

    kind: str
    tokenizer: Any = field(default=None, repr=False)
    vocabulary: int = 0
    max_tokens: int | None = None
    shape: tuple[int, ...] = ()
    """(channels, height, width) of an image, or (d,) of a token vector."""
    dtype: torch.dtype = torch.float32
    batch_first: bool = True
    pictures: Pictures = field(default=Pictures(), repr=False)
    """How image files are read."""
    problem: str = ""
    """Why the tokenizer beside the weights could not be read, if there is one."""

    def prepare(self, items: Any) -> list[dict[str, Any] | Tensor]:
        """One model input (batch of one) per item."""
        if isinstance(items, str):
            items = [items]
        if not isinstance(items, (list, tuple, np.ndarray, Tensor)) or getattr(items, "ndim", 1) == 0:
            raise InvalidInput(f"texts must be a list, got {shown(items)}")
        if len(items) == 0:
            raise InvalidInput("texts must hold at least one text, got none")
        return [self._one(item, i) for i, item in enumerate(items)]

    def lengths(self, texts: Any) -> list[int]:
        """Number of tokens of every text before it is cut (special tokens included)."""
        result = []
        for text in [texts] if isinstance(texts, str) else texts:
            if isinstance(text, str):
                result.append(len(self._read(text)))
            else:
                result.append(len(text))
        return result

    def own_tokens(self, text: Any) -> int:
        """Number of tokens of one text, special tokens not counted."""
        if self.kind == "text" and isinstance(text, str):
            return len(self._read(text, add_special_tokens=False))
        return len(text)

    def unknown(self, texts: Any) -> float:
        """Share of the texts' tokens that the tokenizer does not know (special tokens not counted)."""
        mark = getattr(self.tokenizer, "unk_token_id", None)
        if mark is None:
            return 0.0
        read = [self._read(text, add_special_tokens=False) for text in texts if isinstance(text, str)]
        total = sum(map(len, read))
        return sum(ids.count(mark) for ids in read) / total if total else 0.0

    def samples(self, dtype: torch.dtype | None = None) -> list[dict[str, Any] | Tensor]:
        """Inputs on which the adapter is verified: sentences, or seeded random input without a tokenizer."""
        generator = torch.Generator().manual_seed(20260101)
        precision = dtype or self.dtype
        if self.kind == "vectors":
            rows = torch.randn((17, *self.shape), generator=generator, dtype=torch.float64).to(precision)
            return [rows[None] if self.batch_first else rows[:, None]]
        if self.kind == "image":
            pixels = torch.randn((1, *self.shape), generator=generator, dtype=torch.float64)
            return [{"pixel_values": pixels.to(precision)}]
        length = min(17, self.max_tokens or 17)
        drawn = [self._one(torch.randint(0, max(self.vocabulary, 2), (length,), generator=generator), 0)]
        if self.tokenizer is None:
            return drawn
        try:
            sentences = self.prepare(list(SENTENCES))
        except InvalidInput:  # not this model's tokenizer: told when a text is read, weights need none
            return drawn
        # A tokenizer of another alphabet leaves a few unknown tokens, on which any adapter would look right.
        different = {int(i) for item in sentences if isinstance(item, dict) for i in item["input_ids"][0]}
        return sentences if len(different) >= LEAST_DIFFERENT_TOKENS else [*sentences, *drawn]

    def _one(self, item: Any, index: int) -> dict[str, Any] | Tensor:
        if self.kind == "image" and isinstance(item, (str, Path)) and _is_file(item):
            return {"pixel_values": self.pictures.read(Path(item), self.shape)[None].to(self.dtype)}
        if self.kind != "text" and isinstance(item, (str, Path)):
            reads = "images" if self.kind == "image" else "token vectors"
            raise InvalidInput(f"this model reads {reads} of shape {self.shape}, not texts; got {str(item)[:20]!r}")
        if self.kind == "vectors":
            rows = as_tensor(item, f"item {index}", self.dtype)
            if rows.ndim != 2 or rows.shape[1:] != self.shape or not len(rows):
                raise InvalidInput(
                    f"item {index} must be token vectors (n, {self.shape[0]}), got {tuple(rows.shape)}"
                )
            return rows[None] if self.batch_first else rows[:, None]
        if self.kind == "image":
            pixels = as_tensor(item, f"image {index}", self.dtype)
            if tuple(pixels.shape) != self.shape:
                raise InvalidInput(f"image {index} must have shape {self.shape}, got {tuple(pixels.shape)}")
            return {"pixel_values": pixels[None]}
        ids = self._ids(item, index)
        return {"input_ids": ids[None], "attention_mask": torch.ones_like(ids)[None]}

    def _ids(self, item: Any, index: int) -> Tensor:
        if isinstance(item, str):
            ids = np.asarray(self._read(item, truncation=True, max_length=self.max_tokens))
        else:
            try:
                ids = np.asarray(item)
            except Exception:
                raise InvalidInput(
                    f"text {index} must be a string or a list of token ids, got {shown(item)}"
                ) from None
            if ids.ndim != 1 or ids.dtype.kind not in "iu":
                raise InvalidInput(f"text {index} must be a string or a list of token ids, got {shown(item)}")
            ids = ids[: self.max_tokens]
        row = torch.as_tensor(np.asarray(ids), dtype=torch.long)
        if len(row) == 0:
            raise InvalidInput(f"text {index} has no tokens")
        if self.vocabulary and not (row.min() >= 0 and row.max() < self.vocabulary):
            raise InvalidInput(
                f"text {index} has a token id outside 0..{self.vocabulary - 1}, got {_farthest(row)}"
                + (": is this the model's tokenizer?" if isinstance(item, str) else "")
            )
        return row

    def _read(self, text: str, **options: Any) -> list[int]:
        """Token ids of a text."""
        if self.tokenizer is None and self.problem:
            raise InvalidInput(self.problem)
        if self.tokenizer is None:
            raise InvalidInput(
                f"this model has no tokenizer, so {text[:20]!r} cannot be read; give token ids, or the folder "
                "of a tokenizer (tokenizer=..., on the command line --tokenizer)"
            )
        try:
            return list(self.tokenizer(text, verbose=False, **options)["input_ids"])
        except Exception as error:  # the tokenizers library raises a bare Exception
            reason = " ".join(str(error).split())[:120]
            raise InvalidInput(f"the tokenizer cannot read {text[:20]!r}: {reason}") from error


def _is_file(item: str | Path) -> bool:
    try:
        return Path(item).is_file()
    except (OSError, ValueError):  # a text that is too long for a path, or holds a NUL
        return False


def _farthest(row: Tensor) -> int:
    return int(row.min()) if int(row.min()) < 0 else int(row.max())
