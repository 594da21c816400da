"""Mean field against closed forms and tokens: few cheap comparisons, one random case per seed."""

import math
from collections.abc import Callable

import numpy as np
import torch

import metastable as ms
from metastable import sphere
from metastable.meanfield import Mixture, Skewed, Uniform, VonMisesFisher, limit_mass, nodes, two_atom_distance
from metastable.measure import Measure
from metastable.transport import wasserstein


def _random_law(rng: np.random.Generator, d: int, narrow: float) -> Mixture:
    """Uniform, skewed and von Mises-Fisher parts of concentration up to `narrow`."""
    directions = sphere.uniform(3, d, seed=int(rng.integers(2**31)))
    parts = [
        Uniform(d),
        Skewed(directions[0], float(rng.uniform(-1, 1))),
        *(VonMisesFisher(x, float(10 ** rng.uniform(0, math.log10(narrow)))) for x in directions[1:]),
    ]
    return Mixture(parts, rng.random(4) + 0.05)


def circle_mean(seed: int) -> str | None:
    """E x of a mixture on the circle, resolved by its cells: the sum of the parts' Bessel ratios."""
    from scipy.special import ive

    from metastable.meanfield.circle import circle_law

    rng = np.random.default_rng([1, seed])
    law = _random_law(rng, 2, 1e9)
    nodes_, increments = circle_law(law).cumulative.quadrature()
    found = increments.ravel() @ np.stack([np.cos(nodes_.ravel()), np.sin(nodes_.ravel())], axis=1)
    skewed = law.laws[1]
    expected = law.weights[1] * skewed.strength * skewed.direction / 2
    for weight, part in zip(law.weights[2:], law.laws[2:], strict=True):
        expected = expected + weight * part.mean * float(ive(1, part.kappa) / ive(0, part.kappa))
    off = float(np.abs(found - expected.numpy()).max())
    return None if off < 1e-11 else f"E x is off by {off:.2g} for {[p.kappa for p in law.laws[2:]]}"


def half_mass(seed: int) -> str | None:
    """The mass on one side of a plane, S^2: two normals that are opposite share the law, and samples agree."""
    rng = np.random.default_rng([2, seed])
    law = _random_law(rng, 3, 1e9)
    normal = sphere.uniform(1, 3, seed=int(rng.integers(2**31)))[0].numpy()
    p, q = limit_mass(law, normal), limit_mass(law, -normal)
    n = 4000
    share = float((law.sample(n, seed=seed) @ torch.from_numpy(normal) > 0).double().mean())
    if abs(p + q - 1) > 1e-9:
        return f"the halves have the masses {p!r} and {q!r}"
    spread = 5.5 * math.sqrt(max(p * (1 - p), 1 / n) / n)
    return None if abs(share - p) < spread else f"mass {p:.4g}, but {share:.4g} of {n} samples"


def two_atoms(seed: int) -> str | None:
    """W2 to two antipodal atoms: the selection here against transport."""
    rng = np.random.default_rng([3, seed])
    d = int(rng.integers(2, 6))
    rho = Measure(rng.standard_normal((int(rng.integers(1, 60)), d)), None)
    axis, p = sphere.uniform(1, d, seed=seed)[0].numpy(), float(rng.random())
    found = two_atom_distance(rho, axis, p)
    exact = wasserstein(rho, Measure(np.stack([axis, -axis]), [p, 1 - p]))
    return None if abs(found**2 - exact**2) < 1e-12 else f"{found!r} against {exact!r}"


def zero_beta(seed: int) -> str | None:
    """V = I, beta = 0 on the circle from f = 1 + r cos: the mean field follows many equispaced nodes."""
    rng = np.random.default_rng([4, seed])
    law = Skewed(sphere.uniform(1, 2, seed=seed)[0], float(rng.uniform(0.1, 0.9)))
    w = ms.AttentionWeights(V=rng.standard_normal((2, 2)), B=rng.standard_normal((2, 2)))
    beta, t = float(rng.uniform(0, 3)), float(rng.uniform(0.2, 1.0))
    path = ms.meanfield.solve(w, beta, law, t, tol=1e-5)
    tokens = ms.solve(ms.SelfAttention(w, beta), nodes(law, 2, 400), t=t, rtol=1e-9, atol=1e-9).end
    off = float((path.end.mass @ path.end.points - tokens.mass @ tokens.points).abs().max())
    return None if off < 1e-4 else f"E x at t = {t:.3g}, beta = {beta:.3g} is off by {off:.2g}"


def axial(seed: int) -> str | None:
    """Laws with an axis, d = 3: one line of latitudes against tokens of a product rule on the whole sphere."""
    rng = np.random.default_rng([5, seed])
    axis = sphere.uniform(1, 3, seed=seed)[0]
    across = torch.eye(3, dtype=torch.float64) - torch.outer(axis, axis)
    V, B = (rng.uniform(-2, 2) * torch.outer(axis, axis) + rng.uniform(-2, 2) * across for _ in "VB")
    w, beta, t = ms.AttentionWeights(V=V, B=B), float(rng.uniform(0, 2)), float(rng.uniform(0.1, 0.5))
    law = Skewed(axis, float(rng.uniform(-0.9, 0.9)))
    start = nodes(law, 3, 1500)
    end = ms.solve(ms.SelfAttention(w, beta), start, t=t, rtol=1e-8, atol=1e-8).end.points
    path = ms.meanfield.solve_axial(w, beta, law, [t], axis, tol=1e-4)
    off = float(start.mass @ (end - path.carry(0, start.points)).square().sum(1)) ** 0.5
    return None if off < 1e-4 else f"the map at t = {t:.3g}, beta = {beta:.3g} is off by {off:.2g}"


CASES: dict[str, Callable[[int], str | None]] = {
    "circle_mean": circle_mean,
    "half_mass": half_mass,
    "two_atoms": two_atoms,
    "zero_beta": zero_beta,
    "axial": axial,
}
