"""TYP and WIN: tokens against the law of single tokens at mid depth, the worst window against the whole text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.monitor.channels.channel import Evidence
from metastable.monitor.gaussian import Gaussian, Moments
from metastable.monitor.trace import Trace

WINDOW = 16
"""Tokens of a window; of a short text a quarter of its tokens, at least LEAST_WINDOW."""
LEAST_WINDOW = 4


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
        law = self.moments.gaussian()
        return Typical(law), Window(law)


@dataclass(frozen=True, eq=False)
class Typical:
    """TYP: mean squared distance of Mahalanobis of the tokens of a text, per dimension."""

    law: Gaussian

    def evidence(self, trace: Trace) -> Evidence:
        """How unusual single tokens are."""
        place = mid_depth(len(trace.points))
        distance = self.law.distance(trace.points[place]) / trace.points.shape[3] * trace.mask
        values = (distance.sum(dim=1) / trace.count.clamp_min(1)).double().cpu().numpy()
        return Evidence(values, np.full(len(values), place), distance.double().cpu().numpy())


@dataclass(frozen=True, eq=False)
class Window:
    """WIN: max over windows w of |mean_w z - mean z|^2, z the whitened tokens at mid depth."""

    law: Gaussian

    def evidence(self, trace: Trace) -> Evidence:
        """How much the worst window differs from the rest of its text."""
        place = mid_depth(len(trace.points))
        z = self.law.whitened(trace.points[place]) * trace.mask[..., None]
        n = trace.count
        whole = z.sum(dim=1) / n.clamp_min(1)[:, None]
        width = (n / 4).floor().clamp(LEAST_WINDOW, WINDOW).long()
        apart, start = _worst(z, whole, width, n.long())
        step = torch.arange(z.shape[1], device=z.device)[None]
        inside = (step >= start[:, None]) & (step < (start + width)[:, None]) & trace.mask
        values = (apart / z.shape[2]).double().cpu().numpy()
        return Evidence(values, np.full(len(values), place), inside.double().cpu().numpy())


def _worst(
    z: Float[Tensor, "b k d"], whole: Float[Tensor, "b d"], width: Tensor, n: Tensor
) -> tuple[Tensor, Tensor]:
    """The largest distance of a window's mean from the whole, times its width, and where that window begins."""
    sums = torch.nn.functional.pad(z.cumsum(dim=1), (0, 0, 1, 0))
    k = z.shape[1]
    start = torch.arange(k, device=z.device)[None].expand(len(z), k)
    end = start + width[:, None]
    fits = end <= n[:, None]
    end = end.clamp(max=k)
    window = torch.gather(sums, 1, end[..., None].expand(-1, -1, z.shape[2])) - sums[:, :k]
    apart = (window / width[:, None, None] - whole[:, None]).square().sum(dim=2) * width[:, None]
    apart = torch.where(fits, apart, torch.zeros_like(apart))
    best = apart.max(dim=1)
    return best.values, best.indices
