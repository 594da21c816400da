"""STRUCT: how the tokens of a text stand to each other on the sphere, at every place.

mc_p    (n |mean s|^2 - 1) / (n - 1)    mean cosine of two different tokens: concentration
cls_p   mean <s_i, s_first>             how near the tokens are to the first one
disp_p  mean <s_i(p), s_i(p + 1)>       how far a layer moves a token
sq_p, near_p                            mean cos^2 and mean nearest cosine, at three places
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numba
import numpy as np
from jaxtyping import Float

from metastable.monitor.channels.channel import Evidence
from metastable.monitor.deviation import Deviation
from metastable.monitor.trace import Trace, evenly

PAIRED = 16
"""Most tokens whose pairs are looked at, evenly spread."""


@dataclass(frozen=True, eq=False)
class Structure:
    """Deviation of the structure features of a text."""

    deviation: Deviation

    def evidence(self, trace: Trace) -> Evidence:
        """How unusual the structure is, and at which place."""
        values, shares = self.deviation(features(trace), trace.lengths)
        return Evidence(values, _loudest(shares, places(len(trace.points)), len(trace.points)))


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


@cache
def places(count: int) -> np.ndarray:
    """The place that every feature belongs to, in the order of `features`."""
    every = list(range(count))
    return np.array(every + every + every[1:] + [p for p in looked_at(count) for _ in range(2)])


@numba.njit(nogil=True, cache=True)
def _loudest(shares, place, places):  # type: ignore[no-untyped-def]
    """The place whose features have the largest sum of shares, of every text."""
    found = np.zeros(len(shares), np.int64)
    for b in range(len(shares)):
        total = np.zeros(places)
        for f in range(len(place)):
            total[place[f]] += shares[b, f]
        found[b] = total.argmax()
    return found


def features(trace: Trace) -> Float[np.ndarray, "b f"]:
    """The structure features of every text."""
    where = np.array(looked_at(len(trace.points)))
    points, sums, first, steps = (t.numpy() for t in (trace.points, trace.sums(), trace.first, trace.steps()))
    return _features(points, sums, first, steps, trace.counts, where)


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
def _features(points, sums, first, steps, counts, where):  # type: ignore[no-untyped-def]
    places, texts, d = sums.shape
    found = np.zeros((texts, 3 * places - 1 + 2 * len(where)))
    for b in range(texts):
        n = counts[b]
        for p in range(places):
            square, near = np.float32(0), np.float32(0)
            for a in range(d):
                square += sums[p, b, a] * sums[p, b, a]
                near += sums[p, b, a] * first[p, b, a]
            found[b, p] = (square / max(n, 1) - 1) / max(n - 1, 1)
            found[b, places + p] = near / max(n, 1)
            if p:
                found[b, 2 * places + p - 1] = steps[p - 1, b]
        for k in range(len(where)):
            f = 3 * places - 1 + 2 * k
            found[b, f], found[b, f + 1] = _pairs(points[where[k], b], n)
    return found


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
def _pairs(s, n):  # type: ignore[no-untyped-def]
    """Mean squared and mean nearest cosine of two different tokens among PAIRED of n."""
    held = min(n, PAIRED)
    if held < 2:
        return 0.0, -1.0 * held
    column = evenly(n, held)
    nearest = np.full(held, np.float32(-1))
    square = 0.0
    for i in range(held):
        one = s[column[i]]
        for j in range(i):
            other, cosine = s[column[j]], np.float32(0)
            for a in range(len(one)):
                cosine += one[a] * other[a]
            square += float(cosine * cosine)
            nearest[i], nearest[j] = max(nearest[i], cosine), max(nearest[j], cosine)
    return 2 * square / (held * (held - 1)), nearest.sum() / held
