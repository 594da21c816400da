"""Random finite contexts against their closed forms, by z-tests at six standard errors; derivatives to digits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

import metastable as ms
from metastable.meanfield import Uniform, nodes
from metastable.theory import context_spread, finite_context, spectrum, weight_derivative

SURE = 6.0
"""Standard errors: one false alarm in 10^8 cases of a normal mean."""
ORDER = 8.0
"""The order 1/n of n E|x^n - x|^2, relative, in units of its own size over n: more than was seen."""


def observers(seed: int) -> str | None:
    """An observer of n uniform tokens moves by `context_spread`, d = 2..6, early against the clustering time."""
    rng = np.random.default_rng([seed, 8])
    d, n, draws = int(rng.integers(2, 7)), int(rng.integers(60, 200)), 120
    beta, t = float(10 ** rng.uniform(-1, 1)), float(rng.uniform(0.05, 1.0))
    points = ms.sphere.uniform(draws * (n + 4), d, seed=seed).view(draws, n + 4, d)
    flow = ms.SelfAttention(ms.AttentionWeights(V=np.eye(d), B=np.eye(d)), beta)
    path = ms.solve(flow, ms.Ensemble(points, [1.0] * n + [0.0] * 4), t=t, rtol=1e-4, atol=1e-5)
    formula = context_spread(t, beta, d)
    square = n * (path.points[1] - path.points[0])[:, n:].square().sum(2).mean(1) / formula
    off, error = abs(float(square.mean()) - 1), float(square.std()) / math.sqrt(draws)
    allowed = SURE * error + (ORDER + 4 * formula) / n
    return None if off < allowed else f"seed {seed}: off by {off:.3g} of {allowed:.3g}, d={d} n={n} {beta=} {t=}"


def derivatives(seed: int) -> str | None:
    """`weight_derivative` against central differences on nodes, the circle and S^2, V and B, random directions."""
    rng = np.random.default_rng([seed, 9])
    d, of = int(rng.integers(2, 4)), "VB"[int(rng.integers(2))]
    beta, t = float(10 ** rng.uniform(-1, 0.8)), float(rng.uniform(0.1, 1.2))
    direction = rng.normal(size=(d, d)) / d
    context = nodes(Uniform(d), d, 128 if d == 2 else 450, kind="equispaced" if d == 2 else "gauss")
    x = ms.sphere.uniform(3, d, seed=seed)
    rho = ms.Measure(torch.cat([context.points, x]), torch.cat([context.mass, torch.zeros(3).double()]))
    ends = []
    for h in (1e-3, -1e-3):
        w = {"V": np.eye(d), "B": np.eye(d)} | {of: np.eye(d) + h * direction}
        flow = ms.SelfAttention(ms.AttentionWeights(**w), beta)
        ends.append(ms.solve(flow, rho, t=t, rtol=1e-10, atol=1e-12).end.points[-3:])
    off = float(((ends[0] - ends[1]) / 2e-3 - weight_derivative(x, direction, t, beta, of)).abs().max())
    return None if off < 2e-4 else f"seed {seed}: off by {off:.3g}, d={d} {of=} {beta=} {t=}"


def sides(seed: int) -> str | None:
    """E W2^2 of n tokens to two poles, where `finite_context` claims a tenth."""
    rng = np.random.default_rng([seed, 10])
    d, draws, n = int(rng.integers(2, 4)), 150, 2 * int(rng.integers(20, 60))
    top, beta = float(rng.uniform(0.5, 2.0)), float(rng.uniform(16, 40))
    rest = top - float(rng.uniform(0.8, 1.5))
    w = ms.AttentionWeights(V=np.diag([top] + [rest] * (d - 1)), B=np.eye(d))
    t = 5 / (top - rest)
    law = ms.Measure(ms.sphere.equispaced(2000) if d == 2 else ms.sphere.fibonacci(4000))
    expected = finite_context(spectrum(w), beta, law, n, t)
    if not expected.in_range:
        return None
    points = ms.sphere.uniform(draws * n, d, seed=seed).view(draws, n, d)
    end = ms.solve(ms.SelfAttention(w, beta), ms.Ensemble(points), t=t, rtol=1e-3, atol=1e-3).points[1]
    sign = np.repeat([1.0, -1.0], n // 2)
    found = (2 - 2 * sign * -np.sort(-end[..., 0].numpy(), axis=1)).mean(axis=1)
    off = abs(found.mean() / expected.squared - 1)
    allowed = SURE * found.std() / math.sqrt(draws) / expected.squared + 0.1
    where = f"d={d} n={n} {top=} {rest=} {beta=}"
    return None if off < allowed else f"seed {seed}: off by {off:.3g} of {allowed:.3g}, {where}"


CASES: dict[str, Callable[[int], str | None]] = {
    "observers of contexts": observers,
    "derivatives by weights": derivatives,
    "sides of tokens": sides,
}
