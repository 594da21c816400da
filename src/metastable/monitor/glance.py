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
from jaxtyping import Float, Integer
from torch import Tensor

from metastable.encoders import Layer
from metastable.encoders.positions import Positions
from metastable.monitor.trace import evenly

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
    def of(cls, layer: Layer) -> Glance:
        """What is needed of a layer."""
        query, key = layer.queries_keys
        q, k, q0, k0 = (t.float().cpu() for t in (query, key, layer.query_shift, layer.key_shift))
        return cls(layer.index, q, k, q0, k0, layer.positions)

    def look(
        self,
        points: Float[Tensor, "b k d"],
        first: Float[Tensor, "b d"],
        counts: Integer[np.ndarray, "b"],
        numbers: Integer[Tensor, "b k"],
        offset: int,
    ) -> tuple[Float[np.ndarray, "b f"], Float[np.ndarray, "b g"]]:
        """Per head: entropy / log n and the share of the first token; cosine of the forecast with the truth."""
        keys, asked, place, asked_place, sizes, queries = _gathered(
            points.numpy(), first.numpy(), counts, numbers.numpy(), offset
        )
        logits = self._logits(asked, keys, asked_place, place)
        found = _told(logits, keys, sizes, queries).reshape(len(keys), 2, -1)
        return found[:, 0], found[:, 1]

    def _logits(
        self, asked: np.ndarray, keys: np.ndarray, asked_place: np.ndarray, place: np.ndarray
    ) -> Float[np.ndarray, "b h q j"]:
        heads, rank, d = self.query.shape
        flat = torch.addmm(
            self.query_shift.flatten(), torch.from_numpy(asked).view(-1, d), self.query.view(-1, d).T
        )
        q = flat.view(-1, heads, rank)
        positions = self.positions
        if positions.frequencies is None:  # <q, K s> = <K^T q, s>: a few queries are carried over, not all keys
            logits = _products(torch.bmm(q.transpose(0, 1), self.key).numpy(), keys)
        else:
            k = torch.einsum("bjd,hrd->bhjr", torch.from_numpy(keys), self.key) + self.key_shift[None, :, None]
            q = q.view(len(keys), -1, heads, rank).transpose(1, 2)
            turned = (self._turned(q, torch.from_numpy(asked_place)), self._turned(k, torch.from_numpy(place)))
            logits = (turned[0] @ turned[1].mT).numpy()
        if positions.bias is not None:
            table = positions.bias(int(place.max()) + 1).detach().float().cpu().numpy()
            logits = logits + table[:, asked_place[:, :, None], place[:, None, :]].swapaxes(0, 1)
        if positions.window is not None:
            far = np.abs(asked_place[:, :, None] - place[:, None, :]) > positions.window
            logits = np.where(far[:, None], np.float32(-np.inf), logits)
        return logits

    def _turned(self, rows: Float[Tensor, "b h n r"], place: Tensor) -> Tensor:
        assert self.positions.frequencies is not None
        angle = place[..., None] * self.positions.frequencies.to(rows)
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        one, other = rows.chunk(2, dim=-1)
        return torch.cat((one * cos - other * sin, other * cos + one * sin), dim=-1)


@numba.njit(nogil=True, cache=True)
def _gathered(points, first, counts, numbers, offset):  # type: ignore[no-untyped-def]
    """Keys (the first token, then the others) and queries, where they stand in their text, how many are real."""
    texts, k, d = points.shape
    most = min(k, KEYS)
    keys, asked = np.zeros((texts, most + 1, d), np.float32), np.zeros((texts, QUERIES, d), np.float32)
    place, asked_place = np.zeros((texts, most + 1), np.int64), np.zeros((texts, QUERIES), np.int64)
    sizes, queries = np.empty(texts, np.int64), np.zeros(texts, np.int64)
    for b in range(texts):
        held = min(counts[b], most)
        column, inner = evenly(counts[b], held), evenly(held, min(held, QUERIES + 2))
        keys[b, 0] = first[b]
        for j in range(held):
            keys[b, j + 1], place[b, j + 1] = points[b, column[j]], numbers[b, column[j]] + offset
        for q in range(len(inner) - 2):
            asked[b, q], asked_place[b, q] = keys[b, inner[q + 1] + 1], place[b, inner[q + 1] + 1]
        sizes[b], queries[b] = held + 1, max(len(inner) - 2, 0)
    return keys, asked, place, asked_place, sizes, queries


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
def _inner(x, y):  # type: ignore[no-untyped-def]
    found = np.float32(0)
    for a in range(len(x)):
        found += x[a] * y[a]
    return found


