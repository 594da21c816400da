"""CHARS: how the tokens are spelled, by a law of three characters in a row; no model is asked.

With counts n of the calibration texts, p(c | a b) = (n(a b c) + w p(c | b)) / (n(a b) + w), and so on down to p(c).
The score is the largest mean of -log p over the characters of a window of tokens: spelling that is odd in one place
(base64, homoglyphs, another alphabet) is lost in the mean of a long text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from jaxtyping import Float, Integer

from metastable.monitor.channels.channel import Evidence
from metastable.monitor.channels.windows import inside, worst_windows
from metastable.monitor.trace import Trace

ALPHABET = 64
"""Characters that are told apart: the most frequent ones of the calibration texts, and one for all others."""
WINDOW = 16
"""Tokens of a window. Over the development shifts of news mean AUROC was .756, .761 and .771 with 4, 8 and 16, and
.794 for the mean over the text, which sees typing errors better and a base64 tail or a splice worse."""
BACKING = 3.0
"""w."""
UNKNOWN = "\ufffd\ufffd\ufffd\ufffd"
"""A token that stands for what the tokenizer does not know counts as a word of four unknown characters."""


def spellings(tokenizer: Any, vocabulary: int) -> list[str] | None:
    """Every token as it is written, a space in front of those that begin a word; None where nobody knows."""
    try:
        tokens = [str(token) for token in tokenizer.convert_ids_to_tokens(list(range(vocabulary)))]
    except (AttributeError, TypeError, ValueError, IndexError, KeyError, OverflowError):
        return None
    if any(token.startswith("##") for token in tokens):  # WordPiece marks what goes on, others what begins
        written = [token[2:] if token.startswith("##") else " " + token for token in tokens]
    else:
        written = [token.replace("\u0120", " ").replace("\u2581", " ") for token in tokens]
    unknown = getattr(tokenizer, "unk_token_id", None)
    if isinstance(unknown, int) and 0 <= unknown < len(written):
        written[unknown] = " " + UNKNOWN
    return written


@dataclass(frozen=True, eq=False)
class Characters:
    """The spelling of every token and -log p(c | a b)."""

    spelled: Integer[np.ndarray, "m"]
    """Characters of all tokens of the vocabulary, one after the other, by number; zero is any other character."""
    ends: Integer[np.ndarray, "v"]
    surprisal: Float[np.ndarray, "a a a"]
    space: int

    def evidence(self, trace: Trace) -> Evidence:
        """How oddly the worst window is spelled."""
        told, letters = _told(trace.row, trace.lengths, self.spelled, self.ends, self.surprisal, self.space)
        values, begins = worst_windows(told, letters, trace.lengths, WINDOW)
        each = told / np.maximum(letters, 1.0)
        return Evidence(values, np.full(len(values), -1), lambda: inside(trace, each, begins, WINDOW))


class CharactersLearner:
    """Counts three characters in a row."""

    def __init__(self, written: Sequence[str]) -> None:
        self.written = written
        self.rows: list[np.ndarray] = []

    def add(self, trace: Trace) -> None:
        """Learn from one more trace."""
        assert trace.ids is not None
        self.rows += [np.minimum(np.asarray(ids, dtype=np.int64), len(self.written) - 1) for ids in trace.ids]

    def finish(self) -> Characters:
        """The channel."""
        often = np.bincount(np.concatenate(self.rows), minlength=len(self.written))
        counted = {" ": 1}
        for text, count in zip(self.written, often, strict=True):
            for letter in text if count else "":
                counted[letter] = counted.get(letter, 0) + int(count)
        best = sorted(counted, key=lambda letter: (-counted[letter], letter))[: ALPHABET - 1]
        number = {letter: i + 1 for i, letter in enumerate(dict.fromkeys([" ", *best][: ALPHABET - 1]))}
        spelled = np.array([number.get(letter, 0) for text in self.written for letter in text], dtype=np.uint8)
        ends = np.cumsum([len(text) for text in self.written])
        three = np.zeros((ALPHABET,) * 3)
        for row in self.rows:
            _count(row, spelled, ends, number[" "], three)
        return Characters(spelled, ends, _surprisal(three), number[" "])


def _surprisal(three: Float[np.ndarray, "a a a"]) -> Float[np.ndarray, "a a a"]:
    """-log p(c | a b) of counts."""
    two, one = three.sum(axis=0), three.sum(axis=(0, 1))
    p = (one + 0.5) / (one.sum() + 0.5 * len(one))
    for count in (two, three):
        p = (count + BACKING * p) / (count.sum(axis=-1, keepdims=True) + BACKING)
    return -np.log(p).astype(np.float32)


@numba.njit(nogil=True, cache=True)
def _count(ids, spelled, ends, space, three):  # type: ignore[no-untyped-def]
    a = b = space
    for token in ids:
        for k in range(ends[token - 1] if token else 0, ends[token]):
            three[a, b, spelled[k]] += 1
            a, b = b, spelled[k]


@numba.njit(nogil=True, cache=True)
def _told(ids, sizes, spelled, ends, surprisal, space):  # type: ignore[no-untyped-def]
    """Sum of -log p over the characters of every token, and their number."""
    told, letters = np.zeros(len(ids)), np.zeros(len(ids))
    start = 0
    for size in sizes:
        a = b = space
        for i in range(start, start + size):
            token = min(ids[i], len(ends) - 1)
            for k in range(ends[token - 1] if token else 0, ends[token]):
                told[i] += surprisal[a, b, spelled[k]]
                letters[i] += 1
                a, b = b, spelled[k]
        start += size
    return told, letters
