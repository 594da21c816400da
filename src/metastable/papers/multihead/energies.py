"""Claims about the total energy E = sum_h E_h: it grows along the gradient flow, and not along softmax heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import MultiHead, interaction_energy
from metastable.measure import Measure
from metastable.observe import head_energies
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.multihead.heads import (
    Matrices,
    misaligned,
    resolved,
    run,
    scalar,
    softmax,
    symmetric,
    together,
    total_energy,
)
from metastable.papers.multihead.sources import ESTIMATE, PAPER
from metastable.papers.reading import farthest
from metastable.papers.running import equiangular, gauss
from metastable.theory.scalar_heads import critical_beta
from metastable.weights import AttentionWeights

THEME = "Total energy"
CASES = (6, 5, 3, 1.0), (10, 3, 2, 2.0), (16, 8, 4, 1.5), (24, 4, 3, 0.5)
"""(n, d, H, beta) of random symmetric heads; the first two in a quick run."""
CHOICES = 12
"""Random values of which the least favourable is followed: about every second one lowers the energy at first."""


def _cases(setting: Setting) -> tuple[tuple[int, int, int, float], ...]:
    return setting.choose(CASES[:2], CASES)


def balance(matrices: Matrices, beta: float, flow: MultiHead, tokens: torch.Tensor) -> float:
    """(E(t) - E(0)) / int (1/n) sum_i |x_i'|^2 ds along a flow: 1 if that is dE/dt (V1)."""
    times, weights = gauss(resolved(len(matrices), beta))
    path = run(flow, tokens, times)
    ends = total_energy(matrices, beta, path)[[0, -1]]
    speeds = [float(flow.velocity(0.0, *path.measure(k)).square().sum(1).mean()) for k in range(len(path))]
    return float((ends[1] - ends[0]) / (weights @ speeds))


def flat_balance(matrices: Matrices, beta: float, points: torch.Tensor) -> float:
    """dE/dt over (1/n) sum_i |v_i|^2 at tokens of R^d that move with v_i itself, by five-point differences."""
    flow, step = together(matrices, beta), 1e-3
    mass = torch.full((len(points),), 1 / len(points), dtype=torch.float64)
    v = flow.ambient_drift(0.0, points, mass).vector
    length = float(torch.linalg.vector_norm(v))

    def energy(steps: int) -> float:
        x = points + steps * step / length * v
        return sum(interaction_energy(x, mass, AttentionWeights(V=M, B=M), beta) for M in matrices)

    slope = (8 * (energy(1) - energy(-1)) - energy(2) + energy(-2)) / (12 * step) * length
    return slope / float(v.square().sum(1).mean())


def identity_experiment(setting: Setting) -> Outcome:
    """The balance of energy of random heads: aligned and symmetric, softmax, not symmetric, not aligned."""
    rows = []
    for (n, d, heads, beta), seed in zip(_cases(setting), setting.seeds(len(CASES), 1), strict=False):
        M, other = symmetric(d, heads, seed), symmetric(d, heads, seed + 1)
        turning = np.random.default_rng(seed + 2).normal(size=(heads, d, d))
        skewed = [S + (R - R.T) / np.linalg.norm(R - R.T, 2) for S, R in zip(M, turning, strict=True)]
        x0 = sphere.uniform(n, d, seed=seed)
        stretched = x0 * torch.linspace(0.5, 1.5, n, dtype=torch.float64)[:, None]
        flows = {
            "sphere": (M, together(M, beta)),
            "softmax": (M, softmax(M, beta)),
            "not symmetric": (skewed, together(skewed, beta)),
            "not aligned": (M, misaligned(M, other, beta)),
        }
        found = {name: balance(scores, beta, flow, x0) for name, (scores, flow) in flows.items()}
        flat = {"flat": flat_balance(M, beta, stretched)}
        rows.append({"n": n, "d": d, "heads": heads, "beta": beta} | found | flat)
    measured = [row[kind] for row in rows for kind in ("sphere", "flat")]
    # A rival has to be right everywhere, so that it stands or falls with its worst case.
    rivals = {name: farthest([row[name] for row in rows], 1.0) for name in found if name != "sphere"}
    return Outcome(farthest(measured, 1.0), table=rows, rivals=rivals)