@numba.njit(nogil=True, cache=True)
def _products(carried, keys):  # type: ignore[no-untyped-def]
    """Inner products of the carried queries (h, b q, d) with the keys of their texts."""
    texts, many, _ = keys.shape
    found = np.empty((texts, len(carried), QUERIES, many), np.float32)
    for b in range(texts):
        for h in range(len(carried)):
            for q in range(QUERIES):
                for j in range(many):
                    found[b, h, q, j] = _inner(carried[h, b * QUERIES + q], keys[b, j])
    return found


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
def _forms(gram, x, y):  # type: ignore[no-untyped-def]
    """x^T G x, x^T G y and y^T G y."""
    first, mixed, second = 0.0, 0.0, 0.0
    for i in range(len(x)):
        one, other = 0.0, 0.0
        for j in range(len(x)):
            one += gram[i, j] * x[j]
            other += gram[i, j] * y[j]
        first += one * x[i]
        mixed += one * y[i]
        second += other * y[i]
    return first, mixed, second


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _told(logits, points, sizes, asked):  # type: ignore[no-untyped-def]
    """Entropy / log n, share of the first token, cosine of the forecast with the truth, log of the truth's length.

    All are means over the queries of a head. With p = softmax(l), a = p - 1/n and t = l - mean l, means over keys
    enter by their inner products G only: <sum_i a_i s_i, sum_j t_j s_j> = a^T G t. A key that a window hides is
    left out of p and t, and stays in n.
    """
    texts, heads = logits.shape[:2]
    found = np.zeros((texts, 4, heads))
    true, tilt = np.empty(points.shape[1]), np.empty(points.shape[1])
    gram = np.empty((points.shape[1], points.shape[1]))
    for b in range(texts):
        n = sizes[b]
        for i in range(n if asked[b] else 0):
            for j in range(i + 1):
                gram[i, j] = gram[j, i] = _inner(points[b, i], points[b, j])
        for h in range(heads):
            for q in range(asked[b]):
                row = logits[b, h, q]
                top, middle = -np.inf, 0.0
                for j in range(n):
                    if row[j] > -np.inf:
                        top = max(top, row[j])
                        middle += row[j] / n
                total = 0.0
                for j in range(n):
                    true[j] = math.exp(row[j] - top)
                    total += true[j]
                entropy = math.log(total) + top
                for j in range(n):
                    share = true[j] / total
                    seen = share > 0
                    entropy -= share * row[j] if seen else 0.0
                    true[j] = share - 1.0 / n
                    tilt[j] = row[j] - middle if seen else 0.0
                square, both, size = _forms(gram[:n, :n], true[:n], tilt[:n])
                square, size = max(square, 1e-12), max(size, 1e-12)
                found[b, 0, h] += entropy / max(math.log(n), math.log(2.0)) / asked[b]
                found[b, 1, h] += (true[0] + 1.0 / n) / asked[b]
                found[b, 2, h] += both / math.sqrt(square * size) / asked[b]
                found[b, 3, h] += 0.5 * math.log(square) / asked[b]
    return found


def glances(layers: Sequence[Layer]) -> tuple[Glance, ...]:
    """A glance at the layer in the middle, or at the first behind it that reads the sphere."""
    readable = [layer for layer in layers[len(layers) // 2 :] if layer.norm.spherical]
    return tuple(Glance.of(layer) for layer in readable[:1])
