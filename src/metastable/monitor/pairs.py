"""`Pairs`: how well two tokens that stand side by side go together, from their embeddings and no model.

With e_a the input embedding of token a, less its mean over the texts, and canonical directions x_r, y_r (Hotelling)
of the embeddings of neighbours, u_r(a) = x_r . e_a and v_r(b) = y_r . e_b have correlation c_1 >= c_2 >= ... over
the pairs (a, b) of the texts. The products u_r(a) v_r(b) are large for pairs as they are usual, seen or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from metastable.monitor.trace import Trace

DIRECTIONS = 32
"""Canonical directions that are kept. Replaced tokens of news were told apart as well with 32 as with 64 (area .826
for both with the embeddings of all-MiniLM-L6-v2, .832 and .834 with those of paraphrase-MiniLM-L3-v2), worse with
128 (.819, .827)."""
RIDGE = 0.2
"""What is added to the variances of the embeddings, as a part of their mean: .02 gave .822 and .825."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """u_r and v_r of every token of the vocabulary."""

    before: Float[Tensor, "v r"]
    behind: Float[Tensor, "v r"]

    @classmethod
    def fit(cls, table: Float[Tensor, "v d"], texts: Sequence[Integer[np.ndarray, "_"]]) -> Pairs:
        """From the embeddings of the vocabulary and the ids of texts that are as they should be."""
        every = table.detach().double().cpu()
        rows = [torch.from_numpy(np.minimum(np.asarray(ids, dtype=np.int64), len(every) - 1)) for ids in texts]
        if sum(max(len(ids) - 1, 0) for ids in rows) == 0:
            return cls(every.new_zeros(len(every), 1).half(), every.new_zeros(len(every), 1).half())
        share = torch.bincount(torch.cat(rows), minlength=len(every)).double()
        share /= share.sum()
        every = every - share @ every
        values, vectors = torch.linalg.eigh((every * share[:, None]).mT @ every)
        white = vectors * (values + RIDGE * values.mean()).rsqrt()
        cross = sum((every[ids[:-1]].mT @ every[ids[1:]] for ids in rows), torch.zeros_like(white))
        left, _, right = torch.linalg.svd(white.mT @ cross @ white)
        kept = min(DIRECTIONS, len(white))
        return cls((every @ (white @ left[:, :kept])).half(), (every @ (white @ right[:kept].mT)).half())

    def products(self, trace: Trace) -> tuple[Float[Tensor, "b k r"], Float[Tensor, "b k r"]]:
        """u_r v_r of every token of a trace with the one before it and with the one behind it; zero at the ends."""
        u, v, real = self.neighbours(trace)
        before, behind = (u * v * real[..., None]).view(2, *trace.numbers.shape, u.shape[2])
        return before, behind

    def neighbours(
        self, trace: Trace
    ) -> tuple[Float[Tensor, "2 n r"], Float[Tensor, "2 n r"], Float[Tensor, "2 n"]]:
        """u and v of the pair that every token of a trace is the second of, then of that which it is the first of;
        and whether there is such a pair."""
        at, real = _neighbours(trace.row, trace.lengths, trace.numbers.numpy(), self.last)
        here = torch.from_numpy(at)
        told = [
            table.index_select(0, here[begin : begin + 2].flatten()).float().view(2, at.shape[1], -1)
            for begin, table in enumerate((self.before, self.behind))
        ]
        return told[0], told[1], torch.from_numpy(real)

    @property
    def last(self) -> int:
        """The largest id that is known."""
        return len(self.before) - 1


@numba.njit(nogil=True, cache=True)
def _neighbours(row, sizes, numbers, last):  # type: ignore[no-untyped-def]
    """Ids of the tokens before the chosen ones, of these, and of those behind them; which pairs there are."""
    texts, k = numbers.shape
    found, real = np.zeros((3, texts * k), np.int64), np.zeros((2, texts * k), np.float32)
    start = 0
    for b in range(texts):
        for i in range(k if sizes[b] else 0):
            number, n = numbers[b, i], b * k + i
            found[1, n] = min(row[start + number], last)
            if number > 0:
                found[0, n], real[0, n] = min(row[start + number - 1], last), 1
            if number < sizes[b] - 1:
                found[2, n], real[1, n] = min(row[start + number + 1], last), 1
        start += sizes[b]
    return found, real


def embeddings(model: nn.Module) -> Float[Tensor, "v d"] | None:
    """Input embeddings of a model by id, if it has such a table."""
    try:
        table = getattr(model.get_input_embeddings(), "weight", None)  # type: ignore[operator]
    except (AttributeError, NotImplementedError):
        return None
    return table.float() if isinstance(table, Tensor) and table.ndim == 2 else None
