"""Random cases of several heads: identities of energies and entropies, dominance, and the scalar reduction."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

import metastable as ms
from metastable.flows import ReLUAttention
from metastable.theory import scalar_heads


def _tokens(rng: np.random.Generator, n: int, d: int) -> ms.Measure:
    mass = rng.exponential(size=n) if rng.random() < 0.5 else None
    return ms.Measure(rng.normal(size=(n, d)) + rng.choice([0.0, 3.0]) * rng.normal(size=d), mass)


def _flow(rng: np.random.Generator, d: int, heads: int, orthogonal: bool = False) -> ms.MultiHead:
    if orthogonal:
        axes = np.linalg.qr(rng.normal(size=(d, d)))[0]
        matrices = [
            part @ np.diag(rng.uniform(0.2, 1.5, part.shape[1])) @ part.T for part in np.array_split(axes, heads, 1)
        ]
        scales = np.ones(heads)
    else:
        drawn = rng.normal(size=(heads, d, d))
        matrices = list((drawn + drawn.transpose(0, 2, 1)) / (2 * math.sqrt(d)))
        scales = rng.normal(size=heads)
    parts = [
        ms.UnnormalizedAttention(ms.AttentionWeights(V=c * M, B=M), rng.uniform(0.1, 3.0), rtol=None)
        for c, M in zip(scales, matrices, strict=True)
    ]
    return ms.MultiHead(parts, "sum" if rng.random() < 0.5 else "mean")


def energies(seed: int) -> str | None:
    """dE_h/dt by the identity is the difference quotient of E_h along the flow, and they add up to dE/dt >= 0."""
    rng = np.random.default_rng([seed, 1])
    n, d, heads = int(rng.integers(1, 12)), int(rng.integers(2, 7)), int(rng.integers(1, 5))
    rho, flow = _tokens(rng, n, d), _flow(rng, d, heads)
    found = ms.observe.head_energies(rho, flow)
    velocity = flow.velocity(0.0, *rho)
    scale = float(found.pull.abs().max()) ** 2 + 1e-300
    # A single head V = c B has its own energy, without the c.
    if heads > 1 and abs(found.total - flow.energy(*rho)) > 1e-11 * float(found.energy.abs().sum()):
        return f"seed {seed}: energies add up to {found.total}, the flow has {flow.energy(*rho)}"
    if abs(float(found.production.sum()) - found.dissipation) > 1e-12 * scale:
        return f"seed {seed}: heads produce {float(found.production.sum())}, the total {found.dissipation}"
    step = 1e-5 / max(1.0, float(velocity.norm(dim=1).max()))
    later, earlier = (
        ms.observe.head_energies(ms.Measure(rho.points + s * velocity, rho.mass), flow).energy
        for s in (step, -step)
    )
    error = float(((later - earlier) / (2 * step) - found.production).abs().max())
    return f"seed {seed}: a head changes by another rate, error {error:.2g}" if error > 1e-5 * scale else None


def dominance(seed: int) -> str | None:
    """Orthogonal heads in radial dominance: no energy falls."""
    rng = np.random.default_rng([seed, 2])
    heads = int(rng.integers(2, 4))
    n, d = int(rng.integers(4, 40)), heads * int(rng.integers(2, 12))
    found = ms.observe.head_energies(_tokens(rng, n, d), _flow(rng, d, heads, orthogonal=True))
    least = float(found.production.min())
    if float(found.dominance.min()) >= 0 and least < -1e-12 * float(found.pull.abs().max()) ** 2:
        return f"seed {seed}: radial dominance, and a head falls at the rate {least:.3g}"
    return None


def entropies(seed: int) -> str | None:
    """dS_i/dt is the difference quotient of S_i for any weights, masses and velocities."""
    rng = np.random.default_rng([seed, 3])
    n, d = int(rng.integers(1, 15)), int(rng.integers(2, 6))
    rho, beta = _tokens(rng, n, d), rng.uniform(0, 5)
    w = ms.AttentionWeights(V=np.eye(d), B=rng.normal(size=(d, d)))
    v = torch.from_numpy(rng.normal(size=(n, d)))
    v = v - (v * rho.points).sum(1, keepdim=True) * rho.points
    later, earlier = (
        ms.observe.attention_entropy(ms.Measure(rho.points + s * v, rho.mass), w, beta) for s in (1e-5, -1e-5)
    )
    error = float(((later - earlier) / 2e-5 - ms.observe.entropy_production(rho, w, beta, v)).abs().max())
    allowed = 1e-8 * (1 + (beta * w.B_norm) ** 3)
    return f"seed {seed}: entropy changes by another rate, error {error:.2g}" if error > allowed else None


def reduction(seed: int) -> str | None:
    """Speed, shadow, tangent, threshold and ReLU time of equiangular tokens are those of all tokens."""
    rng = np.random.default_rng([seed, 4])
    n, beta = int(rng.integers(2, 30)), rng.uniform(0, 4)
    g = rng.uniform(-0.99 / (n - 1), 0.99)
    m = rng.uniform(-2, 2, int(rng.integers(1, 4))).tolist()
    eye = np.eye(n)
    gram = torch.from_numpy((1 - g) * eye + g)
    rho = ms.Measure(torch.linalg.cholesky(gram))
    flow = ms.MultiHead([ms.UnnormalizedAttention(ms.AttentionWeights(V=x * eye, B=x * eye), beta) for x in m])
    v = flow.velocity(0.0, *rho)
    measured = float(v[0] @ rho.points[1] + v[1] @ rho.points[0])
    size = sum(abs(x) * math.exp(beta * abs(x)) for x in m)
    if abs(measured - scalar_heads.speed(g, n, beta, m)) > 1e-11 * size:
        return f"seed {seed}: the overlap moves at {measured}, not at {scalar_heads.speed(g, n, beta, m)}"
    found = ms.observe.head_energies(rho, flow)
    for h, x in enumerate(m):
        shadow, tangent = n * found.shadow[h, 0], n**2 * found.tangential[h, 0].square().sum()
        if abs(float(shadow) - scalar_heads.radial_shadow(g, n, beta, x)) > 1e-11 * n * size:
            return f"seed {seed}: shadow {float(shadow)} of strength {x}"
        if abs(float(tangent) - scalar_heads.tangential_square(g, n, beta, x)) > 1e-11 * (n * size) ** 2:
            return f"seed {seed}: tangent {float(tangent)} of strength {x}"
    heads = int(rng.integers(2, 6))
    margin = scalar_heads.tangential_square(g, n, beta) - (heads - 1) * scalar_heads.radial_shadow(g, n, beta) ** 2
    threshold = scalar_heads.dominance_threshold(n, heads, g)
    if abs(beta - threshold) > 1e-9 and (margin > 0) is not (beta < threshold):
        return f"seed {seed}: margin {margin} at beta = {beta}, threshold {threshold}"
    start, end = np.sort(rng.uniform(0.01, 0.95, 2))
    h = 1e-4 * (end - start) * 0.1
    slope = (
        scalar_heads.relu_travel_time(end, n, start=start) - scalar_heads.relu_travel_time(end - h, n, start=start)
    ) / h
    middle = ms.Measure(torch.linalg.cholesky(torch.from_numpy((1 - end + h / 2) * eye + end - h / 2)))
    w = ReLUAttention(ms.AttentionWeights(V=eye, B=eye)).velocity(0.0, *middle)
    rate = float(w[0] @ middle.points[1] + w[1] @ middle.points[0])
    return f"seed {seed}: ReLU moves at {rate}, its time says {1 / slope}" if abs(slope * rate - 1) > 1e-5 else None


CASES: dict[str, Callable[[int], str | None]] = {
    "head energies": energies,
    "radial dominance": dominance,
    "entropy production": entropies,
    "scalar heads": reduction,
}
