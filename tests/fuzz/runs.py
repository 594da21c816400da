"""Random cases of what runs and their rooms claim: None where all is right, else one line."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

import metastable as ms
from metastable.errors import MetastableError
from metastable.flows.attending import SHARE
from metastable.flows.time_scale import PROBES, time_scale


def attention_share(seed: int) -> str | None:
    """The kernel states no more than its share, and the end of a run is that of all digits within the tolerance."""
    g = np.random.default_rng(seed)
    d, rtol = int(g.integers(2, 4)), float(10.0 ** g.uniform(-8, -4))
    w = ms.AttentionWeights(V=g.normal(size=(d, d)), B=g.normal(size=(d, d)))
    x, t = ms.sphere.uniform(int(g.integers(50, 300)), d, seed=seed), float(g.uniform(0.1, 0.6))
    beta, kernel = float(10.0 ** g.uniform(-1, 1.5)), "circle" if d == 2 else "sphere"
    try:
        path = ms.solve(ms.SelfAttention(w, beta, kernel=kernel), x, t, rtol=rtol, atol=rtol / 100)
    except MetastableError as error:  # a kernel by name may refuse what it cannot do
        return None if kernel in str(error) else f"{error}"
    exact = ms.solve(ms.SelfAttention(w, beta, rtol=None), x, t, rtol=rtol, atol=rtol / 100)
    used, allowed = path.provenance["attention"], SHARE * 1.01 * rtol
    if (used["largest_error"] or 0.0) > allowed * (1 + 1e-9):
        return f"{kernel} states {used['largest_error']:.3g}, more than its share {allowed:.3g}"
    apart = float((path.end.points - exact.end.points).norm(dim=1).max())
    growth = float(np.exp(2 * t * w.V_norm * (1 + beta * w.B_norm)))
    bound = 10 * allowed * t * w.V_norm * min(growth, 1e3)
    return None if apart <= max(bound, rtol) else f"ends differ by {apart:.3g}, bound {bound:.3g}"


def pulse_width(seed: int) -> str | None:
    """A pulse wider than two probes is found with its width."""
    g = np.random.default_rng(seed)
    stop = float(10.0 ** g.uniform(-1, 2))
    width = stop * float(10.0 ** g.uniform(np.log10(2.5 / PROBES), -1.3))
    centre, height = float(g.uniform(2 * width, stop - 2 * width)), float(g.choice([-0.5, 1e-3, 0.3, 4.0]))
    d = int(g.integers(1, 4))
    base, entry = {"V": g.normal(size=(d, d)), "B": g.normal(size=(d, d))}, g.integers(0, d, size=2)
    name = str(g.choice(["V", "B"]))

    def at(t: float) -> ms.AttentionWeights:
        now = {k: m.copy() for k, m in base.items()}
        now[name][tuple(entry)] += height * 2.0 ** -((2 * (t - centre) / width) ** 2)
        return ms.AttentionWeights(**now)

    found = time_scale(ms.Schedule(at), 0.0, stop)
    return None if 0.7 * width <= found <= 1.3 * width else f"a pulse of width {width:.4g} is seen as {found:.4g}"


def hardmax_tolerance(seed: int) -> str | None:
    """A run of Hardmax changes by no more than ten tolerances when the tolerance is a hundredth."""
    g = np.random.default_rng(seed)
    d, n, t = int(g.integers(2, 6)), int(g.integers(2, 9)), float(g.uniform(0.1, 0.8))
    w = ms.AttentionWeights(V=g.normal(size=(d, d)), B=g.normal(size=(d, d)))
    x = ms.sphere.uniform(n, d, seed=seed)
    ends = [ms.solve(ms.Hardmax(w), x, t, rtol=r, atol=r / 100, max_steps=20_000).end.points for r in (1e-5, 1e-7)]
    apart = float((ends[0] - ends[1]).norm(dim=1).max())
    return None if apart <= 1e-4 else f"ends at rtol 1e-5 and 1e-7 differ by {apart:.3g}"


def distance_to_subspace(seed: int) -> str | None:
    """The distance to a subspace is W2 to the tokens projected on it, and the root of its square."""
    g = np.random.default_rng(seed)
    d, n = int(g.integers(2, 6)), int(g.integers(1, 12))
    mass = g.random(n) + 1e-3
    rho = ms.Measure(ms.sphere.uniform(n, d, seed=seed), mass / mass.sum())
    basis = torch.from_numpy(g.normal(size=(d, int(g.integers(1, d + 1)))))
    found = ms.observe.distance_to_subspace(rho, basis)
    projected = rho.points @ (basis @ torch.linalg.pinv(basis))
    expected = float(ms.wasserstein(rho, ms.Measure(projected, rho.mass)))
    if abs(found - expected) > 1e-7 * max(1.0, expected):
        return f"distance {found:.12g}, W2 {expected:.12g}"
    return None


CASES: dict[str, Callable[[int], str | None]] = {
    "attention_share": attention_share,
    "pulse_width": pulse_width,
    "hardmax_tolerance": hardmax_tolerance,
    "distance_to_subspace": distance_to_subspace,
}
