"""Random heads with a gap, their tokens and their runs, to judge forecasts by."""

import math

import numpy as np

import metastable as ms
from metastable.theory import forecast, limit
from metastable.transport import wasserstein


def head(rng, d, symmetric=True):
    """Random weights with a gap of at least 0.3 and a dominant space of dimension 1 or 2."""
    B = rng.choice([1.0, 2.0]) * np.eye(d) + rng.choice([0.0, 0.3, 0.6]) * rng.normal(size=(d, d)) / math.sqrt(d)
    levels = np.sort(rng.uniform(-1, 1, size=d))[::-1]
    k = 1 if d == 2 or rng.random() < 0.6 else 2
    levels[:k] = levels[k] + rng.uniform(0.3, 1.2)
    Z = np.linalg.qr(rng.normal(size=(d, d)))[0] if symmetric else np.eye(d) + 0.4 * rng.normal(size=(d, d))
    M = Z @ np.diag(levels) @ np.linalg.inv(Z)
    return ms.AttentionWeights(V=M @ np.linalg.inv(B.T), B=B)


def tokens(rng, d, n):
    """Nodes, a von Mises-Fisher sample or a uniform one."""
    if rng.random() < 0.4 and d < 4:
        return ms.sphere.equispaced(n) if d == 2 else ms.sphere.fibonacci(n)
    if rng.random() < 0.5:
        return ms.sphere.von_mises_fisher(n, rng.normal(size=d), rng.uniform(0, 2), seed=int(rng.integers(1 << 30)))
    return ms.sphere.uniform(n, d, seed=int(rng.integers(1 << 30)))


def measured(w, beta, rho0, times):
    """A run at finite beta, and W2 to the zero-temperature limit along it."""
    path = ms.solve(ms.SelfAttention(w, beta=beta), rho0, t=float(times[-1]), times=times, rtol=1e-6, atol=1e-8)
    target = limit(w, rho0)
    return path, np.array([float(wasserstein(path.measure(i), target)) for i in range(len(times))])


def random_forecast(seed):
    """A symmetric head with a gap of at least 0.3 and its tokens, in low dimension and at low temperature."""
    rng = np.random.default_rng(seed)
    d, n = int(rng.choice([2, 3, 5])), int(rng.choice([200, 400]))
    w = head(rng, d)
    beta = {2: math.exp(rng.uniform(2, 5.7)), 3: rng.uniform(4, n / 10), 5: rng.uniform(4, 12)}[d]
    rho0 = ms.sphere.uniform(n, d, seed=seed) if rng.random() < 0.6 or d == 5 else tokens(rng, d, n)
    return forecast(w, beta, rho0)
