"""LEX: surprisal of the token ids under a bigram law; no model is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np
from jaxtyping import Float, Integer

from metastable.monitor.channels.channel import Evidence
from metastable.monitor.channels.windows import inside
from metastable.monitor.trace import Trace

BACKING = 1.0
"""Weight of the law of single tokens in that of pairs: (c(a, b) + BACKING p(b)) / (c(a) + BACKING)."""


@dataclass(frozen=True, eq=False)
class Lexical:
    """Mean of -log p(b | a): p(b | a) = (c(a, b) + w p(b)) / (c(a) + w), p(b) = (c(b) + 1) / (N + V)."""

    singles: Integer[np.ndarray, "v"]
    followed: Integer[np.ndarray, "v"]
    """How often a token has one behind it: c(a) of the pairs."""
    pairs: Integer[np.ndarray, "m"]
    """Codes a V + b of the pairs that were seen, ascending."""
    counts: Integer[np.ndarray, "m"]

    def evidence(self, trace: Trace) -> Evidence:
        """How surprising the tokens are, one after the other."""
        told, values = self._surprisals(trace.row, trace.lengths)
        start = np.zeros(len(values), np.int64)
        return Evidence(values, np.full(len(values), -1), lambda: inside(trace, told, start, len(told)))

    def surprisal(self, ids: Integer[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """-log p of every token, in nats, given the one before it; the first one given nothing."""
        return self._surprisals(np.asarray(ids, dtype=np.int64), np.array([len(ids)]))[0]

    def _surprisals(
        self, row: Integer[np.ndarray, "n"], sizes: Integer[np.ndarray, "b"]
    ) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "b"]]:
        """The same for texts one behind the other, and the mean of every text."""
        return _surprisals(
            row, sizes, self._total, self.singles, self.followed, self._begin, self.pairs, self.counts
        )

    @cached_property
    def _total(self) -> float:
        """N + V."""
        return float(self.singles.sum(dtype=np.int64)) + len(self.singles)

    @cached_property
    def _begin(self) -> Integer[np.ndarray, "w"]:
        """Where the pairs of every first token begin among all pairs."""
        return np.searchsorted(self.pairs, len(self.singles) * np.arange(len(self.singles) + 1, dtype=np.int64))


@numba.njit(nogil=True, cache=True)
def _surprisals(row, sizes, total, singles, followed, begin, pairs, counts):  # type: ignore[no-untyped-def]
    told, means = np.empty(len(row)), np.zeros(len(sizes))
    start, size = 0, len(singles)
    for text in range(len(sizes)):
        length = sizes[text]
        for i in range(start, start + length):
            b = min(row[i], size - 1)
            p = (singles[b] + 1.0) / total
            if i > start:
                a = min(row[i - 1], size - 1)
                low, high = begin[a], begin[a + 1]
                code, end = a * size + b, high
                while low < high:
                    middle = (low + high) // 2
                    if pairs[middle] < code:
                        low = middle + 1
                    else:
                        high = middle
                seen = counts[low] if low < end and pairs[low] == code else 0
                p = (seen + BACKING * p) / (followed[a] + BACKING)
            told[i] = -math.log(p)
            means[text] += told[i] / length
        start += length
    return told, means


class LexicalLearner:
    """Counts tokens and pairs of tokens."""

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        self.rows: list[np.ndarray] = []

    def add(self, trace: Trace) -> None:
        """Learn from one more trace."""
        assert trace.ids is not None
        self.rows += [np.asarray(ids, dtype=np.int64) for ids in trace.ids]

    def finish(self) -> Lexical:
        """The channel."""
        size = self.vocabulary
        ids = np.concatenate([np.minimum(row, size - 1) for row in self.rows])
        codes = np.concatenate(
            [np.minimum(r[:-1], size - 1) * size + np.minimum(r[1:], size - 1) for r in self.rows]
        )
        pairs, counts = np.unique(codes, return_counts=True)
        followed = np.bincount(pairs // size, weights=counts, minlength=size).astype(np.int32)
        singles = np.bincount(ids, minlength=size).astype(np.int32)
        return Lexical(singles, followed, pairs, counts.astype(np.int32))
