"""Split-conformal p-values, their surprise, and the Fisher sum.

A p-value of a new score s among m scores of texts that are as they should be is
    p = (1 + #{cal > s} + U #{cal = s}) / (m + 1),    U uniform: ties are broken at random,
and P(p <= a) <= a when the new text is one more of the same kind, whatever the score is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
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
        return _p(np.asarray(scores, dtype=np.float64), self.scores, chance.random(len(scores)))

    def surprise(self, scores: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """-log of the share of texts beyond a score; above the upper tenth by the tail, which has no end.

        Conformal p-values end at 1 / (m + 1): a sum of them cannot tell an odd text from a wild one.
        """
        given = np.asarray(scores, dtype=np.float64)
        return _surprise(given, self.scores, self.threshold, self.width, self.shape)


@numba.njit(nogil=True, cache=True)
def _p(scores, held, chance):  # type: ignore[no-untyped-def]
    found, m = np.empty(len(scores)), len(held)
    for i in range(len(scores)):
        low = np.searchsorted(held, scores[i], side="left")
        high = np.searchsorted(held, scores[i], side="right")
        found[i] = (1.0 + (m - high) + chance[i] * (high - low)) / (m + 1)
    return found


@numba.njit(nogil=True, cache=True)
def _surprise(scores, held, threshold, width, shape):  # type: ignore[no-untyped-def]
    found, m = np.empty(len(scores)), len(held)
    for i in range(len(scores)):
        if scores[i] > threshold:
            excess = (scores[i] - threshold) / width
            found[i] = -math.log(UPPER) + (math.log1p(shape * excess) / shape if shape > 1e-6 else excess)
        else:
            beyond = m - np.searchsorted(held, scores[i], side="left")
            found[i] = -math.log(min(max((beyond + 0.5) / (m + 1.0), UPPER), 1.0))
    return found
