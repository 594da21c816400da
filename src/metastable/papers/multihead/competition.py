"""Claims about orthogonal heads along whole runs: radial dominance, energies that fall, and the head that wins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.observe import head_energies
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.multihead.heads import orthogonal, run, together
from metastable.papers.multihead.single_heads import THEME
from metastable.papers.multihead.sources import ESTIMATE, PAPER

COMPETING = (20, 40, 2, 1.0), (24, 36, 3, 1.0), (20, 40, 2, 0.5), (30, 40, 4, 1.5)
"""(n, d, H, beta) of orthogonal heads that compete, in many dimensions, so that iid tokens start in dominance; the
first two in a quick run, the first alone in a small one."""
LATE = 25.0
"""Times H e^{-beta/H} until which competing heads are followed: a consensus with the shares a_h of the spaces
leaves the smaller ones at the rate of the differences of e^{beta a_h}, which is of this order."""

SETTLED = 1e-6
"""dE/dt below which a run counts as settled: signs of rates and margins are rounding then."""


@dataclass(frozen=True, eq=False)
class Competition:
    """Energies, their rates and the least margin of radial dominance along a run of orthogonal heads."""

    heads: int
    beta: float
    times: np.ndarray
    energy: np.ndarray
    rate: np.ndarray
    margin: np.ndarray


@lru_cache(maxsize=1)
def competitions(setting: Setting) -> tuple[Competition, ...]:
    """Runs from iid tokens, shared by the claims that look at them."""
    cases, found = COMPETING[: setting.choose(2, 4, 1)], []
    for (n, d, heads, beta), seed in zip(cases, setting.seeds(len(cases), 13), strict=True):
        flow = together(orthogonal(d, heads, seed), beta)
        times = LATE * heads * np.exp(-beta / heads) * np.linspace(0, 1, 81) ** 2
        path = run(flow, sphere.uniform(n, d, seed), times, rtol=1e-8)
        states = [head_energies(path.measure(k), flow) for k in range(len(path))]
        energy, rate = (np.array([getattr(s, part).numpy() for s in states]) for part in ("energy", "production"))
        found.append(Competition(heads, beta, times, energy, rate, np.array([s.dominance.min() for s in states])))
    return tuple(found)


def dominance_experiment(setting: Setting) -> Outcome:
    """The least dE_h/dt over dE/dt at times with radial dominance of all tokens and heads, and without it."""
    rows = []
    for one in competitions(setting):
        moving = one.rate.sum(1) > SETTLED
        share = one.rate.min(1)[moving] / one.rate.sum(1)[moving]
        kept = one.margin[moving] >= 0
        rows.append(
            {
                "heads": one.heads,
                "beta": one.beta,
                "dominance until": float(one.times[moving][kept][-1]) if kept.any() else 0.0,
                "a head falls from": float(one.times[np.argmax(one.rate.min(1) < 0)]),
                "least share with": float(share[kept].min()) if kept.any() else np.inf,
                "least share without": float(share[~kept].min()),
            }
        )
    least = min(row["least share with"] for row in rows)
    unknown = "" if np.isfinite(least) else "no state of the runs is in radial dominance"
    rivals = {"without dominance": min(row["least share without"] for row in rows)}
    return Outcome(least, table=rows, rivals=rivals, inconclusive=unknown)


def competition_experiment(setting: Setting) -> Outcome:
    """The largest fall of the energy of a head below its start, over its range; and that of the total."""
    runs = competitions(setting)
    falls = [max(_fall(one.energy[:, h]) for h in range(one.heads)) for one in runs]
    totals = [_fall(one.energy.sum(1)) for one in runs]
    rows = [
        {"heads": one.heads, "beta": one.beta, "deepest fall of a head": fall, "of the total": total}
        for one, fall, total in zip(runs, falls, totals, strict=True)
    ]
    first = runs[0]
    curves = {"t": first.times, "energy": first.energy, "beta": np.array([first.beta]), "margin": first.margin}
    return Outcome(min(falls), curves=curves, table=rows, rivals={"as the total": min(totals)})


def _fall(values: np.ndarray) -> float:
    return float((np.maximum.accumulate(values) - values).max() / np.ptp(values))


def competition_figure(outcome: Outcome) -> Lines:
    """Energies of heads and where radial dominance ends."""
    t, energy, beta = outcome.curves["t"], outcome.curves["energy"], float(outcome.curves["beta"][0])
    shown = slice(0, len(t) // 2)
    series = [Series(t[shown], 2 * beta * energy[shown, h], f"head {h + 1}") for h in range(energy.shape[1])]
    for level, label in ((np.exp(beta), "e^β, all tokens in its space"), (1.0, "1, no token in its space")):
        series.append(Series(t[shown][[0, -1]], np.full(2, level), label, "dashed", colour=len(series)))
    lost = float(t[np.argmax(outcome.curves["margin"] < 0)])
    title = "Orthogonal heads compete: one takes all"
    return Lines(title, "time t", "2β E_h", series, moments={lost: "radial dominance ends"})


def winner_experiment(setting: Setting) -> Outcome:
    """Energies at the end, 2 beta E_h, against e^beta for one head and 1 for all others."""
    rows = []
    for one in competitions(setting):
        end = np.sort(2 * one.beta * one.energy[-1])[::-1]
        expected = np.array([np.exp(one.beta)] + [1.0] * (one.heads - 1))
        shared = np.full(one.heads, np.exp(one.beta / one.heads))
        rows.append(
            {
                "heads": one.heads,
                "beta": one.beta,
                "first": float(end[0]),
                "last": float(end[-1]),
                "error": float(np.abs(end - expected).max()),
                "error if shared": float(np.abs(end - shared).max()),
                "error if at rest": float(np.abs(2 * one.beta * one.energy[0] - expected).max()),
            }
        )
    worst = {key: max(row[key] for row in rows) for key in rows[0] if key.startswith("error")}
    rivals = {"shared": worst["error if shared"], "at rest": worst["error if at rest"]}
    return Outcome(worst["error"], table=rows, rivals=rivals)


CLAIMS = (
    Claim(
        "single-head-energy-falls",
        "The energy of a single head can fall while the total grows, even for orthogonal heads.",
        competition_experiment,
        expected=0.5,
        tolerance=0.0,
        reason="an inequality; half of the range of the energy is 10^7 times the error of the integrator",
        source=PAPER,
        figure=competition_figure,
        relation="at least",
        theme=THEME,
        unit="deepest fall of an E_h / its range",
        effort=3,
        rivals={"as the total": "Every energy grows as their sum does."},
    ),
    Claim(
        "radial-dominance-is-enough",
        "While |P f_i^h|^2 >= |<x_i, f_i^h>| sum_{h' != h} |<x_i, f_i^h'>| for all tokens and orthogonal heads, no "
        "energy of a head falls.",
        dominance_experiment,
        expected=0.0,
        tolerance=1e-9,
        reason="an inequality between sums that are rounded to 1e-12",
        source=ESTIMATE,
        relation="at least",
        theme=THEME,
        unit="least dE_h/dt over dE/dt",
        effort=3,
        rivals={"without dominance": "No energy of a head falls, dominance or not."},
    ),
    Claim(
        "one-orthogonal-head-takes-all",
        "Of H equal orthogonal heads one ends with 2 beta E_h = e^beta and all others with 1: the total is convex "
        "in the shares of the consensus.",
        winner_experiment,
        expected=0.0,
        tolerance=1e-4,
        reason="what is left at the end decays exponentially and is below 1e-5; the integrator is good to 1e-7",
        source=ESTIMATE,
        theme=THEME,
        unit="error of 2 beta E_h",
        effort=3,
        rivals={
            "shared": "Tokens gather where all heads have an equal share, 2 beta E_h = e^{beta/H}.",
            "at rest": "The energies stay where they were.",
        },
    ),
)