OPPOSITE = ((1.0, -1.5, 0.5, 2.0), (1.0, -1.2, 0.3, 2.0), (0.8, -1.0, 0.6, 3.0))
"""(m, -mu, g, beta) of two scalar heads and of equiangular tokens: beta is above beta_c, so that unnormalised heads
cluster, while softmax weakens the attraction of cold heads, and they disperse."""
TOKENS = 8
"""Tokens of the runs of opposite heads."""


def _opposite_flows(m: float, repulsion: float, beta: float) -> dict[str, MultiHead]:
    M = scalar(TOKENS, (m, repulsion))
    return {
        "unnormalised": together(M, beta),
        "softmax": softmax(M, beta),
        "attraction alone": softmax(M[:1], beta),
        "repulsion alone": softmax(M[1:], beta),
    }


def growth_experiment(setting: Setting) -> Outcome:
    """Least change of E between saved times over its range, along random and opposite heads."""
    times, rows = np.linspace(0, 2.0, 21), list[dict[str, Any]]()
    curves: dict[str, np.ndarray] = {"t": times}
    for (n, d, heads, beta), seed in zip(_cases(setting), setting.seeds(len(CASES), 2), strict=False):
        M, x0 = symmetric(d, heads, seed), sphere.uniform(n, d, seed=seed)
        # One choice of values is enough against "any values": of some the one that lowers E most at first.
        choices = [misaligned(M, symmetric(d, heads, seed + k), beta) for k in range(1, CHOICES + 1)]
        pull = head_energies(x0, together(M, beta))
        worst = min(choices, key=lambda flow: float(pull.along(flow.velocity(0.0, *Measure(x0))).sum()))
        flows = {"aligned": together(M, beta), "not aligned": worst}
        found = {}
        for name, flow in flows.items():
            E = total_energy(M, beta, run(flow, x0, times, rtol=1e-9))
            found[name] = _least_change(E)
            curves[f"{name}, n = {n}, d = {d}, {heads} heads"] = E / E[0]
        rows.append({"heads": f"{heads} random", "n": n, "beta": beta} | found)
    for m, repulsion, g, beta in OPPOSITE[: setting.choose(1, 3)]:
        x0, M = equiangular(TOKENS, g), scalar(TOKENS, (m, repulsion))
        flows = {"aligned": together(M, beta), "softmax": softmax(M, beta)}
        paths = {name: run(flow, x0, times, rtol=1e-9) for name, flow in flows.items()}
        changes = {name: _least_change(total_energy(M, beta, path)) for name, path in paths.items()}
        rows.append({"heads": f"{m:g} and {repulsion:g}", "n": TOKENS, "beta": beta} | changes)
    least = {key: min(row[key] for row in rows if key in row) for key in ("aligned", "not aligned", "softmax")}
    rivals = {"any values": least["not aligned"], "softmax, too": least["softmax"]}
    return Outcome(least["aligned"], curves=curves, table=_filled(rows), rivals=rivals)


def _least_change(values: np.ndarray) -> float:
    return float(np.diff(values).min() / np.ptp(values))


