"""LAY and EMB: the mean token of a text against the law of mean tokens, at every place and at the end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor

from metastable.monitor.channels.channel import Evidence
from metastable.monitor.gaussian import Gaussian
from metastable.monitor.trace import Trace

DIRECTIONS = 192
"""About so many principal directions that mean tokens are measured in, evenly spread over their variances. Over the
development shifts of news, all-MiniLM-L6-v2 (d = 384), mean AUROC of LAY and EMB was .820 and .710 with 192,
.819 and .701 with all."""


class PooledLearner:
    """Collects the mean token of every text at every place."""

    def __init__(self, pooling: str) -> None:
        self.pooling = pooling
        self.means: list[Tensor] = []
        self.ends: list[Tensor] = []

    def add(self, trace: Trace) -> None:
        """Learn from one more trace."""
        self.means.append(trace.means())
        self.ends.append(embedding(trace, self.pooling))

    def finish(self) -> tuple[Layers, Embedding]:
        """Both channels."""
        means = torch.cat(self.means, dim=1)
        laws = tuple(Gaussian.fit(rows).thinned(DIRECTIONS) for rows in means)
        return Layers(laws), Embedding(Gaussian.fit(torch.cat(self.ends)).thinned(DIRECTIONS), self.pooling)


@dataclass(frozen=True, eq=False)
class Layers:
    """LAY: mean over places of log(1 + d_p^2 / r), d_p the distance of the mean token at place p, r directions."""

    laws: tuple[Gaussian, ...]

    def evidence(self, trace: Trace) -> Evidence:
        """How unusual the mean token is, and at which place most."""
        values, place = _loudest(torch.baddbmm(self._origins, trace.means(), self._whiten).numpy())
        return Evidence(values, place, lambda: self._shares(trace, place))

    @cached_property
    def _whiten(self) -> Float[Tensor, "p d r"]:
        return torch.stack([law.whiten for law in self.laws])

    @cached_property
    def _origins(self) -> Float[Tensor, "p 1 r"]:
        return torch.stack([law.origin for law in self.laws])[:, None]

    def _shares(self, trace: Trace, place: Integer[np.ndarray, "b"]) -> Float[np.ndarray, "b k"]:
        """<s_i - mean, C^-1 (mean token - mean)>: what every token adds to the distance at the loudest place."""
        means = trace.means()
        tokens = torch.zeros(trace.mask.shape)
        for p in set(place.tolist()):  # the places that some text is judged by
            here = torch.from_numpy(place == p)
            law = self.laws[p]
            pull = law.whitened(means[p][here]) @ law.whiten.T
            tokens[here] = ((trace.points[p][here] - law.mean) @ pull[..., None])[..., 0] * trace.mask[here]
        return tokens.double().numpy()


@numba.njit(nogil=True, cache=True)
def _loudest(away):  # type: ignore[no-untyped-def]
    """Mean over places of log(1 + |w|^2 / r), and the place where it is largest, of w (p, b, r)."""
    places, texts, r = away.shape
    values, place = np.zeros(texts), np.zeros(texts, np.int64)
    for b in range(texts):
        top = -1.0
        for p in range(places):
            square = 0.0
            for k in range(r):
                square += away[p, b, k] * away[p, b, k]
            now = math.log1p(square / r)
            values[b] += now / places
            if now > top:
                top, place[b] = now, p
    return values, place


@dataclass(frozen=True, eq=False)
class Embedding:
    """EMB: squared distance of Mahalanobis of the pooled last place, per direction."""

    law: Gaussian
    pooling: str

    def evidence(self, trace: Trace) -> Evidence:
        """How unusual the embedding is."""
        end = embedding(trace, self.pooling)
        values = self.law.typical(end).double().numpy()
        return Evidence(values, np.full(len(values), len(trace.points) - 1))


def embedding(trace: Trace, pooling: str) -> Float[Tensor, "b d"]:
    """The last place pooled as the model's embedding is, over the tokens of the trace, on the unit sphere."""
    row = trace.first[-1] if pooling == "cls" else trace.sums()[-1]
    return torch.nn.functional.normalize(row, dim=1)
