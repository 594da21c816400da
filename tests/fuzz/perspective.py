"""Random cases of the closed forms of identity weights against runs of the engine."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

import metastable as ms
from metastable.theory import equiangular, merging_time


def flow(d: int, beta: float, normalized: bool) -> ms.SelfAttention | ms.UnnormalizedAttention:
    w = ms.AttentionWeights(V=np.eye(d), B=np.eye(d))
    return (ms.SelfAttention if normalized else ms.UnnormalizedAttention)(w, beta, rtol=None)


def reduced(seed: int) -> str | None:
    """Equiangular tokens have the overlap that the equation for one number gives."""
    rng = np.random.default_rng(seed)
    n, beta, normalized = int(rng.integers(2, 20)), float(rng.uniform(0, 6)), bool(rng.random() < 0.5)
    start = float(rng.uniform(-0.9 / (n - 1), 0.8))
    t = float(rng.uniform(0.2, 1.5)) * equiangular.travel_time(0.9, n, beta, start, normalized)
    points = torch.linalg.cholesky((1 - start) * torch.eye(n, dtype=torch.float64) + start)
    end = ms.solve(flow(n, beta, normalized), points, t, rtol=1e-10, atol=1e-12).end.points
    exact = equiangular.overlap(t, n, beta, start, normalized)
    found = (end @ end.T)[~torch.eye(n, dtype=torch.bool)]
    error = float((found - exact).abs().max())
    return None if error < 1e-7 else f"n = {n}, beta = {beta:g}, g = {start:g}, t = {t:g}: off by {error:.2g}"


def merged(seed: int) -> str | None:
    """Two atoms meet at the time of the equation for their angle."""
    rng = np.random.default_rng(seed)
    beta, start = float(rng.uniform(0, 8)), float(rng.uniform(0.3, 2.8))
    end, first, normalized = float(rng.uniform(0.02, 0.9) * start), float(rng.uniform(0.1, 0.9)), rng.random() < 0.5
    exact = merging_time(start, end, beta, first, 1 - first, bool(normalized))
    rho = ms.Measure(ms.sphere.from_angles([0.0, start]), [first, 1 - first])
    met = ms.Event(lambda x, m: ms.sphere.geodesic_distance(x[0], x[1]), end, -1, stop=True)
    path = ms.solve(flow(2, beta, bool(normalized)), rho, 1.1 * exact, rtol=1e-10, atol=1e-12, events=[met])
    time = path.events[0].time if path.events else math.nan
    return None if abs(time / exact - 1) < 1e-6 else f"beta = {beta:g}, {start:g} to {end:g}: {time} for {exact}"


CASES: dict[str, Callable[[int], str | None]] = {"equiangular": reduced, "two clusters": merged}
