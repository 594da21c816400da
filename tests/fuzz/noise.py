"""Random noises: fields against their covariance matrix, two-point motions against Ito's formula, paths resumed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

import metastable as ms
from metastable.flows import CommonNoise
from metastable.flows.covariance import ACTIVATIONS, as_covariance
from metastable.flows.gaussian_field import exact_field
from metastable.solve.brownian import Brownian
from metastable.theory import TwoPointMotion


def kappa(rng: np.random.Generator) -> object:
    """The name of an activation, or coefficients."""
    if rng.random() < 0.6:
        return str(rng.choice(sorted(ACTIVATIONS)))
    return (rng.random(int(rng.integers(1, 4))) + 1e-3).tolist()


def field(seed: int) -> str | None:
    """The covariance of the field at random tokens, some of them close or merged, is kappa of their overlaps."""
    rng = np.random.default_rng([seed, 71])
    covariance, d, n = as_covariance(kappa(rng)), int(rng.integers(2, 6)), int(rng.integers(1, 12))
    x = rng.normal(size=(n, d))
    for i in range(1, n):
        if rng.random() < 0.4:
            x[i] = x[rng.integers(0, i)] + float(rng.choice([0.0, 1e-12, 1e-7, 1e-3])) * rng.normal(size=d)
    points = ms.Measure(x).points
    made = exact_field(covariance, d)
    count = made.size(n, d)[0]
    # One system for every normal: their fields are the columns of the root.
    unit = torch.eye(count, dtype=torch.float64)[:, :, None].expand(count, count, d).contiguous()
    many = points.expand(count, n, d).contiguous()
    columns = made.at([many], unit, lambda: torch.zeros(count, n, d, dtype=torch.float64), 1.0)[0][:, :, 0]
    expected = covariance(np.clip((points @ points.T).numpy(), -1, 1))
    error = float(np.abs((columns.T @ columns).numpy() - expected).max()) / covariance.one
    # Tokens that are 1e-7 apart have pivots of 1e-14, which rounding changes by parts of a hundred.
    if not error < 0.05:
        return f"{covariance.name}, n = {n}, d = {d}: covariance off by {error:.3g}"
    return None


def motion(seed: int) -> str | None:
    """b and a of random overlaps from the matrices of the noise."""
    rng = np.random.default_rng([seed, 72])
    covariance, d, g = as_covariance(kappa(rng)), int(rng.integers(2, 30)), float(rng.uniform(-1, 1))
    scale, v, beta = float(rng.uniform(0, 3)), float(rng.normal()), float(rng.uniform(0, 5))
    x, y = np.eye(d)[0], g * np.eye(d)[0] + np.sqrt(1 - g * g) * np.eye(d)[1]
    px, py = np.eye(d) - np.outer(x, x), np.eye(d) - np.outer(y, y)
    cross = float(covariance(g)) * px @ py
    pull = 2 * v * (1 - g * g) / (1 + np.exp(beta * (1 - g)))
    b = scale**2 * (np.trace(cross) - (d - 1) * covariance.one * g) + pull
    a = scale**2 * (covariance.one * (y @ px @ y + x @ py @ x) + 2 * y @ cross @ x)
    found = TwoPointMotion(covariance, d, scale, attention=v, beta=beta)
    error = max(abs(float(found.drift(g)) - b), abs(float(found.variance(g)) - a))
    if not error <= 1e-12 * d * (1 + scale**2) * (1 + abs(v)):
        return f"{covariance.name}, d = {d}, g = {g:.4g}: off by {error:.3g}"
    return None


def refined(seed: int) -> str | None:
    """Halves of random steps add up, in any order, and parts of a step to the whole."""
    rng = np.random.default_rng([seed, 73])
    h, k, parts = 10.0 ** rng.uniform(-6, 0.8), int(rng.integers(0, 10**6)), 2 ** int(rng.integers(1, 5))
    coarse, fine = Brownian(seed, h, (3,)), Brownian(seed, h / parts, (3,))
    total = sum(fine.increment(k * parts + i) for i in rng.permutation(parts))
    u = float(rng.random())
    split = coarse.increment(k, 0.0, u) + coarse.increment(k, u, 1.0)
    error = max(float((one - coarse.increment(k)).abs().max()) for one in (total, split)) / np.sqrt(h)
    return None if error < 1e-11 else f"h = {h:.4g}, k = {k}: parts miss the whole by {error:.3g}"


def longer(seed: int) -> str | None:
    """A run that is extended is the longer run, bit for bit."""
    rng = np.random.default_rng([seed, 74])
    d, n = int(rng.integers(2, 5)), int(rng.integers(1, 6))
    flow, x = CommonNoise(covariance=as_covariance(kappa(rng))), ms.sphere.uniform(n, d, seed=seed)
    h, method = float(10.0 ** rng.uniform(-3, 0)), str(rng.choice(["heun", "euler-maruyama", "layers"]))
    t, more = (float(rng.uniform(0.1, 10)) * h for _ in range(2))
    short = ms.solve(flow, x, t, step=h, method=method, seed=seed)
    whole = ms.solve(flow, x, t + more, times=[0.0, t, t + more], step=h, method=method, seed=seed)
    if not torch.equal(short.extend(t + more).points[-1], whole.points[-1]):
        return f"{method}, h = {h:.4g}, t = {t:.4g} + {more:.4g}: the extended run is another one"
    return None


CASES: dict[str, Callable[[int], str | None]] = {
    "gaussian field": field,
    "two-point motion": motion,
    "brownian refinement": refined,
    "noisy extension": longer,
}
