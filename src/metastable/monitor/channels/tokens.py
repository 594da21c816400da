"""TYP and WIN: tokens against the law of single tokens at mid depth, in the mean and in the worst window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor

from metastable.monitor.channels.channel import Evidence
from metastable.monitor.gaussian import Gaussian, Moments
from metastable.monitor.trace import Trace

WINDOW = 16
"""Tokens of a window; of a short text a quarter of its tokens, at least LEAST_WINDOW."""
LEAST_WINDOW = 4
OUTERMOST = 64
"""Directions of least and of largest variance that tokens are measured in. Over the development shifts of news,
all-MiniLM-L6-v2 (d = 384), mean AUROC of TYP and WIN was .892 and .885 with 64 of each, .882 and .879 with all 384,
.881 and .877 with 32 of each: odd spelling shows where tokens vary most, repetition where they hardly do."""


def window_width(n: Integer[Tensor, "b"]) -> Integer[Tensor, "b"]:
    """Tokens of a window of texts with n tokens in the trace."""
    return (n // 4).clamp(LEAST_WINDOW, WINDOW)


def mid_depth(places: int) -> int:
    """The place at which tokens are judged one by one: the middle of the network."""
    return places // 2


class TokenLearner:
    """Moments of single tokens at mid depth, for TYP and WIN alike."""

    def __init__(self) -> None:
        self.moments: Moments | None = None

    def add(self, trace: Trace) -> None:
        """Learn from one more trace."""
        rows = trace.points[mid_depth(len(trace.points))][trace.mask]
        if self.moments is None:
            self.moments = Moments(rows.shape[1], rows.device)
        self.moments.add(rows)

    def finish(self) -> tuple[Typical, Window]:
        """Both channels."""
        assert self.moments is not None
        law = self.moments.gaussian().outermost(OUTERMOST)
        return Typical(law), Window(law)


@dataclass(frozen=True, eq=False)
class Typical:
    """TYP: mean squared distance of Mahalanobis of the tokens of a text, per direction."""

    law: Gaussian

    def evidence(self, trace: Trace) -> Evidence:
        """How unusual single tokens are."""
        place = mid_depth(len(trace.points))
        distance = _distance(self.law, trace, place)
        values = (distance.sum(dim=1) / trace.count.clamp_min(1)).double().cpu().numpy()
        return Evidence(values, np.full(len(values), place), lambda: distance.double().cpu().numpy())


@dataclass(frozen=True, eq=False)
class Window:
    """WIN: the largest mean over a window of the squared distances of its tokens, per direction.

    A foreign stretch of a few tokens is lost in the mean of a long text, and stands out in its own window.
    """

    law: Gaussian

    def evidence(self, trace: Trace) -> Evidence:
        """How unusual the tokens of the worst window are."""
        place = mid_depth(len(trace.points))
        distance = _distance(self.law, trace, place)
        n = trace.mask.sum(dim=1)
        width = window_width(n)
        worst, start = _worst(distance, width, n)
        step = torch.arange(distance.shape[1], device=distance.device)[None]
        inside = (step >= start[:, None]) & (step < (start + width)[:, None])
        values = worst.double().cpu().numpy()
        return Evidence(values, np.full(len(values), place), lambda: (distance * inside).double().cpu().numpy())


def _distance(law: Gaussian, trace: Trace, place: int) -> Float[Tensor, "b k"]:
    """Squared distance of every token, per direction; both channels share their law."""

    def compute() -> Tensor:
        return law.typical(trace.points[place]) * trace.mask

    return trace.once((place, id(law)), compute)


def _worst(distance: Float[Tensor, "b k"], width: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """The largest mean over a window that lies inside its text, and where that window begins."""
    k = distance.shape[1]
    sums = torch.nn.functional.pad(distance.double().cumsum(dim=1), (1, 0))
    start = torch.arange(k, device=distance.device)[None]
    end = start + width[:, None]
    mean = (torch.gather(sums, 1, end.clamp(max=k)) - sums[:, :k]) / width[:, None]
    best = torch.where(end <= n[:, None], mean, torch.zeros_like(mean)).max(dim=1)
    return best.values, best.indices
