"""`Glance`: attention of a few sampled queries, and how well a Gaussian cloud of tokens forecasts it.

With logits l_j of a query against the tokens s_j of its text (sampled, and the first), attention is softmax(l).
The forecast of the audit, mu + Sigma (B^T s + g), is the same sum with weights (1 + l_j - mean l) / n: softmax to
first order. So one set of logits gives the entropy of attention, the share of the first token, and the forecast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from metastable.encoders import Layer
from metastable.encoders.positions import Positions
from metastable.monitor.trace import chosen, rows_of

QUERIES, KEYS = 2, 16
"""Queries of a text that are looked at, a third and two thirds of the way, and the tokens that they may attend to
beside the first: with so few of both, attention costs no more than the points themselves."""


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
        column, real = (part[:, 1:-1] for part in chosen(mask, QUERIES + 2)[:2])
        asked = rows_of(points, column)
        logits = self._logits(asked, keys, torch.gather(place[:, 1:], 1, column), place)
        gram = keys @ keys.mT
        found = _told(*(t.cpu().numpy() for t in (logits, gram, there, real)))
        return torch.from_numpy(found[:, :2].reshape(len(found), -1)), torch.from_numpy(
            found[:, 2:].reshape(len(found), -1)
        )

    def _logits(self, asked: Tensor, keys: Tensor, asked_place: Tensor, place: Tensor) -> Float[Tensor, "b h q j"]:
        heads, rank, d = self.query.shape
        flat = torch.addmm(self.query_shift.flatten(), asked.flatten(0, 1), self.query.view(-1, d).T)
        q = flat.view(*asked.shape[:2], heads, rank).transpose(1, 2)
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


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _told(logits, gram, there, real):  # type: ignore[no-untyped-def]
    """Entropy / log n, share of the first token, cosine of the forecast with the truth, log of the truth's length.

    All are means over the queries of a head. With p = softmax(l), a = p - 1/n and t = l - mean l, which are zero
    where there is no token, means over keys enter by their inner products G only: <sum_i a_i s_i, sum_j t_j s_j> =
    a^T G t. A key that a window hides is left out of p and t, and stays in n.
    """
    texts, heads, queries, keys = logits.shape
    found = np.zeros((texts, 4, heads), np.float32)
    true, tilt = np.empty(keys), np.empty(keys)
    for b in range(texts):
        n, asked = there[b].sum(), max(real[b].sum(), 1)
        for h in range(heads):
            for q in range(queries):
                if not real[b, q]:
                    continue
                row = logits[b, h, q]
                top, middle = -np.inf, 0.0
                for j in range(keys):
                    if there[b, j] and row[j] > -np.inf:
                        top = max(top, row[j])
                        middle += row[j] / n
                total = 0.0
                for j in range(keys):
                    true[j] = math.exp(row[j] - top) if there[b, j] else 0.0
                    total += true[j]
                entropy = math.log(total) + top
                for j in range(keys):
                    share = true[j] / total
                    seen = share > 0
                    entropy -= share * row[j] if seen else 0.0
                    true[j] = share - 1.0 / n if there[b, j] else 0.0
                    tilt[j] = row[j] - middle if seen else 0.0
                square, size, both = 0.0, 0.0, 0.0
                for i in range(keys):
                    pulled, cast = 0.0, 0.0
                    for j in range(keys):
                        pulled += gram[b, i, j] * true[j]
                        cast += gram[b, i, j] * tilt[j]
                    square += pulled * true[i]
                    both += pulled * tilt[i]
                    size += cast * tilt[i]
                square, size = max(square, 1e-12), max(size, 1e-12)
                found[b, 0, h] += entropy / max(math.log(n), math.log(2.0)) / asked
                found[b, 1, h] += (true[0] + 1.0 / n) / asked
                found[b, 2, h] += both / math.sqrt(square * size) / asked
                found[b, 3, h] += 0.5 * math.log(square) / asked
    return found


def glances(layers: Sequence[Layer], device: torch.device) -> tuple[Glance, ...]:
    """A glance at the layer in the middle, or at the first behind it that reads the sphere."""
    readable = [layer for layer in layers[len(layers) // 2 :] if layer.norm.spherical]
    return tuple(Glance.of(layer, device) for layer in readable[:1])
