"""`Trace`: what a run of an encoder leaves behind for the monitor, some tokens of every text at every layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numba
import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

SUMS, STEPS = "sums", "steps"
"""Names of what a run may have added up already."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Tokens of a batch of texts on the sphere: points[p, b, i] = s at place p of token i of text b, |s| = 1.

    Places are the inputs of the layers and the output of the last: P = L + 1. Content tokens only: special tokens
    and padding are left out, and of a long text so many tokens as were asked for, evenly spread. Where `mask` is
    False, behind the tokens of a text, there is none and the point is zero. Everything is on the CPU.
    """

    points: Float[Tensor, "p b k d"]
    first: Float[Tensor, "p b d"]
    """The first token of every text, whatever it is: [CLS] where the model has one."""
    mask: Bool[Tensor, "b k"]
    numbers: Integer[Tensor, "b k"]
    """Which of the content tokens of its text a point is."""
    lengths: Integer[np.ndarray, "b"]
    """Content tokens of every text, before some of them were chosen."""
    ids: list[Integer[np.ndarray, "_"]] | None = None
    """Ids of all content tokens of every text, in order; None for images and token vectors."""
    glances: tuple[Float[np.ndarray, "b f"], Float[np.ndarray, "b g"]] | None = None
    """What sampled queries say about attention and about its forecast; None where no layer can be looked at."""
    known: dict[Any, Tensor] = field(default_factory=dict, repr=False)
    """What several channels ask for, computed once; the sums and steps of a run may be known from the beginning."""

    @cached_property
    def count(self) -> Float[Tensor, "b"]:
        """Tokens of every text that are in the trace."""
        return self.mask.sum(dim=1).to(self.points.dtype)

    @cached_property
    def counts(self) -> Integer[np.ndarray, "b"]:
        """The same as whole numbers on the CPU; they are the first columns of the trace."""
        return self.mask.sum(dim=1).numpy()

    @cached_property
    def row(self) -> Integer[np.ndarray, "n"]:
        """Ids of all content tokens of all texts, one text behind the other, in pieces of `lengths`."""
        assert self.ids is not None
        return np.concatenate([np.asarray(ids, dtype=np.int64) for ids in self.ids])

    def sums(self) -> Float[Tensor, "p b d"]:
        """The sum of s over the tokens of every text, at every place."""
        return self.once(SUMS, lambda: self.points.sum(dim=2))

    def means(self) -> Float[Tensor, "p b d"]:
        """The mean of s over the tokens of every text, at every place."""
        return self.once("means", lambda: self.sums() / self.count[None, :, None].clamp_min(1))

    def steps(self) -> Float[Tensor, "q b"]:
        """The mean cosine of a token with itself one place further, for every place but the last."""

        def compute() -> Tensor:
            pairs = zip(self.points[:-1].flatten(2), self.points[1:].flatten(2), strict=True)
            return torch.stack([torch.linalg.vecdot(a, b) for a, b in pairs])

        return self.once(STEPS, compute) / self.count.clamp_min(1)

    def once(self, name: Any, compute: Callable[[], Tensor]) -> Tensor:
        """A number that is computed when it is first asked for."""
        if name not in self.known:
            self.known[name] = compute()
        return self.known[name]


def rows_of(x: Float[Tensor, "b t d"], column: Integer[Tensor, "b k"]) -> Float[Tensor, "b k d"]:
    """x[b, column[b, i]]; whole rows are copied, which `gather` does not."""
    b, t, d = x.shape
    flat = (column + t * torch.arange(b, device=x.device)[:, None]).flatten()
    return x.reshape(b * t, d).index_select(0, flat).view(b, -1, d)


def chosen(
    content: Bool[Tensor, "b t"], most: int | None
) -> tuple[Integer[Tensor, "b k"], Bool[Tensor, "b k"], Integer[Tensor, "b k"]]:
    """Columns of at most `most` content tokens of every row, evenly spread, first and last among them.

    Also which of the columns are real, and the number of the token among the content tokens of its row. All three
    are on the CPU.
    """
    column, mask, number = _chosen(content.cpu().numpy(), content.shape[1] if most is None else most)
    return torch.from_numpy(column), torch.from_numpy(mask), torch.from_numpy(number)


@numba.njit(nogil=True, cache=True)
def evenly(n, held):  # type: ignore[no-untyped-def]
    """`held` of n numbers, evenly spread, halves rounded up; the first and the last among them."""
    gaps = max(held - 1, 1)
    found = np.empty(held, np.int64)
    for i in range(held):
        found[i] = (2 * i * (n - 1) + gaps) // (2 * gaps)
    return found


@numba.njit(nogil=True, cache=True)
def _chosen(content, most):  # type: ignore[no-untyped-def]
    rows, width = content.shape
    where, n = np.empty((rows, width), np.int64), np.zeros(rows, np.int64)
    for b in range(rows):
        for t in range(width):
            if content[b, t]:
                where[b, n[b]] = t
                n[b] += 1
    held = np.minimum(n, most)
    k = max(1, held.max()) if rows else 1
    column, number = np.zeros((rows, k), np.int64), np.zeros((rows, k), np.int64)
    mask = np.zeros((rows, k), np.bool_)
    for b in range(rows):
        picked = evenly(n[b], held[b])
        for i in range(held[b]):
            column[b, i], mask[b, i], number[b, i] = where[b, picked[i]], True, picked[i]
    return column, mask, number
