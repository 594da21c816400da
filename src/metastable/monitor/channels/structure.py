"""STRUCT: how the tokens of a text stand to each other on the sphere, at every place.

mc_p    (n |mean s|^2 - 1) / (n - 1)    mean cosine of two different tokens: concentration
cls_p   mean <s_i, s_first>             how near the tokens are to the first one
disp_p  mean <s_i(p), s_i(p + 1)>       how far a layer moves a token
sq_p, near_p                            mean cos^2 and mean nearest cosine, at three places
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.monitor.channels.channel import Evidence
from metastable.monitor.deviation import Deviation
from metastable.monitor.trace import Trace

PAIRED = 32
"""Most tokens whose pairs and steps are looked at, evenly spread: means over more cost more and say the same."""


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
    rows = [*concentration, *nearness, *_moved(trace)]
    for p in looked_at(len(trace.points)):
        rows += _pairs(*trace.spread(p, PAIRED))
    return torch.stack(rows, dim=1).double().cpu().numpy()


def _moved(trace: Trace) -> list[Tensor]:
    """Mean cosine of a token with itself one place further."""
    every = [trace.spread(p, PAIRED) for p in range(len(trace.points))]
    n = every[0][1].sum(dim=1).clamp_min(1)
    flat = [s.flatten(1) for s, _ in every]  # one inner product per text: points that are not there are zero
    return [torch.linalg.vecdot(a, b) / n for a, b in itertools.pairwise(flat)]


def _pairs(s: Float[Tensor, "b k d"], mask: Tensor) -> list[Tensor]:
    """Mean squared and mean nearest cosine of two different tokens."""
    n = mask.sum(dim=1).to(s)
    cosine = s @ s.mT
    k = s.shape[1]
    square = (cosine.square().sum(dim=(1, 2)) - n) / (n * (n - 1)).clamp_min(1)
    gone = ~mask[:, None, :] | torch.eye(k, dtype=torch.bool, device=s.device)
    nearest = cosine.masked_fill_(gone, -1.0).amax(dim=2)
    return [square, (nearest * mask).sum(dim=1) / n.clamp_min(1)]
