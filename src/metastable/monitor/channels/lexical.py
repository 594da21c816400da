"""LEX: surprisal of the token ids under a bigram law; no model is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer

from metastable.monitor.channels.channel import Evidence
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
        assert trace.ids is not None
        told = self._surprisals(trace.ids)
        values = np.array([row.mean() if len(row) else 0.0 for row in told])
        return Evidence(values, np.full(len(values), -1), lambda: self._shares(trace, told))

    def _shares(self, trace: Trace, told: Sequence[np.ndarray]) -> Float[np.ndarray, "b k"]:
        """The surprisal of every token of the trace."""
        numbers, mask = trace.numbers.cpu().numpy(), trace.mask.cpu().numpy()
        tokens = np.zeros(mask.shape)
        for b, row in enumerate(told):
            if len(row):
                tokens[b] = np.where(mask[b], row[np.minimum(numbers[b], len(row) - 1)], 0.0)
        return tokens

    def surprisal(self, ids: Integer[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """-log p of every token, in nats, given the one before it; the first one given nothing."""
        return self._surprisals([ids])[0]

    def _surprisals(self, texts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """All texts as one row of ids, since a look into the table of pairs costs by the call."""
        size = len(self.singles)
        ends = np.cumsum([len(ids) for ids in texts])
        ids = np.minimum(np.concatenate([np.asarray(ids, dtype=np.int64) for ids in texts]), size - 1)
        single = (self.singles[ids] + 1.0) / (int(self.singles.sum(dtype=np.int64)) + size)
        p = single.copy()
        if len(self.pairs) and len(ids):
            code = ids[:-1] * size + ids[1:]
            place = np.minimum(np.searchsorted(self.pairs, code), len(self.pairs) - 1)
            seen = np.where(self.pairs[place] == code, self.counts[place], 0)
            p[1:] = (seen + BACKING * single[1:]) / (self.followed[ids[:-1]] + BACKING)
            begin = ends[:-1][ends[:-1] < len(ids)]
            p[begin] = single[begin]
        return np.split(-np.log(p), ends[:-1])


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
