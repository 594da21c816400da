"""Split-conformal p-values, their surprise, and the Fisher sum.

A p-value of a new score s among m scores of texts that are as they should be is
    p = (1 + #{cal > s} + U #{cal = s}) / (m + 1),    U uniform: ties are broken at random,
and P(p <= a) <= a when the new text is one more of the same kind, whatever the score is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

UPPER = 0.1
"""Share of the calibration scores that the tail is fitted to: below it ranks say enough."""
HEAVIEST = 0.5
"""Largest shape of the tail; estimates beyond it come from single texts among a few dozen."""


@dataclass(frozen=True, eq=False)
class Conformal:
    """Scores of calibration texts, ascending, and the generalised Pareto tail above their upper tenth."""

    scores: Float[np.ndarray, "m"]
    threshold: float
    width: float
    shape: float

    @classmethod
    def of(cls, scores: Float[np.ndarray, "m"]) -> Conformal:
        """Sort the scores and fit the tail by its first two moments."""
        held = np.sort(np.asarray(scores, dtype=np.float64))
        threshold = float(np.quantile(held, 1 - UPPER))
        above = held[held > threshold] - threshold
        mean = float(above.mean()) if len(above) else 0.0
        spread = float(above.var()) if len(above) > 2 else mean**2
        shape = 0.5 * (1 - mean**2 / spread) if spread > 0 else 0.0
        shape = min(max(shape, 0.0), HEAVIEST)
        return cls(held, threshold, max(mean * (1 - shape), 1e-12), shape)

    @property
    def least(self) -> float:
        """The smallest p-value that so many scores can give."""
        return 1.0 / (len(self.scores) + 1)

    def p(self, scores: Float[np.ndarray, "n"], chance: np.random.Generator) -> Float[np.ndarray, "n"]:
        """Conformal p-values; `chance` breaks ties."""
        low = np.searchsorted(self.scores, scores, side="left")
        high = np.searchsorted(self.scores, scores, side="right")
        m = len(self.scores)
        tied = np.where(high > low, chance.random(len(scores)), 0.0) * (high - low)
        return (1.0 + (m - high) + tied) / (m + 1)

    def surprise(self, scores: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """-log of the share of texts beyond a score; above the upper tenth by the tail, which has no end.

        Conformal p-values end at 1 / (m + 1): a sum of them cannot tell an odd text from a wild one.
        """
        m = len(self.scores)
        beyond = m - np.searchsorted(self.scores, np.minimum(scores, self.threshold), side="left")
        base = -np.log(np.clip((beyond + 0.5) / (m + 1.0), UPPER, 1.0))
        excess = np.maximum(np.asarray(scores) - self.threshold, 0.0) / self.width
        if self.shape > 1e-6:
            excess = np.log1p(self.shape * excess) / self.shape
        return np.where(np.asarray(scores) > self.threshold, -math.log(UPPER) + excess, base)
