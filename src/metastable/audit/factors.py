"""`Factors`: the score and value matrices of all heads of a layer as factors of low rank, and their sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.audit.low_rank import LowRank
from metastable.encoders import Layer


@dataclass(frozen=True, eq=False)
class Factors:
    """The factors of all heads of a layer, in the gauge that its norm leaves free.

    Tokens behind a LayerNorm are centred and every later LayerNorm removes the mean of what attention adds, so
    B_h -> C B_h C and A_h -> C A_h C (C the centring) change nothing that a token feels; the audit uses these.
    """

    query: Float[Tensor, "h r d"]
    key: Float[Tensor, "h r d"]
    value: Float[Tensor, "h r d"]
    output: Float[Tensor, "h d r"]
    field: Float[Tensor, "h d"]

    @classmethod
    def of(cls, layer: Layer) -> Factors:
        """The centred factors of a layer."""
        q, k = layer.queries_keys
        v, o = layer.values_outputs
        centre = layer.norm.centre
        return cls(centre(q), centre(k), centre(v), centre(o.transpose(1, 2)).transpose(1, 2), centre(layer.fields))

    def rematched(self) -> Factors:
        """The control: every head's scores handed to the next head's values."""
        q, k, g = self.query.roll(1, 0), self.key.roll(1, 0), self.field.roll(1, 0)
        return Factors(q, k, self.value, self.output, g)

    @property
    def scores(self) -> LowRank:
        """B_h."""
        return LowRank(self.query.transpose(1, 2), self.key)

    @property
    def values(self) -> LowRank:
        """A_h."""
        return LowRank(self.output, self.value)

    @property
    def products(self) -> LowRank:
        """M_h = A_h B_h^T."""
        return LowRank(self.output, (self.value @ self.key.transpose(1, 2)) @ self.query)

    @cached_property
    def sum_values(self) -> Float[Tensor, "d d"]:
        """sum_h A_h."""
        return torch.einsum("hdr,hre->de", self.output, self.value)

    @cached_property
    def sum_products(self) -> Float[Tensor, "d d"]:
        """M0 = sum_h A_h B_h^T sqrt(d)/|B_h|_F: the zero-temperature field where |B_h^T s| has its rms value."""
        d = self.query.shape[2]
        inner = (self.value @ self.key.transpose(1, 2)) @ self.query
        scale = math.sqrt(d) / self.scores.frobenius.clamp_min(1e-300)
        return torch.einsum("h,hdr,hre->de", scale, self.output, inner)

    def mismatched_traces(self) -> Float[Tensor, "h h"]:
        """tr(A_h B_h'^T) / (|A_h|_F |B_h'|_F) for all pairs of heads; the diagonal is the heads' own."""
        inner = torch.einsum("hrd,gsd->hgrs", self.value, self.key)
        outer = torch.einsum("gsd,hdr->hgsr", self.query, self.output)
        traces = torch.einsum("hgrs,hgsr->hg", inner, outer)
        return traces / (self.values.frobenius[:, None] * self.scores.frobenius[None]).clamp_min(1e-300)
