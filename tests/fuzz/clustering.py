"""Synchronisation at random: the Moebius family, axisymmetric attention, rates at the antipode, polar nodes."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import torch

import metastable as ms
from metastable import sphere, theory
from metastable.flows import AxisymmetricAttention
from metastable.meanfield import axial_disorder, axisymmetric_nodes
from metastable.measure import Measure


def moebius_family(seed: int) -> str | None:
    """1 - f_d by its hypergeometric function in thirty digits; the shift by its travel time."""
    rng = np.random.default_rng([1, seed])
    d, eta = int(np.exp(rng.uniform(math.log(2), math.log(300)))), float(10 ** rng.uniform(-4, 1.2))
    with mpmath.workdps(30):
        e, a = mpmath.mpf(eta), mpmath.mpf(d - 1) / 2
        if d == 3:  # a logarithmic case of the series, for which there is a closed form
            exact = float(1 - mpmath.coth(e) + e / mpmath.sinh(e) ** 2)
        else:
            exact = float(mpmath.exp(-2 * e) * mpmath.hyp2f1(1, a + 1, d, 1 - mpmath.exp(-2 * e)))
    found = theory.moebius.disorder(eta, d)
    if abs(found / exact - 1) > 1e-12:
        return f"d = {d}, eta = {eta:.6g}: 1 - f = {found!r} for {exact!r}"
    t = float(rng.uniform(0, 20))
    back = theory.moebius.travel_time(eta, theory.moebius.shift(t, eta, d), d)
    return (
        None if abs(back - t) < 1e-11 * (1 + t) else f"d = {d}, eta = {eta:.6g}: t = {t!r} comes back as {back!r}"
    )


def axisymmetric_field(seed: int) -> str | None:
    """The reduced field on the circle and on S^2 against attention among tokens on whole parallels."""
    rng = np.random.default_rng([2, seed])
    d, beta, normalized = int(rng.integers(2, 4)), float(rng.uniform(0, 6)), bool(rng.integers(2))
    u, mass = rng.uniform(-1, 1, 6), rng.random(6)
    mass /= mass.sum()
    ring = np.array([[1.0], [-1.0]]) if d == 2 else sphere.equispaced(64).numpy()
    rows = [np.concatenate([np.full((len(ring), 1), a), math.sqrt(1 - a * a) * ring], axis=1) for a in u]
    w = ms.AttentionWeights(V=np.eye(d), B=np.eye(d))
    flow = (ms.SelfAttention if normalized else ms.UnnormalizedAttention)(w, beta, rtol=None)
    full = flow.velocity(0.0, np.concatenate(rows), np.repeat(mass / len(ring), len(ring)))[:: len(ring), 0]
    tokens = np.stack([u, np.sqrt(1 - u * u)], axis=1)
    reduced = AxisymmetricAttention(d, beta, normalized).velocity(0.0, tokens, mass)[:, 0]
    off = float((full - reduced).abs().max()) / (math.exp(beta) if not normalized else 1.0)
    return None if off < 1e-10 else f"d = {d}, beta = {beta:.3g}, normalized = {normalized}: off by {off:.2g}"


def closed_run(seed: int) -> str | None:
    """1 - R of the closed family in any dimension after a run, with the digits of the integrator."""
    rng = np.random.default_rng([3, seed])
    d, start, t = int(rng.integers(2, 40)), float(rng.uniform(0.05, 2.0)), float(rng.uniform(0.1, 9.0))
    path = ms.solve(AxisymmetricAttention(d, 0.0), axisymmetric_nodes(d, [(1.0, start)]), t, rtol=1e-8, atol=1e-10)
    found, exact = float(axial_disorder(path)[-1]), theory.moebius.disorder(theory.moebius.shift(t, start, d), d)
    return (
        None
        if abs(found / exact - 1) < 1e-6
        else f"d = {d}, start = {start:.3g}, t = {t:.3g}: {found!r} for {exact!r}"
    )


def antipodal_pair(seed: int) -> str | None:
    """Rates of two antipodal clusters and of a token of no mass, by central differences of the field."""
    rng = np.random.default_rng([4, seed])
    beta, mass, normalized = float(rng.uniform(0, 3)), float(rng.uniform(0.02, 0.98)), bool(rng.integers(2))
    w = ms.AttentionWeights(V=np.eye(2), B=np.eye(2))
    flow = (ms.SelfAttention if normalized else ms.UnnormalizedAttention)(w, beta)
    masses = torch.tensor([1 - mass, mass, 0.0], dtype=torch.float64)

    def field(tilt: torch.Tensor) -> torch.Tensor:
        angle = torch.tensor([0.0, math.pi, math.pi], dtype=torch.float64) + tilt
        across = torch.stack([-angle.sin(), angle.cos()], dim=1)
        return (flow.velocity(0.0, sphere.from_angles(angle), masses) * across).sum(1)

    units = 1e-5 * torch.eye(3, dtype=torch.float64)
    J = torch.stack([(field(unit) - field(-unit)) / 2e-5 for unit in units], dim=1).numpy()
    tilting, escape = float(np.linalg.eigvals(J[:2, :2]).real.max()), float(J[2, 2])
    off = max(
        abs(tilting - theory.tilting_rate(beta, mass, normalized)),
        abs(escape - theory.escape_rate(beta, mass, normalized)),
    ) / math.exp(0.0 if normalized else beta)
    return (
        None if off < 1e-8 else f"beta = {beta:.3g}, mass = {mass:.3g}, normalized = {normalized}: off by {off:.2g}"
    )


def polar_mean(seed: int) -> str | None:
    """E x of a skewed density on S^2 by nodes that are dense at a random pole: strength/3 along its direction."""
    rng = np.random.default_rng([5, seed])
    direction, pole = sphere.uniform(2, 3, seed=seed)
    strength = float(rng.uniform(-1, 1))
    rho: Measure = ms.meanfield.polar_nodes(
        ms.meanfield.Skewed(direction, strength), pole, float(rng.uniform(0, 12)), int(rng.integers(6, 30))
    )
    off = float((rho.mass @ rho.points - strength / 3 * direction).abs().max())
    return None if off < 2e-6 else f"strength {strength:.3g}: off by {off:.2g}"


CASES: dict[str, Callable[[int], str | None]] = {
    "antipodal_pair": antipodal_pair,
    "axisymmetric_field": axisymmetric_field,
    "closed_run": closed_run,
    "moebius_family": moebius_family,
    "polar_mean": polar_mean,
}
