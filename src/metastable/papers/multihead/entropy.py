"""Claims about the entropy of attention: how it is produced, and when it grows while tokens cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import MultiHead
from metastable.measure import Measure
from metastable.observe import attention_entropy, entropy_production
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.multihead.heads import overlaps, resolved, run, scalar, softmax, symmetric, together
from metastable.papers.multihead.sources import ESTIMATE, PAPER
from metastable.papers.reading import listed
from metastable.papers.running import equiangular, gauss
from metastable.solve import Path
from metastable.theory.scalar_heads import travel_time
from metastable.weights import AttentionWeights

THEME = "Entropy"
CASES = (6, 5, 2, 1.0), (10, 3, 3, 2.0), (16, 8, 2, 3.0), (24, 4, 4, 0.5)
"""(n, d, H, beta) of random symmetric heads; the first two in a quick run."""


def queries_alone(rho: Measure, w: AttentionWeights, beta: float, velocity: torch.Tensor) -> torch.Tensor:
    """-Cov_{A_i}(s_i, beta <x_i', B x_j>): what the production would be if keys stood still."""
    scores = beta * rho.points @ w.B @ rho.points.T
    change = beta * velocity @ w.B @ rho.points.T
    A = torch.softmax(scores, dim=1)
    return (A * scores).sum(1) * (A * change).sum(1) - (A * scores * change).sum(1)


def production_errors(flow: MultiHead, tokens: torch.Tensor, t: float) -> dict[str, float]:
    """By formula: the largest error of int dS_i/dt over all tokens and heads."""
    times, weights = gauss(t)
    path = run(flow, tokens, times)
    frames = [path.measure(k) for k in range(len(path))]
    speeds = [flow.velocity(0.0, *rho) for rho in frames]
    worst = {"identity": 0.0, "other sign": 0.0, "keys at rest": 0.0}
    for head in flow.heads:
        w, beta = head.weights_at(0.0), head.beta  # type: ignore[attr-defined]
        change = attention_entropy(frames[-1], w, beta) - attention_entropy(frames[0], w, beta)
        exact = sum(
            c * entropy_production(rho, w, beta, v) for c, rho, v in zip(weights, frames, speeds, strict=True)
        )
        still = sum(c * queries_alone(rho, w, beta, v) for c, rho, v in zip(weights, frames, speeds, strict=True))
        found = {"identity": exact, "other sign": -exact, "keys at rest": still}
        worst = {name: max(worst[name], float((one - change).abs().max())) for name, one in found.items()}
    return worst


def identity_experiment(setting: Setting) -> Outcome:
    """Unnormalised and softmax heads from iid tokens; every head has attention and entropies of its own."""
    rows: list[dict[str, Any]] = []
    cases = setting.choose(CASES[:2], CASES)
    for (n, d, heads, beta), seed in zip(cases, setting.seeds(len(cases), 21), strict=True):
        M, x0 = symmetric(d, heads, seed), sphere.uniform(n, d, seed)
        for name, flow in (("unnormalised", together(M, beta)), ("softmax", softmax(M, beta))):
            errors = production_errors(flow, x0, resolved(heads, beta))
            rows.append({"flow": name, "n": n, "d": d, "heads": heads, "beta": beta} | errors)
    worst = {name: max(float(row[name]) for row in rows) for name in errors}
    return Outcome(worst.pop("identity"), table=rows, rivals=worst)


CLUSTERING = (5, 0.0, 2.0, (1.0,)), (12, 0.1, 4.0, (0.8, 0.4)), (8, 0.3, 3.0, (1.0, -1.2)), (30, 0.0, 6.0, (1.0,))
"""(n, g(0), beta, m_h) of equiangular tokens that cluster, beta above beta_c; the first three in a quick run."""
DISPERSING = 8, 0.3, 0.5, (1.0, -2.0)
"""The same of tokens that disperse, beta below beta_c."""
LATE = 0.9999
"""Overlap at the end of the clustering."""


def _entropies(path: Path, d: int, strength: float, beta: float) -> np.ndarray:
    """S_i of one scalar head at the saved times, (m, n)."""
    w = AttentionWeights(V=np.eye(d), B=strength * np.eye(d))
    return np.array([attention_entropy(path.measure(k), w, beta).numpy() for k in range(len(path))])


def rise_experiment(setting: Setting) -> Outcome:
    """The least change of any S_i between saved times over ln n, of attracting heads while tokens cluster."""
    rows: list[dict[str, Any]] = []
    curves: dict[str, np.ndarray] = {}
    for n, start, beta, m in CLUSTERING[: setting.choose(3, 4)]:
        times = np.linspace(0, travel_time(LATE, n, beta, m, start=start), 25)
        path = run(together(scalar(n, m), beta), equiangular(n, start), times, rtol=1e-8)
        S = _entropies(path, n, m[0], beta) / math.log(n)
        row = {"n": n, "g(0)": start, "beta": beta, "heads": len(m), "g at the end": float(overlaps(path)[-1])}
        rows.append(
            row | {"S/ln n at first": float(S[0].mean()), "at last": float(S[-1].mean()), "least change": _least(S)}
        )
        curves[f"n = {n}, β = {beta:g}, m = {listed(m)}"] = np.array([times / times[-1], S.mean(1)])
    n, start, beta, m = DISPERSING
    times = np.linspace(0, 1.0, 25)
    apart = run(together(scalar(n, m), beta), equiangular(n, start), times, rtol=1e-8)
    falling = _entropies(apart, n, m[0], beta) / math.log(n)
    left = max(1 - float(row["at last"]) for row in rows)
    return Outcome(
        min(float(row["least change"]) for row in rows),
        curves=curves,
        table=rows,
        rivals={"whatever tokens do": _least(falling)},
        note=f"at the end all entropies are within {left:.1g} ln n of ln n",
    )


def _least(S: np.ndarray) -> float:
    return float(np.diff(S, axis=0).min())


def rise_figure(outcome: Outcome) -> Lines:
    """Entropies of equiangular tokens."""
    series = [Series(t, S, name) for name, (t, S) in outcome.curves.items()]
    series.append(Series([0.0, 1.0], [1.0, 1.0], "uniform attention", "dashed"))
    title = "Equiangular tokens: attention spreads while they cluster"
    return Lines(title, f"time / time to g = {LATE:g}", "entropy S / ln n", series)


GENERIC = (24, 3, 4.0), (32, 3, 6.0), (24, 2, 2.0)
"""(n, d, beta) of iid tokens in few dimensions with one head M = I; the first alone in a quick run."""
STARTS = 4
"""Samples of each: in about one of six no entropy falls by 0.02 ln n, in all four of them once in a thousand."""


def generic_experiment(setting: Setting) -> Outcome:
    """The deepest fall of any S_i over ln n, of iid tokens; and of equiangular ones."""
    cases = [case for case in GENERIC[: setting.choose(1, 3)] for _ in range(STARTS)]
    rows: list[dict[str, Any]] = []
    curves: dict[str, np.ndarray] = {}
    for (n, d, beta), seed in zip(cases, setting.seeds(len(cases), 22), strict=True):
        times = 12 * math.exp(-beta / 2) * np.linspace(0, 1, 31) ** 1.5
        path = run(together(scalar(d, (1.0,)), beta), sphere.uniform(n, d, seed), times, rtol=1e-6)
        S = _entropies(path, d, 1.0, beta) / math.log(n)
        fall = (np.maximum.accumulate(S, axis=0) - S).max(0)
        row = {
            "n": n,
            "d": d,
            "beta": beta,
            "deepest fall": float(fall.max()),
            "share that fall": float((fall > 0.01).mean()),
        }
        rows.append(row | {"mean at first": float(S[0].mean()), "at last": float(S[-1].mean())})
        if fall.max() == max(row["deepest fall"] for row in rows):
            worst = np.argsort(fall)[::-1][:3]
            curves = {"t": times, "mean": S.mean(1)} | {f"token {i}": S[:, i] for i in worst}
    n, start, beta, m = CLUSTERING[0]
    equal = run(together(scalar(n, m), beta), equiangular(n, start), np.linspace(0, 2.0, 25), rtol=1e-8)
    S = _entropies(equal, n, m[0], beta) / math.log(n)
    flat = float((np.maximum.accumulate(S, axis=0) - S).max())
    return Outcome(
        max(row["deepest fall"] for row in rows), curves=curves, table=rows, rivals={"as equiangular": flat}
    )


def generic_figure(outcome: Outcome) -> Lines:
    """The mean entropy and the tokens whose entropy falls most."""
    t = outcome.curves["t"]
    names: Sequence[str] = [name for name in outcome.curves if name.startswith("token")]
    series = [Series(t, outcome.curves["mean"], "mean of all tokens")]
    series += [Series(t, outcome.curves[name], name, "dotted") for name in names]
    return Lines("iid tokens: the entropy of single tokens can fall", "time t", "entropy S / ln n", series)


CLAIMS = (
    Claim(
        "entropy-production",
        "The entropies of attention change by dS_i/dt = -Cov_{A_i}(s_i, s_i'), for every head of unnormalised and "
        "of softmax flows.",
        identity_experiment,
        expected=0.0,
        tolerance=1e-8,
        reason="integrator and Gauss points are good to 1e-10 and better",
        source=ESTIMATE,
        theme=THEME,
        unit="error of the change of an S_i",
        effort=1,
        rivals={
            "other sign": "dS_i/dt = +Cov_{A_i}(s_i, s_i').",
            "keys at rest": "Only the motion of the query counts, s_ij' = beta <x_i', M x_j>.",
        },
    ),
    Claim(
        "entropy-rises-to-ln-n",
        "While equiangular tokens cluster, the entropies of an attracting head rise monotonically to ln n.",
        rise_experiment,
        expected=0.0,
        tolerance=1e-9,
        reason="an inequality; entropies of a run are good to 1e-9",
        source=PAPER,
        figure=rise_figure,
        relation="at least",
        theme=THEME,
        unit="least change of S_i between saved times / ln n",
        effort=1,
        rivals={"whatever tokens do": "Entropies rise along every flow, also while tokens disperse."},
    ),
    Claim(
        "entropy-of-single-tokens-falls",
        "From iid tokens in few dimensions the entropy of single tokens can fall on the way, when others leave "
        "them for another cluster: monotonicity needs more than clustering.",
        generic_experiment,
        expected=0.02,
        tolerance=0.0,
        reason="an inequality; a fiftieth of ln n is 10^4 times the error of a run",
        source=ESTIMATE,
        figure=generic_figure,
        relation="at least",
        theme=THEME,
        unit="deepest fall of an S_i / ln n",
        effort=1,
        rivals={"as equiangular": "Entropies never fall, as for equiangular tokens."},
    ),
)
