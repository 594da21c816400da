"""Weights, initial laws and nodes that the experiments share.

The families of weights are small so that everything about them is known: M is diagonal with E = span(e1), and they
differ in what happens after concentration.
"""

from __future__ import annotations

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


def sheared(b: float) -> AttentionWeights:
    """G(b): M = diag(2, 1), B = [[1, b], [0, 1]], V = M B^{-T}; V's top direction is (1, -b), not E (Delta > 0)."""
    B = np.array([[1.0, b], [0.0, 1.0]])
    return AttentionWeights(V=np.diag([2.0, 1.0]) @ np.linalg.inv(B.T), B=B)


def commuting() -> AttentionWeights:
    """C: V = diag(1, 2), B = diag(3, 1): M prefers e1, V prefers e2, and they commute (Delta = 0)."""
    return AttentionWeights(V=np.diag([1.0, 2.0]), B=np.diag([3.0, 1.0]))


def plain() -> AttentionWeights:
    """I: V = diag(2, 1), B = I: M and V share their dominant space, so that concentration is for ever."""
    return AttentionWeights(V=np.diag([2.0, 1.0]), B=np.eye(2))


def repelling() -> AttentionWeights:
    """N: V = diag(-1, -2), B = I: all eigenvalues negative, the least negative one wins."""
    return AttentionWeights(V=np.diag([-1.0, -2.0]), B=np.eye(2))


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
