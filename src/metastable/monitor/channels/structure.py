"""STRUCT: how the tokens of a text stand to each other on the sphere, at every place.

mc_p    (n |mean s|^2 - 1) / (n - 1)    mean cosine of two different tokens: concentration
cls_p   mean <s_i, s_first>             how near the tokens are to the first one
disp_p  mean <s_i(p), s_i(p + 1)>       how far a layer moves a token
sq_p, near_p                            mean cos^2 and mean nearest cosine, at three places
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.monitor.channels.channel import Evidence
from metastable.monitor.deviation import Deviation
from metastable.monitor.trace import Trace, rows_of

PAIRED = 16
"""Most tokens whose pairs are looked at, evenly spread."""


@dataclass(frozen=True, eq=False)
class Structure:
    """Deviation of the structure features of a text."""

    deviation: Deviation

    def evidence(self, trace: Trace) -> Evidence:
        """How unusual the structure is, and at which place."""
        values, shares = self.deviation(features(trace), trace.lengths)
        place = places(len(trace.points))
        by_place = np.stack([shares[:, place == p].sum(axis=1) for p in range(len(trace.points))], axis=1)
        return Evidence(values, by_place.argmax(axis=1))


class StructureLearner:
    """Collects the features of every text."""

    def __init__(self) -> None:
        self.rows: list[np.ndarray] = []
        self.lengths: list[np.ndarray] = []

    def add(self, trace: Trace) -> None:
        """Learn from one more trace."""
        self.rows.append(features(trace))
        self.lengths.append(trace.lengths)

    def finish(self) -> Structure:
        """The channel."""
        return Structure(Deviation.fit(np.concatenate(self.rows), np.concatenate(self.lengths)))


def looked_at(places: int) -> tuple[int, int, int]:
    """The three places whose pairs of tokens are looked at: a quarter, the middle, the end."""
    return (places // 4, places // 2, places - 1)


def places(count: int) -> np.ndarray:
    """The place that every feature belongs to, in the order of `features`."""
    every = list(range(count))
    return np.array(every + every + every[1:] + [p for p in looked_at(count) for _ in range(2)])


def features(trace: Trace) -> Float[np.ndarray, "b f"]:
    """The structure features of every text."""
    n = trace.count
    mean = trace.means()
    pairs = (n - 1).clamp_min(1)
    concentration = (n * mean.square().sum(dim=2) - 1) / pairs
    nearness = (mean * trace.first).sum(dim=2)
    rows = (concentration, nearness, trace.steps(), _pairs(trace))
    return torch.cat(rows).T.double().cpu().numpy()


def _pairs(trace: Trace) -> Float[Tensor, "f b"]:
    """Mean squared and mean nearest cosine of two different tokens, at three places."""
    column, mask = trace.picked(PAIRED)
    where = looked_at(len(trace.points))
    s = trace.points.new_empty(len(where), *column.shape, trace.points.shape[3])
    for room, p in zip(s, where, strict=True):
        rows_of(trace.points[p], column, room)
    return torch.from_numpy(_cosines(*(t.cpu().numpy() for t in (s @ s.mT, mask)))).to(s)


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
def _cosines(cosine, mask):  # type: ignore[no-untyped-def]
    """Mean square and mean largest of the cosines of different tokens, (places, b, k, k) -> (2 places, b)."""
    places, texts = cosine.shape[:2]
    found = np.zeros((2 * places, texts), np.float32)
    for p in range(places):
        for b in range(texts):
            n = mask[b].sum()
            for i in range(n):
                nearest = np.float32(-1)
                for j in range(n):
                    if i != j:
                        value = cosine[p, b, i, j]
                        nearest = max(nearest, value)
                        found[2 * p, b] += value * value / max(n * (n - 1), 1)
                found[2 * p + 1, b] += nearest / n
    return found
