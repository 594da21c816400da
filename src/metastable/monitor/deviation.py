"""`Deviation`: how unusual a row of features is, the length of the text and the law of each feature taken away."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numba
import numpy as np
import torch
from jaxtyping import Float, Integer

from metastable.monitor.gaussian import Gaussian
from metastable.monitor.lengths import LengthTrend

KNOTS = 33
"""Quantiles of a feature that are kept, from 1% to 99%: beyond them ranks of a few hundred texts say nothing."""
TAIL = (0.01, 0.99)


@dataclass(frozen=True, eq=False)
class Deviation:
    """z^T C^-1 z: features minus their trend in length, ranks made normal, covariance C by Ledoit and Wolf."""

    trend: LengthTrend
    knots: Float[np.ndarray, "k f"]
    """Quantiles of every feature."""
    gaussian: Gaussian

    @classmethod
    def fit(cls, features: Float[np.ndarray, "n f"], lengths: Integer[np.ndarray, "n"]) -> Deviation:
        """From the features of texts that are as they should be."""
        trend = LengthTrend.fit(features, lengths)
        away = trend(features, lengths)
        knots = np.quantile(away, np.linspace(*TAIL, KNOTS), axis=0)
        knots += np.linspace(0.0, 1e-9, KNOTS)[:, None]  # increasing, also for a feature that never changes
        normal = _normal_scores(away, knots)
        return cls(trend, knots, Gaussian.fit(torch.from_numpy(normal)))

    def normal(
        self, features: Float[np.ndarray, "n f"], lengths: Integer[np.ndarray, "n"]
    ) -> Float[np.ndarray, "n f"]:
        """Every feature as a standard normal number of the texts that the deviation was fitted to."""
        return _normal_scores(self.trend(features, lengths), self.knots)

    def __call__(
        self, features: Float[np.ndarray, "n f"], lengths: Integer[np.ndarray, "n"]
    ) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n f"]]:
        """The deviation of every row, and the share of each feature in it (they sum to it)."""
        return _deviations(self.normal(features, lengths), self.gaussian.mean.numpy(), self.gaussian.whiten.numpy())


@numba.njit(nogil=True, cache=True)
def _deviations(z, mean, whiten):  # type: ignore[no-untyped-def]
    """|w|^2 and (W w) z with w = z W, z freed of its mean: a few numbers, for which the call is what costs."""
    rows, size = z.shape
    values, shares = np.zeros(rows), np.zeros((rows, size))
    w = np.empty(whiten.shape[1])
    for b in range(rows):
        w[:] = 0
        for f in range(size):
            for r in range(len(w)):
                w[r] += (z[b, f] - mean[f]) * whiten[f, r]
        for f in range(size):
            for r in range(len(w)):
                shares[b, f] += whiten[f, r] * w[r]
            shares[b, f] *= z[b, f] - mean[f]
            values[b] += shares[b, f]
    return values, shares


@cache
def _levels() -> Float[np.ndarray, "k"]:
    """The normal numbers that the knots stand for."""
    from scipy.special import ndtri

    return ndtri(np.linspace(*TAIL, KNOTS))


def _normal_scores(away: Float[np.ndarray, "n f"], knots: Float[np.ndarray, "k f"]) -> Float[np.ndarray, "n f"]:
    """Ranks to normal numbers between the outer knots; beyond them straight on, one unit per spread."""
    return _between(away, knots, _levels())


@numba.njit(nogil=True, cache=True)
def _between(away, knots, levels):  # type: ignore[no-untyped-def]
    last = len(levels) - 1
    found = np.empty(away.shape)
    for f in range(away.shape[1]):
        outer = knots[last, f] - knots[0, f]
        width = max(outer / (levels[last] - levels[0]), 1e-9)
        for b in range(len(away)):
            x, above = away[b, f], 1
            if np.isnan(x):
                found[b, f] = x
                continue
            while above < last and x >= knots[above, f]:
                above += 1
            low, high = knots[above - 1, f], knots[above, f]
            share = min(max((x - low) / max(high - low, 1e-300), 0.0), 1.0)
            beyond = max(x - knots[last, f], 0.0) - max(knots[0, f] - x, 0.0)
            found[b, f] = levels[above - 1] + share * (levels[above] - levels[above - 1]) + beyond / width
    return found
