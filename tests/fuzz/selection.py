"""Random pure and mixed modes of spectral selection against the Jacobian, and that against differences."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

import metastable as ms
from metastable.theory import (
    PureMode,
    attention_jacobian,
    equilibrium_residual,
    mixed_equilibria,
    mixed_points,
    selection_weights,
    tangent_bases,
)

MARGIN = 1e-9
"""Relative to |V|: rates nearer to zero than this are decided by rounding."""


def pure(seed: int) -> str | None:
    """The criterion is the sign of the largest real part of the Jacobian, in d = 2..7 with up to 13 tokens."""
    rng = np.random.default_rng([seed, 26])
    d = int(rng.integers(2, 8))
    plus, minus = (int(x) for x in rng.choice([0, 1, 1, 2, 3, 5, 7], size=2))
    values = rng.normal(size=d) * 10 ** rng.uniform(-1, 1)
    if rng.random() < 0.3:
        values = -np.abs(values)
    beta = float(10 ** rng.uniform(-2, 1.5)) / float(np.abs(values).max())
    mode = PureMode(values, int(rng.integers(d)), max(plus, 1 - minus), minus, beta)
    w = selection_weights(np.diag(values))
    rate = float(torch.linalg.eigvals(attention_jacobian(w, beta, mode.points())).real.max())
    size = float(np.abs(values).max())
    if abs(rate - mode.growth) > 1e-10 * size:
        return f"seed {seed}: growth {mode.growth:.6g}, Jacobian {rate:.6g} for {mode}"
    if abs(rate) < MARGIN * size:
        return None
    if mode.stable != (rate < 0):
        return f"seed {seed}: stable {mode.stable}, Jacobian {rate:.6g} for {mode}"
    if mode.published_applies and mode.published != mode.stable:
        return f"seed {seed}: published {mode.published}, Jacobian {rate:.6g} for {mode}"
    return None


def derivative(seed: int) -> str | None:
    """The Jacobian in a random tangent direction is the change of the engine's velocity."""
    rng = np.random.default_rng([seed, 27])
    n, d, beta = int(rng.integers(1, 12)), int(rng.integers(2, 7)), float(10 ** rng.uniform(-2, 0.7))
    w = ms.AttentionWeights(V=rng.normal(size=(d, d)), B=rng.normal(size=(d, d)))
    rho = ms.Measure(ms.sphere.uniform(n, d, seed=seed), rng.exponential(size=n))
    T, flow, h = tangent_bases(rho), ms.SelfAttention(w, beta), 1e-4
    c = torch.from_numpy(rng.normal(size=n * (d - 1)))
    c /= c.norm()
    move = torch.einsum("iap,ip->ia", T, c.reshape(n, d - 1))
    sides = [flow.velocity(0.0, ms.sphere.normalize(rho.points + s * h * move), rho.mass) for s in (1, -1)]
    change = torch.einsum("iap,ia->ip", T, (sides[0] - sides[1]) / (2 * h)).reshape(-1)
    error = float((attention_jacobian(w, beta, rho) @ c - change).abs().max())
    allowed = 2 * h**2 * w.V_norm * (1 + beta * w.B_norm) ** 3
    return (
        None
        if error <= allowed
        else f"seed {seed}: {error:.3g} > {allowed:.3g}, n = {n}, d = {d}, beta = {beta:.3g}"
    )


def mixed(seed: int) -> str | None:
    """Roots rest, and there are as many as a scan sees."""
    rng = np.random.default_rng([seed, 28])
    a, b = (float(x) for x in rng.normal(size=2) * 10 ** rng.uniform(-1, 0.5, size=2))
    beta, m, k = float(10 ** rng.uniform(-2, 1)), int(rng.integers(1, 7)), int(rng.integers(1, 7))
    found, scale = mixed_equilibria(a, b, beta, m, k), max(abs(a), abs(b))
    for q in found:
        residual = equilibrium_residual(np.diag([a, b]), beta, mixed_points(q, m, k))
        if residual > 4e-15 * (1 + scale) * (1 + beta * scale):
            return f"seed {seed}: residual {residual:.3g} at q = {q:.12g} of {(a, b, beta, m, k)}"
    q = np.linspace(-1, 1, 20001)
    exponents = np.array([beta * (b + (a - b) * q**2), beta * (-b + (a + b) * q**2), beta * a * q])
    first, second, third = np.exp(exponents - exponents.max(0))
    f = q * ((a - b) * first + (a + b) * second) + a * (m / k) * third
    seen = int((f[1:] * f[:-1] < 0).sum())
    if seen > len(found) or (seen - len(found)) % 2:
        return f"seed {seed}: {len(found)} roots, a scan sees {seen}, of {(a, b, beta, m, k)}"
    return None if math.isfinite(sum(found)) else f"seed {seed}: roots {found}"


CASES: dict[str, Callable[[int], str | None]] = {
    "pure modes": pure,
    "attention jacobian": derivative,
    "mixed modes": mixed,
}