def _filled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same columns in every row."""
    columns = dict.fromkeys(key for row in rows for key in row)
    return [{key: row.get(key) for key in columns} for row in rows]


def growth_figure(outcome: Outcome) -> Lines:
    """The energy of aligned heads as lines, of the same scores with other values dashed."""
    t = outcome.curves["t"]
    names = [name for name in outcome.curves if name.startswith("aligned")]
    series = []
    for place, name in enumerate(names):
        other = name.replace("aligned", "not aligned", 1)
        series.append(Series(t, outcome.curves[name], name, colour=place))
        series.append(Series(t, outcome.curves[other], other, "dashed", colour=place))
    return Lines("Total energy along unnormalised heads", "time t", "E(t)/E(0)", series)


def softmax_experiment(setting: Setting) -> Outcome:
    """Opposite scalar heads, equiangular tokens shaken a little: the deepest fall of E over E(0), by flow."""
    times, rows = np.linspace(0, 2.0, 31), []
    curves: dict[str, np.ndarray] = {"t": times}
    cases = OPPOSITE[: setting.choose(2, 3)]
    for (m, repulsion, g, beta), seed in zip(cases, setting.seeds(len(cases), 3), strict=True):
        M = scalar(TOKENS, (m, repulsion))
        shaken = equiangular(TOKENS, g) + 0.05 * sphere.uniform(TOKENS, TOKENS, seed=seed)
        x0 = Measure(shaken).points
        row = {"m": m, "mu": -repulsion, "g": g, "beta": beta, "beta_c": critical_beta(m, -repulsion, g)}
        for name, flow in _opposite_flows(m, repulsion, beta).items():
            scores = {"attraction alone": M[:1], "repulsion alone": M[1:]}.get(name, M)
            E = total_energy(scores, beta, run(flow, x0, times, rtol=1e-8))
            row[name] = float(E.min() / E[0] - 1)
            if name in ("unnormalised", "softmax"):
                curves[f"{name}, m = {m:g}, μ = {-repulsion:g}, β = {beta:g}"] = E / E[0]
        rows.append(row)
    rivals = {
        "as without softmax": max(row["unnormalised"] for row in rows),
        "as one attracting head": max(row["attraction alone"] for row in rows),
        "as one repelling head": max(row["repulsion alone"] for row in rows),
    }
    return Outcome(max(row["softmax"] for row in rows), curves=curves, table=rows, rivals=rivals)


def softmax_figure(outcome: Outcome) -> Lines:
    """E along softmax heads as lines, along unnormalised ones dashed."""
    t = outcome.curves["t"]
    names = [name for name in outcome.curves if name.startswith("softmax")]
    series = []
    for place, name in enumerate(names):
        other = name.replace("softmax", "unnormalised", 1)
        series.append(Series(t, outcome.curves[name], name, colour=place))
        series.append(Series(t, outcome.curves[other], other, "dashed", colour=place))
    return Lines("Two heads of opposite sign", "time t", "E(t)/E(0)", series)


CLAIMS = (
    Claim(
        "multihead-energy-identity",
        "For symmetric M_h with values M_h the unnormalised flow has dE/dt = (1/n) sum_i |P v_i|^2, and "
        "(1/n) sum_i |v_i|^2 without the sphere.",
        identity_experiment,
        expected=1.0,
        tolerance=1e-6,
        reason="integrator and Gauss points are good to 1e-9, and so are five-point differences without the sphere",
        source=ESTIMATE,
        theme=THEME,
        unit="change of E / integral of the identity",
        effort=2,
        rivals={
            "softmax": "The identity holds for softmax heads, too.",
            "not symmetric": "The identity holds for scores that are not symmetric.",
            "not aligned": "The identity holds for any values.",
        },
    ),
    Claim(
        "multihead-energy-grows",
        "Under Score Symmetry and Value Alignment the total energy never falls.",
        growth_experiment,
        expected=0.0,
        tolerance=1e-8,
        reason="an inequality; the integrator is good to 1e-9",
        source=PAPER,
        figure=growth_figure,
        relation="at least",
        theme=THEME,
        unit="least change of E between saved times / range of E",
        effort=2,
        rivals={
            "any values": "The total energy grows whatever the values are.",
            "softmax, too": "The total energy grows along softmax heads with the same matrices.",
        },
    ),
    Claim(
        "softmax-heads-lower-the-energy",
        "Softmax heads with symmetric scores and aligned values can lower the total energy, because every head has "
        "a partition of its own: two heads of opposite sign do.",
        softmax_experiment,
        expected=-0.01,
        tolerance=0.0,
        reason="an inequality; one percent of E is 10^5 times the error of the integrator",
        source=ESTIMATE,
        figure=softmax_figure,
        relation="at most",
        theme=THEME,
        unit="lowest E(t)/E(0) - 1 of the pair that falls least",
        effort=1,
        rivals={
            "as without softmax": "E changes as along the unnormalised heads.",
            "as one attracting head": "E grows as the energy of the attracting softmax head alone does.",
            "as one repelling head": "E grows as the energy of the repelling softmax head alone does.",
        },
    ),
)
