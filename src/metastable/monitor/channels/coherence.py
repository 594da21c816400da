"""ODD and ORDER: do the tokens of a text belong where they stand? Learnt from corrupted copies of the texts.

After a few layers a token's state says how it stands to its context. Fisher's linear discriminant
    f(x) = w . (x - (m0 + m1) / 2),    w = ((S0 + S1) / 2 + r I)^-1 (m1 - m0)
tells touched tokens (mean m1, covariance S1) of corrupted copies from all others (m0, S0); x are the states at two
depths, and how the token goes together with its two neighbours (`Pairs`), every coordinate in units of its spread.
Nothing but the calibration texts themselves is needed: copies with replaced tokens for ODD, with tokens out of
order for ORDER.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from metastable.monitor.channels.channel import Evidence
from metastable.monitor.corruption import DISPLACED, REPLACED
from metastable.monitor.gaussian import Moments
from metastable.monitor.pairs import Pairs
from metastable.monitor.trace import Trace

RIDGE = 0.05
"""r, where variances are one: a few thousand touched tokens in hundreds of dimensions."""


def depths(places: int) -> tuple[int, int]:
    """The two places that are read: a third and two thirds of the way. Touched tokens of all-MiniLM-L6-v2 are told
    apart best there (area under the curve .89 at the third of seven places, .73 at the last)."""
    return max(1, places // 3), max(1, 2 * places // 3)


def states(trace: Trace, pairs: Pairs | None) -> Float[Tensor, "b k e"]:
    """Every token's points at both depths and its products with its neighbours, one after the other."""
    first, second = depths(len(trace.points))
    beside = () if pairs is None else pairs.products(trace)
    return torch.cat([trace.points[first], trace.points[second], *beside], dim=2)


@dataclass(frozen=True, eq=False)
class Coherence:
    """Mean over the tokens of log(1 + exp f(x)): tokens that fit say nothing, each that does not says how much."""

    direction: Float[Tensor, "e"]
    offset: float
    pairs: Pairs | None

    def evidence(self, trace: Trace) -> Evidence:
        """How many tokens are out of place."""
        first, second = depths(len(trace.points))
        d = trace.points.shape[3]
        told = trace.points[first] @ self.direction[:d] + trace.points[second] @ self.direction[d : 2 * d]
        if self.pairs is not None:
            told = told + self.pairs.weighted(trace, *self.direction[2 * d :].chunk(2))
        told = torch.nn.functional.softplus(told + self.offset) * trace.mask
        values = (told.sum(dim=1) / trace.count.clamp_min(1)).double().cpu().numpy()
        return Evidence(values, np.full(len(values), second), lambda: told.double().cpu().numpy())


class CoherenceLearner:
    """Moments of tokens that stand where they were written, and of those that were touched, by kind."""

    def __init__(self, pairs: Pairs | None = None) -> None:
        self.pairs = pairs
        self.kept: Moments | None = None
        self.touched: dict[int, Moments] = {}

    def add(self, trace: Trace) -> None:
        """Learn from one more trace of texts as they are."""
        x = states(trace, self.pairs)
        self._kept(x).add(x[trace.mask])

    def add_corrupted(self, trace: Trace, touched: Sequence[Bool[np.ndarray, "_"]], kind: int) -> None:
        """Learn from one more trace of corrupted copies; touched: by number of the content token."""
        x = states(trace, self.pairs)
        numbers = trace.numbers.cpu().numpy()
        hit = np.stack(
            [
                np.append(row, False)[np.minimum(number, len(row))]
                for row, number in zip(touched, numbers, strict=True)
            ]
        )
        changed = torch.from_numpy(hit).to(trace.mask.device) & trace.mask
        self._kept(x).add(x[trace.mask & ~changed])
        self.touched.setdefault(kind, Moments(x.shape[2], x.device)).add(x[changed])

    def finish(self) -> tuple[Coherence, Coherence]:
        """Both channels."""
        return self._told_apart(REPLACED), self._told_apart(DISPLACED)

    def _kept(self, x: Tensor) -> Moments:
        if self.kept is None:
            self.kept = Moments(x.shape[2], x.device)
        return self.kept

    def _told_apart(self, kind: int) -> Coherence:
        assert self.kept is not None
        (m0, s0), (m1, s1) = self.kept.law(), self.touched[kind].law()
        spread = (s0 + s1) / 2
        unit = spread.diagonal().clamp_min(1e-12).sqrt()
        spread = spread / torch.outer(unit, unit)
        spread += RIDGE * torch.eye(len(m0), dtype=torch.float64, device=m0.device)
        w = torch.linalg.solve(spread, (m1 - m0) / unit) / unit
        return Coherence(w.float(), -float(w @ (m0 + m1)) / 2, self.pairs)
