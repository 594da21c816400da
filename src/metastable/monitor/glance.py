"""`Glance`: attention of a few sampled queries, and how well a Gaussian cloud of tokens forecasts it.

With logits l_j of a query against the tokens s_j of its text (sampled, and the first), attention is softmax(l).
The forecast of the audit, mu + Sigma (B^T s + g), is the same sum with weights (1 + l_j - mean l) / n: softmax to
first order. So one set of logits gives the entropy of attention, the share of the first token, and the forecast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from metastable.encoders import Layer
from metastable.encoders.positions import Positions
from metastable.monitor.trace import chosen, rows_of

QUERIES, KEYS = 4, 32
"""Queries of a text that are looked at, and the tokens that they may attend to beside the first: with so few of
both, attention costs no more than the points themselves."""


@dataclass(frozen=True, eq=False)
class Glance:
    """One layer's folded scores in single precision: l_ij = <Q s_i + q, K s_j + k> for every head."""

    place: int
    query: Float[Tensor, "h r d"]
    key: Float[Tensor, "h r d"]
    query_shift: Float[Tensor, "h r"]
    key_shift: Float[Tensor, "h r"]
    positions: Positions

    @classmethod
    def of(cls, layer: Layer, device: torch.device) -> Glance:
        """What is needed of a layer, on the device where the model runs."""
        query, key = layer.queries_keys
        q, k, q0, k0 = (t.float().to(device) for t in (query, key, layer.query_shift, layer.key_shift))
        return cls(layer.index, q, k, q0, k0, layer.positions)

    def look(
        self,
        points: Float[Tensor, "b k d"],
        first: Float[Tensor, "b d"],
        mask: Bool[Tensor, "b k"],
        numbers: Integer[Tensor, "b k"],
        offset: int,
    ) -> tuple[Float[Tensor, "b f"], Float[Tensor, "b g"]]:
        """Per head: entropy / log n and the share of the first token; cosine of the forecast with the truth."""
        if mask.shape[1] > KEYS:
            pick, kept, _ = chosen(mask, KEYS)
            points, numbers, mask = rows_of(points, pick), torch.gather(numbers, 1, pick), kept
        keys = torch.cat((first[:, None], points), dim=1)
        there = torch.nn.functional.pad(mask, (1, 0), value=True)
        place = torch.nn.functional.pad(numbers + offset, (1, 0))
        column, real, _ = chosen(mask, QUERIES)
        asked = rows_of(points, column)
        logits = self._logits(asked, keys, torch.gather(place[:, 1:], 1, column), place)
        n = there.sum(dim=1).to(logits)[:, None, None]
        hidden = ~there[:, None, None, :]
        p = torch.softmax(logits.masked_fill(hidden, -torch.inf), dim=-1)
        weight = (real / real.sum(dim=1, keepdim=True).clamp_min(1)).to(p)[:, None]
        entropy = torch.special.entr(p).sum(dim=-1) / n.log().clamp_min(math.log(2.0))
        sink = (entropy * weight).sum(dim=-1), (p[..., 0] * weight).sum(dim=-1)
        finite = logits.masked_fill(hidden | logits.isneginf(), 0.0)
        tilt = torch.where(p > 0, finite - finite.sum(dim=-1, keepdim=True) / n[..., None], torch.zeros_like(p))
        uniform = there[:, None, None, :] / n[..., None]
        # Means over keys enter by their inner products only: <sum_i a_i s_i, sum_j b_j s_j> = a^T G b.
        gram = keys @ keys.mT
        heads = p.shape[1:3]
        true, forecast = (p - uniform).flatten(1, 2), tilt.flatten(1, 2)
        pulled = true @ gram
        square = (pulled * true).sum(dim=-1).clamp_min(1e-12)
        size = ((forecast @ gram) * forecast).sum(dim=-1).clamp_min(1e-12)
        cosine = (pulled * forecast).sum(dim=-1) / torch.sqrt(square * size)
        cosine, moved = ((x.unflatten(1, heads) * weight).sum(dim=-1) for x in (cosine, 0.5 * square.log()))
        return torch.cat(sink, dim=1), torch.cat((cosine, moved), dim=1)

    def _logits(self, asked: Tensor, keys: Tensor, asked_place: Tensor, place: Tensor) -> Float[Tensor, "b h q j"]:
        q = torch.einsum("bqd,hrd->bhqr", asked, self.query) + self.query_shift[None, :, None]
        plain = self.positions.frequencies is None
        if plain:  # <q, K s> = <K^T q, s>: a few queries are carried over instead of all keys
            carried = torch.einsum("bhqr,hrd->bhqd", q, self.key)
            logits = (carried.flatten(1, 2) @ keys.mT).unflatten(1, carried.shape[1:3])
        else:
            k = torch.einsum("bjd,hrd->bhjr", keys, self.key) + self.key_shift[None, :, None]
            logits = self._turned(q, asked_place) @ self._turned(k, place).mT
        far = (asked_place[:, :, None] - place[:, None, :]).abs()
        if self.positions.bias is not None:
            table = self.positions.bias(int(place.max()) + 1).to(logits)
            logits = logits + table[:, asked_place[:, :, None], place[:, None, :]].transpose(0, 1)
        if self.positions.window is not None:
            logits = logits.masked_fill((far > self.positions.window)[:, None], -torch.inf)
        return logits

    def _turned(self, rows: Float[Tensor, "b h n r"], place: Tensor) -> Tensor:
        assert self.positions.frequencies is not None
        angle = place[..., None] * self.positions.frequencies.to(rows)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        one, other = rows.chunk(2, dim=-1)
        return torch.cat((one * cos - other * sin, other * cos + one * sin), dim=-1)


def glances(layers: Sequence[Layer], device: torch.device) -> tuple[Glance, ...]:
    """A glance at the layer in the middle, or at the first behind it that reads the sphere."""
    readable = [layer for layer in layers[len(layers) // 2 :] if layer.norm.spherical]
    return tuple(Glance.of(layer, device) for layer in readable[:1])
