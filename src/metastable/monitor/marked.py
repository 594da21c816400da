"""Texts with the tokens that carry an alarm marked in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from metastable.encoders.inputs import Inputs
from metastable.monitor.batches import special_ids
from metastable.monitor.score import Mark

LONGEST = 4000
"""Characters of a text that a page shows."""


def segments(inputs: Inputs, text: Any, marks: Sequence[Mark]) -> list[tuple[str, float]]:
    """The text in pieces, each with the share of its token in the alarm (0: none), relative to the largest.

    >>> segments(Inputs("text"), [7, 8, 9], [Mark(1, 0.5)])
    [('7 ', 0.0), ('8 ', 1.0), ('9 ', 0.0)]
    """
    largest = max((mark.share for mark in marks), default=0.0) or 1.0
    shares = {mark.number: mark.share / largest for mark in marks}
    spans = _spans(inputs, text) if isinstance(text, str) else None
    if spans is None:
        words = _words(inputs, text)
        return [(f"{word} ", shares.get(i, 0.0)) for i, word in enumerate(words)]
    found: list[tuple[str, float]] = []
    place = 0
    for number, (begin, end) in enumerate(spans):
        if number not in shares or begin < place or end > LONGEST:
            continue
        if begin > place:
            found.append((text[place:begin], 0.0))
        found.append((text[begin:end], shares[number]))
        place = end
    rest = text[place:LONGEST] + ("…" if len(text) > LONGEST else "")
    return [*found, (rest, 0.0)] if rest else found


def _spans(inputs: Inputs, text: str) -> list[tuple[int, int]] | None:
    """Where the content tokens of a text stand in it; None for a tokenizer that does not say."""
    if not getattr(inputs.tokenizer, "is_fast", False):
        return None
    options = {"truncation": True, "max_length": inputs.max_tokens} if inputs.max_tokens else {}
    read = inputs.tokenizer(text, return_offsets_mapping=True, verbose=False, **options)
    special = set(special_ids(inputs.tokenizer))
    pairs = zip(read["input_ids"], read["offset_mapping"], strict=True)
    return [(int(begin), int(end)) for i, (begin, end) in pairs if i not in special]


def _words(inputs: Inputs, text: Any) -> list[str]:
    """Words for the tokens where their places in the text are not known: ids as they are, else the text alone."""
    if not isinstance(text, str):
        return [str(i) for i in list(text)[:LONGEST]] if inputs.kind == "text" else []
    return text[:LONGEST].split()
