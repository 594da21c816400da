"""What a monitor is given: texts with their documents, or scores."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from torch import Tensor

from metastable.arguments import items, sequence, shown
from metastable.encoders.inputs import Inputs
from metastable.errors import InvalidInput
from metastable.monitor.score import Score


def readable(inputs: Inputs, texts: Any, documents: Any) -> tuple[list[dict[str, Any] | Tensor], list[Any], int]:
    """Model inputs of the texts that are not blank, their documents (by default their numbers), how many texts."""
    try:
        given = [texts] if isinstance(texts, str) else list(items(texts))
    except Exception:
        raise InvalidInput(f"texts must be a list, got {shown(texts)}") from None
    if isinstance(texts, (bytes, dict, set, frozenset)):
        raise InvalidInput(f"texts must be a list, got {shown(texts)}")
    named = list(range(len(given))) if documents is None else labels(documents, len(given))
    kept = [(item, label) for item, label in zip(given, named, strict=True) if not _blank(item)]
    made = [inputs.prepare([item])[0] for item, _ in kept]
    return made, [label for _, label in kept], len(given)


def labels(documents: Any, count: int) -> list[Hashable]:
    """The documents of so many texts."""
    named = list(sequence(documents, "documents", (str, int, float, tuple, np.generic), "labels"))
    if len(named) != count:
        raise InvalidInput(f"documents must name one for each of the {count} texts, got {len(named)}")
    return named


def scores_in(batch: Any) -> tuple[Score, ...] | None:
    """The scores, if that is what was given."""
    if isinstance(batch, (list, tuple)) and batch and all(isinstance(one, Score) for one in batch):
        return tuple(batch)
    return None


def _blank(item: Any) -> bool:
    return isinstance(item, str) and not item.strip()
