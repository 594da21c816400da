"""Random causal flows against their definition in extended precision; random retrieval profiles against mpmath."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np

import metastable as ms
from fuzz.attention import tokens
from metastable.flows import Causal
from metastable.theory import log_retrieval_profile

MOST_ERROR = 200.0
"""Units of rounding, eps times the largest exponent of a row, that a velocity may be off."""


def velocity(seed: int) -> str | None:
    """The field of random tokens, masses (zero, too), weights, slopes and temperatures, one row at a time."""
    rng = np.random.default_rng([seed, 31])
    n, d = int(np.exp(rng.uniform(0, np.log(400)))), int(rng.choice([2, 3, 9]))
    x, mass = tokens(rng, n, d), 10.0 ** rng.uniform(-30 * rng.random(), 0, n) * (rng.random(n) > 0.1)
    if not mass.any():
        return None
    V, B = rng.normal(size=(2, d, d))
    beta, alibi = 10.0 ** rng.uniform(-2, 4), float(rng.choice([0.0, 10.0 ** rng.uniform(-2, 4)]))
    include_self, normalized = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
    w, rho = ms.AttentionWeights(V=V, B=B), ms.Measure(x, mass)
    flow = ms.SelfAttention(w, beta) if normalized else ms.UnnormalizedAttention(w, beta)
    scale = 0.0 if normalized else flow.log_scale
    found = Causal(flow, alibi, include_self).velocity(0.0, rho.points, rho.mass).numpy()
    y, m = (a.astype(np.longdouble) for a in rho.numpy())
    exponent = 1 + 2 * beta * w.B_norm + alibi + 70
    for j in rng.integers(0, n, 8):
        seen = np.arange(j + include_self)[m[: j + include_self] > 0]
        expected = np.zeros(d)
        if len(seen):
            bias = np.log(m[seen]) - np.longdouble(alibi) / n * (j - seen)
            score = beta * (y[seen] @ (B.T @ y[j]))
            share = np.exp(bias + score - (bias + score).max())
            if normalized:
                share /= share.sum()
            else:
                share *= np.exp((bias + score).max() - bias.max() - scale) / np.exp(bias - bias.max()).sum()
            drift = V @ (share @ y[seen])
            expected = (drift - (drift @ y[j]) * y[j]).astype(float)
        size = w.V_norm if normalized else w.V_norm * max(1.0, float(np.exp(beta * w.B_norm - scale)))
        error = np.abs(found[j] - expected).max() / (2.3e-16 * exponent * size)
        if not error < MOST_ERROR:
            where = f"n = {n}, d = {d}, beta = {beta:.3g}, alibi = {alibi:.3g}, softmax: {normalized}"
            return f"{where}: row {j} off by {error:.3g} units of rounding"
    return None


def profile(seed: int) -> str | None:
    """log S_t(s) of random arguments against its power series in 40 digits."""
    rng = np.random.default_rng([seed, 32])
    s, t, beta = rng.uniform(1e-6, 1), 10.0 ** rng.uniform(-6, 4), 10.0 ** rng.uniform(-3, 2.5)
    alibi, width = float(rng.choice([0.0, 10.0 ** rng.uniform(-12, 2.5)])), 10.0 ** rng.uniform(-0.5, 3)
    modes = int(rng.integers(1, 30))
    found = log_retrieval_profile(s, t, beta, alibi, width, modes)
    with mpmath.workdps(40):
        grown = mpmath.log(mpmath.expm1(alibi) / mpmath.expm1(alibi * mpmath.mpf(s))) if alibi else -mpmath.log(s)
        total = mpmath.mpf(0)
        for n in range(1, modes + 1):
            c = n**2 * mpmath.besseli(n, beta) * t
            total += mpmath.exp(-((mpmath.pi * n / width) ** 2) / 2) * c * mpmath.hyp0f1(2, c * grown)
        share = alibi * mpmath.exp(alibi * mpmath.mpf(s)) / mpmath.expm1(alibi) if alibi else 1
        expected = float(mpmath.log(total * share))
    allowed = 1e-13 * (1 + abs(expected)) * (1 + beta / 10)
    if not abs(found - expected) <= allowed:
        return f"log S_{t:.4g}({s:.4g}) at beta = {beta:.4g}, alibi = {alibi:.4g} is off by {found - expected:.2g}"
    return None


CASES: dict[str, Callable[[int], str | None]] = {"causal velocity": velocity, "retrieval profile": profile}
