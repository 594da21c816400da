"""How the experiments run and what they read off a curve: flows and mean fields, W2 in time, slopes, crossings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from metastable import meanfield
from metastable.flows import SelfAttention
from metastable.meanfield import Law, MeanFieldPath
from metastable.measure import Measure
from metastable.solve import Path, solve
from metastable.transport import wasserstein
from metastable.weights import AttentionWeights


def run(
    w: AttentionWeights,
    beta: float,
    rho0: Measure | Tensor,
    times: Sequence[float] | np.ndarray,
    rtol: float = 1e-7,
    attention_rtol: float | None = None,
) -> Path:
    """The self-attention flow from rho0, kept at the given times."""
    grid = np.asarray(times, dtype=float)
    flow = SelfAttention(w, beta, rtol=attention_rtol)
    return solve(flow, rho0, t=float(grid[-1]), times=grid, rtol=rtol, atol=rtol / 10)


def distances(path: Path, target: Measure) -> np.ndarray:
    """Chordal W2(rho_t, target) at the saved times."""
    return np.array([float(wasserstein(path.measure(i), target)) for i in range(len(path))])


def mean_field(
    w: AttentionWeights, beta: float, law: Law, times: Sequence[float] | np.ndarray, tol: float = 1e-4
) -> MeanFieldPath:
    """The mean field itself, n = infinity; an unresolved run is an error, so that no verdict rests on it."""
    grid = np.asarray(times, dtype=float)
    return meanfield.solve(w, beta, law, float(grid[-1]), tol, times=grid, strict=True)


def distance_curve(
    w: AttentionWeights, beta: float, law: Law, times: Sequence[float] | np.ndarray, tol: float = 1e-4
) -> np.ndarray:
    """W2(rho_t, Pi#rho_0) of the mean field at the given times, of which the first is 0."""
    return meanfield.distance_to_limit(mean_field(w, beta, law, times, tol)).distance.numpy()


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
