"""ODD and ORDER: do the tokens of a text belong where they stand? Learnt from corrupted copies of the texts.

After a few layers a token's state says how it stands to its context. Fisher's linear discriminant
    f(x) = w . (x - (m0 + m1) / 2),    w = ((S0 + S1) / 2 + r I)^-1 (m1 - m0)
tells touched tokens (mean m1, covariance S1) of corrupted copies from all others (m0, S0); x are the states at two
depths, and how the token goes together with its two neighbours (`Pairs`), every coordinate in units of its spread.
Nothing but the calibration texts themselves is needed: copies with replaced tokens for ODD, with tokens out of
order for ORDER.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from metastable.monitor.channels.channel import Evidence
from metastable.monitor.channels.tokens import mean_of_tokens
from metastable.monitor.corruption import DISPLACED, REPLACED
from metastable.monitor.gaussian import Moments
from metastable.monitor.pairs import Pairs
from metastable.monitor.trace import Trace

RIDGE = 0.05
"""r, where variances are one: a few thousand touched tokens in hundreds of dimensions."""


FLAT = 20.0
"""From here on log(1 + exp f) is f in single precision."""


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

    directions: Float[Tensor, "e c"]
    """w of both channels, which are computed together."""
    offsets: Float[Tensor, "c"]
    kind: int
    pairs: Pairs | None

    def evidence(self, trace: Trace) -> Evidence:
        """How many tokens are out of place."""
        both = trace.once((Coherence, id(self.directions)), lambda: self._told(trace))
        told = both[self.kind].numpy()
        values = mean_of_tokens(told, trace.counts)
        return Evidence(values, np.full(len(values), depths(len(trace.points))[1]), told)

    def _told(self, trace: Trace) -> Float[Tensor, "c b k"]:
        """log(1 + exp f(x)) of every token, of both channels."""
        first, second = depths(len(trace.points))
        beside = self._alone if self.pairs is None else self.pairs.neighbours(trace)
        x, y, u, v, real = (t.numpy() for t in (trace.points[first], trace.points[second], *beside))
        return torch.from_numpy(_told(x, y, u, v, real, self._rows.numpy(), self.offsets.numpy(), trace.counts))

    @property
    def _alone(self) -> tuple[Tensor, Tensor, Tensor]:
        """The neighbours where nothing is known of pairs."""
        return torch.zeros(2, 1, 0), torch.zeros(2, 1, 0), torch.zeros(2, 1)

    @cached_property
    def _rows(self) -> Float[Tensor, "c e"]:
        return self.directions.T.contiguous()


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
def _told(first, second, u, v, real, rows, offsets, counts):  # type: ignore[no-untyped-def]
    texts, k, d = first.shape
    found = np.zeros((2, texts, k), np.float32)
    one, other = rows[0], rows[1]
    for b in range(texts):
        for i in range(counts[b]):
            f, g = offsets[0], offsets[1]
            x, y = first[b, i], second[b, i]
            for a in range(d):
                f += x[a] * one[a] + y[a] * one[d + a]
                g += x[a] * other[a] + y[a] * other[d + a]
            for side in range(2 if u.shape[2] else 0):
                n, begin = b * k + i, 2 * d + side * u.shape[2]
                if real[side, n]:
                    for r in range(u.shape[2]):
                        product = u[side, n, r] * v[side, n, r]
                        f += product * one[begin + r]
                        g += product * other[begin + r]
            found[0, b, i] = math.log1p(math.exp(f)) if f < FLAT else f
            found[1, b, i] = math.log1p(math.exp(g)) if g < FLAT else g
    return found


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
        numbers = trace.numbers.numpy()
        hit = np.stack(
            [
                np.append(row, False)[np.minimum(number, len(row))]
                for row, number in zip(touched, numbers, strict=True)
            ]
        )
        changed = torch.from_numpy(hit) & trace.mask
        self._kept(x).add(x[trace.mask & ~changed])
        self.touched.setdefault(kind, Moments(x.shape[2])).add(x[changed])

    def finish(self) -> tuple[Coherence, Coherence]:
        """Both channels."""
        found = [self._told_apart(kind) for kind in (REPLACED, DISPLACED)]
        directions = torch.stack([w for w, _ in found], dim=1)
        offsets = torch.stack([offset for _, offset in found])
        one, other = (Coherence(directions, offsets, kind, self.pairs) for kind in (REPLACED, DISPLACED))
        return one, other

    def _kept(self, x: Tensor) -> Moments:
        if self.kept is None:
            self.kept = Moments(x.shape[2])
        return self.kept

    def _told_apart(self, kind: int) -> tuple[Float[Tensor, "e"], Float[Tensor, ""]]:
        """w and -w . (m0 + m1) / 2."""
        assert self.kept is not None
        (m0, s0), (m1, s1) = self.kept.law(), self.touched[kind].law()
        spread = (s0 + s1) / 2
        unit = spread.diagonal().clamp_min(1e-12).sqrt()
        spread = spread / torch.outer(unit, unit)
        spread += RIDGE * torch.eye(len(m0), dtype=torch.float64, device=m0.device)
        w = torch.linalg.solve(spread, (m1 - m0) / unit) / unit
        return w.float(), -(w @ (m0 + m1)).float() / 2
