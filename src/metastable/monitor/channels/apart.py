"""APART: do the windows of a text say the same as the whole of it, at the end of the network?

For windows w of m tokens, half overlapping, z_w = sqrt(m) (mean of s over w - mean of s over the text) at the last
place; the score is the mean over the windows of |z_w|^2 in the metric of Mahalanobis, per direction. A stretch of
another text stands apart from the rest of its own, whatever the rest is about.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from metastable.monitor.channels.channel import Evidence
from metastable.monitor.channels.pooled import DIRECTIONS
from metastable.monitor.channels.tokens import window_width
from metastable.monitor.gaussian import Gaussian, Moments
from metastable.monitor.trace import Trace


class ApartLearner:
    """Moments of the z_w of every text."""

    def __init__(self) -> None:
        self.moments: Moments | None = None

    def add(self, trace: Trace) -> None:
        """Learn from one more trace."""
        away, real, _ = _windows(trace)
        if self.moments is None:
            self.moments = Moments(away.shape[2], away.device)
        self.moments.add(away[real])

    def finish(self) -> Apart:
        """The channel."""
        assert self.moments is not None
        return Apart(self.moments.gaussian().thinned(DIRECTIONS))


@dataclass(frozen=True, eq=False)
class Apart:
    """Mean over the windows of |z_w|^2, per direction."""

    law: Gaussian

    def evidence(self, trace: Trace) -> Evidence:
        """How far windows stand from the whole."""
        away, real, inside = _windows(trace)
        distance = self.law.typical(away) * real
        values = (distance.sum(dim=1) / real.sum(dim=1).clamp_min(1)).double().cpu().numpy()

        def tokens() -> Float[np.ndarray, "b k"]:
            return (distance[:, None] @ inside)[:, 0].double().cpu().numpy()

        return Evidence(values, np.full(len(values), len(trace.points) - 1), tokens)


def _windows(trace: Trace) -> tuple[Float[Tensor, "b w d"], Bool[Tensor, "b w"], Float[Tensor, "b w k"]]:
    """z_w, which windows there are, and which tokens are in them."""
    n = trace.mask.sum(dim=1)
    width = torch.minimum(window_width(n), n).clamp_min(1)
    step = (width // 2).clamp_min(1)
    count = 1 + (n - width + step - 1) // step
    number = torch.arange(int(count.max()), device=n.device)[None]
    real = (number < count[:, None]) & (n[:, None] > 0)
    start = torch.minimum(number * step[:, None], (n - width)[:, None])[..., None]
    token = torch.arange(trace.mask.shape[1], device=n.device)[None, None]
    inside = ((token >= start) & (token < start + width[:, None, None]) & real[..., None]).to(trace.points.dtype)
    m = width[:, None, None].to(inside)
    weight = inside / m.sqrt() - real[..., None] * trace.mask[:, None] * m.sqrt() / n.clamp_min(1)[:, None, None]
    return weight @ trace.points[-1], real, inside
