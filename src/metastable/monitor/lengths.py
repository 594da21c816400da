"""`LengthTrend`: what of a number is explained by the length of a text, so that length alone is no alarm."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
from jaxtyping import Float, Integer

LEAST_SPREAD = 0.25
"""The spread at a length is never taken for less than this share of the spread at all lengths: a straight line that
is fitted to absolute deviations may reach zero at the ends of the range."""
DEGREE = 2
"""Degree in log n of the centre: mean cosines, nearest cosines and distances of means bend once over the range of
lengths that was looked at (8 to 512 tokens)."""


@dataclass(frozen=True, eq=False)
class LengthTrend:
    """(y - a(log n)) / b(log n): a a parabola, b a straight line, by least squares, for f numbers at once."""

    centre: Float[np.ndarray, "f 3"]
    spread: Float[np.ndarray, "f 2"]
    least: Float[np.ndarray, "f"]
    low: float
    high: float

    @classmethod
    def fit(cls, values: Float[np.ndarray, "n f"], lengths: Integer[np.ndarray, "n"]) -> LengthTrend:
        """Centre and spread of the columns of `values` against the logarithm of the length."""
        x = np.log(np.maximum(lengths, 1.0))
        low, high = float(x.min()), float(x.max())
        base = cls._base(x, low, high)
        if high - low < 1e-9:
            base[:, 1:] = 0.0
        centre = np.linalg.lstsq(base, values, rcond=None)[0].T
        away = np.abs(values - base @ centre.T)
        spread = np.linalg.lstsq(base[:, :2], away, rcond=None)[0].T
        overall = away.mean(axis=0)
        least = np.maximum(LEAST_SPREAD * overall, 1e-12)
        return cls(centre, spread, least, low, high)

    def __call__(
        self, values: Float[np.ndarray, "n f"], lengths: Integer[np.ndarray, "n"]
    ) -> Float[np.ndarray, "n f"]:
        """Deviations from the trend in units of the mean absolute one; beyond the fitted lengths as at the end."""
        return _away(values, lengths, self.centre, self.spread, self.least, self.low, self.high)

    @staticmethod
    def _base(x: np.ndarray, low: float, high: float) -> np.ndarray:
        u = (np.clip(x, low, high) - low) / max(high - low, 1e-9)
        return np.stack([u**k for k in range(DEGREE + 1)], axis=1)


@numba.njit(nogil=True, cache=True)
def _away(values, lengths, centre, spread, least, low, high):  # type: ignore[no-untyped-def]
    found = np.empty(values.shape)
    for b in range(len(values)):
        u = (min(max(math.log(max(lengths[b], 1.0)), low), high) - low) / max(high - low, 1e-9)
        for f in range(values.shape[1]):
            middle, power = 0.0, 1.0
            for k in range(centre.shape[1]):
                middle += centre[f, k] * power
                power *= u
            found[b, f] = (values[b, f] - middle) / max(spread[f, 0] + spread[f, 1] * u, least[f])
    return found
