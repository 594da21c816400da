"""`Trace`: what a run of an encoder leaves behind for the monitor, some tokens of every text at every layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor


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
    """What several channels ask for, computed once."""

    @property
    def count(self) -> Float[Tensor, "b"]:
        """Tokens of every text that are in the trace."""
        return self.mask.sum(dim=1).to(self.points.dtype)

    def means(self) -> Float[Tensor, "p b d"]:
        """The mean of s over the tokens of every text, at every place."""
        return self.once("means", lambda: self.points.sum(dim=2) / self.count[None, :, None].clamp_min(1))

    def once(self, name: Any, compute: Callable[[], Tensor]) -> Tensor:
        """A number that is computed when it is first asked for."""
        if name not in self.known:
            self.known[name] = compute()
        return self.known[name]

    def spread(self, place: int, most: int) -> tuple[Float[Tensor, "b k d"], Bool[Tensor, "b k"]]:
        """At most `most` of the tokens at a place, evenly spread, and which of them are real."""
        if self.mask.shape[1] <= most:
            return self.points[place], self.mask
        column, real = self.picked(most)
        return self.once((place, most), lambda: rows_of(self.points[place], column)), real

    def picked(self, most: int) -> tuple[Tensor, Tensor]:
        """Columns of at most `most` of the tokens, evenly spread, and which of them are real; others are zero."""
        if ("column", most) not in self.known:
            column, real, _ = chosen(self.mask, most)
            empty = (~self.mask).int().argmax(dim=1, keepdim=True)  # a row of a shorter text that holds no token
            self.known["column", most] = torch.where(real, column, empty)
            self.known["real", most] = real
        return self.known["column", most], self.known["real", most]


def rows_of(x: Float[Tensor, "b t d"], column: Integer[Tensor, "b k"]) -> Float[Tensor, "b k d"]:
    """x[b, column[b, i]]; whole rows are copied, which `gather` does not."""
    b, t, d = x.shape
    flat = (column + t * torch.arange(b, device=x.device)[:, None]).flatten()
    return x.reshape(b * t, d).index_select(0, flat).view(b, -1, d)


def chosen(
    content: Bool[Tensor, "b t"], most: int | None
) -> tuple[Integer[Tensor, "b k"], Bool[Tensor, "b k"], Integer[Tensor, "b k"]]:
    """Columns of at most `most` content tokens of every row, evenly spread, first and last among them.

    Also which of the columns are real, and the number of the token among the content tokens of its row.
    """
    n = content.sum(dim=1)
    longest = int(n.max()) if len(n) else 0
    k = max(1, longest if most is None else min(most, longest))
    order = torch.argsort((~content).to(torch.int8), dim=1, stable=True)
    held = n.clamp(max=k)
    step = torch.arange(k, device=content.device)[None]
    mask = step < held[:, None]
    number = (step * (n - 1).clamp_min(0)[:, None] * 2 + (held - 1).clamp_min(1)[:, None]) // (
        2 * (held - 1).clamp_min(1)[:, None]
    )
    number = torch.where(mask, number, torch.zeros_like(number))
    return torch.gather(order, 1, number), mask, number
