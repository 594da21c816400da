"""How the experiments of this paper run: flows and mean fields at given times, W2 along them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from metastable import meanfield
from metastable.flows import SelfAttention
from metastable.meanfield import Law, MeanFieldPath
from metastable.measure import Measure
from metastable.papers.running import kept
from metastable.solve import Path
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
    return kept(SelfAttention(w, beta, rtol=attention_rtol), rho0, times, rtol)


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
