"""`Trace`: what a run of an encoder leaves behind for the monitor, some tokens of every text at every layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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
    False there is no token and the point is zero.
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
    glances: tuple[Float[Tensor, "b f"], Float[Tensor, "b g"]] | None = None
    """What sampled queries say about attention and about its forecast; None where no layer can be looked at."""
    known: dict[Any, Tensor] = field(default_factory=dict, repr=False)
    """What several channels ask for, computed once; the sums and steps of a run may be known from the beginning."""

    @property
    def count(self) -> Float[Tensor, "b"]:
        """Tokens of every text that are in the trace."""
        return self.mask.sum(dim=1).to(self.points.dtype)

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

    def picked(self, most: int) -> tuple[Integer[Tensor, "b k"], Bool[Tensor, "b k"]]:
        """Columns of at most `most` of the tokens, evenly spread, and which of them are real; others are zero."""
        column, real, _ = chosen(self.mask, most)
        empty = (~self.mask).int().argmax(dim=1, keepdim=True)  # a row of a shorter text that holds no token
        return torch.where(real, column, empty), real


def rows_of(
    x: Float[Tensor, "b t d"], column: Integer[Tensor, "b k"], out: Float[Tensor, "b k d"] | None = None
) -> Float[Tensor, "b k d"]:
    """x[b, column[b, i]], written to `out` if that is given; whole rows are copied, which `gather` does not."""
    b, t, d = x.shape
    flat = (column + t * torch.arange(b, device=x.device)[:, None]).flatten()
    rows = x.reshape(b * t, d)
    if out is None:
        return rows.index_select(0, flat).view(b, -1, d)
    torch.index_select(rows, 0, flat, out=out.view(-1, d))
    return out


def chosen(
    content: Bool[Tensor, "b t"], most: int | None
) -> tuple[Integer[Tensor, "b k"], Bool[Tensor, "b k"], Integer[Tensor, "b k"]]:
    """Columns of at most `most` content tokens of every row, evenly spread, first and last among them.

    Also which of the columns are real, and the number of the token among the content tokens of its row.
    """
    if content.device.type == "cpu":
        column, mask, number = _one_by_one(content.numpy(), content.shape[1] if most is None else most)
        return torch.from_numpy(column), torch.from_numpy(mask), torch.from_numpy(number)
    return _all_at_once(content, most)


def _all_at_once(content: Tensor, most: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """`chosen` on a GPU."""
    n = content.sum(dim=1)
    longest = int(n.max()) if len(n) else 0
    k = max(1, longest if most is None else min(most, longest))
    order = torch.argsort((~content).to(torch.int8), dim=1, stable=True)
    held = n.clamp(max=k)
    step = torch.arange(k, device=content.device)[None]
    real = step < held[:, None]
    gaps = (held - 1).clamp_min(1)[:, None]
    numbers = torch.where(real, (2 * step * (n - 1).clamp_min(0)[:, None] + gaps) // (2 * gaps), 0)
    return torch.gather(order, 1, numbers), real, numbers


@numba.njit(nogil=True, cache=True)
def _one_by_one(content, most):  # type: ignore[no-untyped-def]
    """`chosen` in one loop: as tensor arithmetic it would be twenty calls for a few hundred numbers."""
    rows, width = content.shape
    n = np.zeros(rows, np.int64)
    for b in range(rows):
        for t in range(width):
            n[b] += content[b, t]
    k = 1
    for b in range(rows):
        k = max(k, min(most, n[b]))
    column, number, mask = (
        np.zeros((rows, k), np.int64),
        np.zeros((rows, k), np.int64),
        np.zeros((rows, k), np.bool_),
    )
    for b in range(rows):
        held = min(n[b], k)
        gaps = max(held - 1, 1)
        seen, i = 0, 0
        for t in range(width):
            while content[b, t] and i < held and (2 * i * (n[b] - 1) + gaps) // (2 * gaps) == seen:
                column[b, i], number[b, i], mask[b, i] = t, seen, True
                i += 1
            seen += content[b, t]
    return column, mask, number
