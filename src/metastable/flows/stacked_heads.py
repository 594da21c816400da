"""Heads of one low rank side by side: what `MultiHead` computes of all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.heads import attend_heads
from metastable.flows.flow import Flow
from metastable.flows.softmax import SelfAttention
from metastable.threads import blas_can_be_held, held_blas, over_rows
from metastable.weights import AttentionWeights

ROWS = 32
"""Rows of a block: fewer would leave a product of matrices half its speed."""
PRODUCT = 0.06
"""Nanoseconds of one multiplication and addition of a product on one core, as measured for 96 tokens in d = 384."""
STACKED_SCORES = 1 << 20
"""Largest number H n^2 of scores that are held at once, 8 MB in float64."""


@dataclass(frozen=True, eq=False)
class StackedHeads:
    """beta_h Q_h, K_h and V_h of all heads as columns of one matrix, their outputs O_h as rows, and the fields g_h.

    With factors of rank r << d the projections are the bulk of the work: one product of the tokens with `inward`
    instead of three small ones per head.
    """

    inward: Float[Tensor, "d c"]
    outward: Float[Tensor, "a d"]
    fields: Float[Tensor, "d h"]
    n_heads: int
    rank: int

    @classmethod
    def of(cls, heads: Sequence[SelfAttention], like: Tensor) -> StackedHeads:
        """The stack in the precision and on the device of the tokens `like`."""
        none = torch.zeros(heads[0].d, dtype=like.dtype, device=like.device)
        queries, keys, values, fields, outputs = [], [], [], [], []
        for head in heads:
            w = head.weights_at(0.0, like)
            assert w.query is not None and w.key is not None and w.output is not None
            queries.append(head.beta * w.query)
            keys.append(w.key)
            values.append(w.value)
            fields.append(none if head.field is None else head.field.to(like))
            outputs.append(w.output.T)
        inward = torch.cat([*queries, *keys, *values]).T.contiguous()
        return cls(inward, torch.cat(outputs), torch.stack(fields, dim=1), len(heads), queries[0].shape[0])

    def fits(self, points: Float[Tensor, "n d"]) -> bool:
        """Whether the tokens have the precision and the device of the stack."""
        return self.inward.dtype == points.dtype and self.inward.device == points.device

    def means(self, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Float[Tensor, "h n v"]:
        """The attended mean of every head, in the coordinates of its values."""
        n, h, r = len(points), self.n_heads, self.rank
        rows = self._product(points, self.inward).split((h * r, h * r, len(self.outward)), dim=1)
        queries, keys, values = (part.reshape(n, h, -1).transpose(0, 1) for part in rows)
        # The fields are a product of their own: with them the columns of the other would not fill whole vectors.
        log_mass = mass.log() + self._product(points, self.fields).T
        if not self._in_blocks(points):
            return attend_heads(queries, keys, values, log_mass)
        found = torch.empty((h, n, values.shape[2]), dtype=points.dtype)

        def attend_some(start: int, stop: int) -> None:
            with held_blas():
                part = attend_heads(queries[:, start:stop], keys, values, log_mass)
                found.numpy()[:, start:stop] = part.numpy()

        over_rows(attend_some, n, cost=n * n * h * (2.0 + r * PRODUCT), quantum=ROWS)
        return found

    def summed(self, means: Float[Tensor, "h n v"]) -> Float[Tensor, "n d"]:
        """sum_h O_h m_h."""
        n = means.shape[1]
        if not self._in_blocks(means):
            return means.transpose(0, 1).reshape(n, -1) @ self.outward
        rows = np.ascontiguousarray(means.numpy().transpose(1, 0, 2)).reshape(n, -1)
        return self._product(torch.from_numpy(rows), self.outward)

    def _in_blocks(self, tokens: Tensor) -> bool:
        """Whether the work is done in blocks of rows by threads that do not wait for each other."""
        return tokens.device.type == "cpu" and not tokens.requires_grad and blas_can_be_held()

    def _product(self, rows: Float[Tensor, "n a"], matrix: Float[Tensor, "a b"]) -> Float[Tensor, "n b"]:
        """rows @ matrix."""
        if not self._in_blocks(rows):
            return rows @ matrix
        found = torch.empty((len(rows), matrix.shape[1]), dtype=rows.dtype)

        def some(start: int, stop: int) -> None:
            with held_blas():
                torch.mm(rows[start:stop], matrix, out=found[start:stop])

        over_rows(some, len(rows), cost=PRODUCT * len(rows) * matrix.numel(), quantum=ROWS)
        return found


def stackable(heads: Sequence[Flow]) -> tuple[SelfAttention, ...]:
    """All the heads if they are self-attention with constant factors of one shape, exact, by no chosen kernel."""
    # Exactly this class: a subclass may attend to something else, or give a drift of its own.
    found = tuple(h for h in heads if type(h) is SelfAttention and _in_factors(h))
    shapes = {(h.weights_at(0.0).rank, len(h.weights_at(0.0).value)) for h in found}
    return found if len(found) == len(heads) > 1 and len(shapes) == 1 else ()


def _in_factors(head: SelfAttention) -> bool:
    w = head.weights
    constant = isinstance(w, AttentionWeights) and w.query is not None and w.output is not None
    return constant and head.kernel == "auto" and head.rtol is None and head.systems is None
