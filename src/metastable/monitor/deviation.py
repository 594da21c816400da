"""`Deviation`: how unusual a row of features is, the length of the text and the law of each feature taken away."""

from __future__ import annotations

from dataclasses import dataclass

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
        z = torch.from_numpy(self.normal(features, lengths)).float()
        w = self.gaussian.whitened(z)
        shares = (w @ self.gaussian.whiten.T) * (z - self.gaussian.mean)
        return w.square().sum(dim=1).double().numpy(), shares.double().numpy()


def _normal_scores(away: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Ranks to normal numbers between the outer knots; beyond them straight on, one unit per spread."""
    from scipy.special import ndtri

    levels = ndtri(np.linspace(*TAIL, len(knots)))
    above = (away[:, None] >= knots[None]).sum(axis=1).clip(1, len(knots) - 1)
    column = np.arange(away.shape[1])
    low, high = knots[above - 1, column], knots[above, column]
    share = np.clip((away - low) / np.maximum(high - low, 1e-300), 0.0, 1.0)
    result = levels[above - 1] + share * (levels[above] - levels[above - 1])
    width = np.maximum((knots[-1] - knots[0]) / (levels[-1] - levels[0]), 1e-9)
    return result + (np.maximum(away - knots[-1], 0.0) - np.maximum(knots[0] - away, 0.0)) / width
