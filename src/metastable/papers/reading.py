"""What the experiments of all papers read off their numbers, and how they say it: slopes, crossings, ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from metastable.drawing import Series
from metastable.papers.verdict import SURE

SAMPLING = 2 * SURE
"""Tolerance of a claim about a mean over samples, in the standard error that their number gives: a true value is
within SURE of them by chance, and has to be inside by SURE more to hold."""


def slope(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> float:
    """Least-squares slope of y against x."""
    return float(np.polyfit(np.asarray(x, dtype=float), np.asarray(y, dtype=float), 1)[0])


def first_crossing(times: np.ndarray, values: np.ndarray, level: float, upwards: bool = True) -> float:
    """Time at which the values first cross the level, linear in between; NaN when they never do."""
    beyond = values >= level if upwards else values <= level
    if not beyond.any():
        return math.nan
    j = int(np.argmax(beyond))
    if j == 0:
        return float(times[0])
    share = (level - values[j - 1]) / (values[j] - values[j - 1])
    return float(times[j - 1] + share * (times[j] - times[j - 1]))


def farthest(values: Sequence[float] | np.ndarray, expected: float) -> float:
    """The value that is farthest from what is expected: one number for several cases of a formula."""
    return max(map(float, values), key=lambda value: abs(value - expected))


def fine(values: Sequence[float] | np.ndarray, points: int = 121) -> np.ndarray:
    """A fine grid over the range of the values, geometric when all are positive: where theory is drawn."""
    first, last = float(np.min(values)), float(np.max(values))
    return np.geomspace(first, last, points) if first > 0 else np.linspace(first, last, points)


def listed(values: Sequence[float] | np.ndarray) -> str:
    """The values of a run in words.

    >>> listed([25.0, 50.0, 100.0])
    '25, 50 and 100'
    """
    words = [f"{value:g}" for value in values]
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def spanned(values: Sequence[float] | np.ndarray) -> str:
    """The range of the values of a run in words.

    >>> spanned([25.0, 50.0, 100.0])
    'from 25 to 100'
    """
    return f"from {values[0]:g} to {values[-1]:g}"


def beside(measured: Sequence[Series], predicted: Sequence[Series]) -> list[Series]:
    """Every measured curve followed by its prediction, as a legend lists them."""
    return [one for pair in zip(measured, predicted, strict=True) for one in pair]
