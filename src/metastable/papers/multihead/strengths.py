"""Claims about the strengths of scalar heads: opposite signs, and why unequal heads cluster sooner."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from metastable.drawing import Lines, Series
from metastable.measure import Measure
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.multihead.equiangular import CLUSTERED, THEME
from metastable.papers.multihead.heads import overlaps, run, scalar, together
from metastable.papers.multihead.sources import ESTIMATE, PAPER
from metastable.papers.reading import farthest, listed
from metastable.papers.running import equiangular
from metastable.solve import Event, solve
from metastable.theory.scalar_heads import critical_beta, pull, travel_time

PAIRS = (1.0, 2.0, 0.3), (0.5, 0.8, 0.6), (1.2, 1.5, 0.15), (0.3, 1.4, 0.5), (2.0, 2.1, 0.1)
"""(m, mu, g) of opposite heads; the first three in a quick run."""
BISECTIONS = 22
"""Halvings of [0, 4 beta_c]: beta is then found to 1e-6 of beta_c."""


def opposite_experiment(setting: Setting) -> Outcome:
    """Bisection of beta on whether the overlap of a run has grown."""
    rows = []
    for m, mu, g in PAIRS[: setting.choose(3, 5, 2)]:
        n, exact = 6, critical_beta(m, mu, g)
        x0, low, high = equiangular(n, g), 0.0, 4 * exact
        for _ in range(BISECTIONS):
            beta = (low + high) / 2
            path = run(together(scalar(n, (m, -mu)), beta), x0, [0.0, 0.1])
            before, after = overlaps(path)
            low, high = (low, beta) if after > before else (beta, high)
        found = (low + high) / 2
        ratio = math.log(mu / m)
        row = {"m": m, "mu": mu, "g": g, "beta found": found, "ratio": found / exact}
        row |= {
            "swapped": -found / exact,
            "without (m + mu)": found / (ratio / g),
            "mu - m": found * (mu - m) * g / ratio,
        }
        rows.append(row)
    rivals = {key: farthest([row[key] for row in rows], 1.0) for key in ("swapped", "without (m + mu)", "mu - m")}
    return Outcome(farthest([row["ratio"] for row in rows], 1.0), table=rows, rivals=rivals)


UNEQUAL = ((1.5, 0.5), (1.9, 0.1), (1.2, 0.5, 0.3), (2.5, -0.5))
"""Strengths that add up to 2; the first two in a quick run."""
SUPER_BETAS = 1.0, 2.0
"""Inverse temperatures at which equal and unequal heads are compared."""


def rates_experiment(setting: Setting) -> Outcome:
    """Times to an overlap of 0.9 of unequal heads over those of equal ones, in runs of all tokens."""
    n, start, rows = 10, 0.1, list[dict[str, Any]]()
    curves: dict[str, np.ndarray] = {}
    for beta in SUPER_BETAS:
        for m in UNEQUAL[: setting.choose(2, 4)]:
            equal = (sum(m) / len(m),) * len(m)
            found = {name: _clustering(n, start, beta, heads) for name, heads in (("unequal", m), ("equal", equal))}
            rows.append({"beta": beta, "m": listed(m)} | {f"time, {name}": t for name, t in found.items()})
            rows[-1] |= {"ratio": found["unequal"] / found["equal"], "equal again": found["equal"] / found["equal"]}
    spread = np.linspace(0, 1, 101)
    for beta in SUPER_BETAS:
        curves[f"line {beta:g}"] = np.array([_ratio(n, start, beta, s) for s in spread])
        two = [row for row in rows if row["beta"] == beta][:2]
        curves[f"runs {beta:g}"] = np.array([[0.5, 0.9], [row["ratio"] for row in two]])
    curves["spread"] = spread
    ratios = [row["ratio"] for row in rows]
    rivals = {"only the sum counts": max(row["equal again"] for row in rows), "slower": max(1 / r for r in ratios)}
    return Outcome(max(ratios), curves=curves, table=rows, rivals=rivals)


def _ratio(n: int, start: float, beta: float, spread: float) -> float:
    unequal, equal = ((1 + spread, 1 - spread), (1.0, 1.0))
    return travel_time(CLUSTERED, n, beta, unequal, start=start) / travel_time(
        CLUSTERED, n, beta, equal, start=start
    )


def _clustering(n: int, start: float, beta: float, m: tuple[float, ...]) -> float:
    """The time at which a run reaches the overlap CLUSTERED."""

    def overlap(points: torch.Tensor, mass: torch.Tensor) -> float:
        return (float(points.sum(0).square().sum()) - n) / (n * (n - 1))

    event = Event(overlap, level=CLUSTERED, direction=1, stop=True, name="clustered")
    flow = together(scalar(n, m), beta)
    (crossing,) = solve(flow, equiangular(n, start), 100.0, rtol=1e-9, events=[event]).events
    return crossing.time


def rates_figure(outcome: Outcome) -> Lines:
    """Ratio of times of heads 1 + s and 1 - s to equal ones."""
    spread, series = outcome.curves["spread"], []
    for place, beta in enumerate(SUPER_BETAS):
        series.append(Series(spread, outcome.curves[f"line {beta:g}"], f"β = {beta:g}, reduction", colour=place))
        x, y = outcome.curves[f"runs {beta:g}"]
        series.append(Series(x, y, f"β = {beta:g}, all tokens", "points", colour=place))
    title = "Two heads of strengths 1 + s and 1 − s: time to g = 0.9"
    return Lines(title, "s", "time / time of equal heads", series)


def superadditive_experiment(setting: Setting) -> Outcome:
    """g' over (2/n) (1-g) (1+(n-1)g), unequal heads over equal ones, against that of sum_h m_h e^{beta m_h g}."""
    rows: list[dict[str, Any]] = []
    for n, g, beta in ((6, 0.5, 1.0), (10, 0.2, 2.0), (8, 0.7, 1.5), (30, 0.05, 3.0)):
        for m in UNEQUAL[: setting.choose(3, 4)]:
            equal = (sum(m) / len(m),) * len(m)
            rates = {name: _rate(n, g, beta, heads) for name, heads in (("unequal", m), ("equal", equal))}
            measured = rates["unequal"] / rates["equal"]
            expected = pull(g, beta, m) / pull(g, beta, equal)
            square = sum(x * x for x in m) / sum(x * x for x in equal)
            row = {"n": n, "g": g, "beta": beta, "m": listed(m), "rate": rates["unequal"], "gain": measured}
            rows.append(row | {"ratio": measured / expected, "additive": measured, "squares": measured / square})
    rivals = {key: farthest([row[key] for row in rows], 1.0) for key in ("additive", "squares")}
    return Outcome(farthest([row["ratio"] for row in rows], 1.0), table=rows, rivals=rivals)


def _rate(n: int, g: float, beta: float, m: tuple[float, ...]) -> float:
    rho = Measure(equiangular(n, g))
    v = together(scalar(n, m), beta).velocity(0.0, *rho)
    speed = float(v[0] @ rho.points[1] + v[1] @ rho.points[0])
    return speed / (2 / n * (1 - g) * (1 + (n - 1) * g))


CLAIMS = (
    Claim(
        "opposite-heads",
        "Two scalar heads m > 0 > -mu let an overlap g > 0 grow exactly for beta > beta_c = ln(mu/m)/((m+mu) g).",
        opposite_experiment,
        expected=1.0,
        tolerance=1e-5,
        reason=f"{BISECTIONS} halvings of [0, 4 beta_c] leave 1e-6; runs of time 0.1 see changes of g above 1e-10",
        source=ESTIMATE,
        theme=THEME,
        unit="beta by bisection / beta_c",
        effort=2,
        rivals={
            "swapped": "beta_c = ln(m/mu)/((m+mu) g).",
            "without (m + mu)": "beta_c = ln(mu/m)/g.",
            "mu - m": "beta_c = ln(mu/m)/((mu-m) g).",
        },
    ),
    Claim(
        "unequal-heads-cluster-sooner",
        f"At one sum of strengths unequal heads take equiangular tokens to g = {CLUSTERED:g} sooner than equal "
        f"ones, at beta = {listed(SUPER_BETAS)}.",
        rates_experiment,
        expected=0.99,
        tolerance=0.0,
        reason="an inequality; times are good to 1e-7, so that one percent is a difference",
        source=PAPER,
        figure=rates_figure,
        relation="at most",
        theme=THEME,
        unit="largest time / time of equal heads",
        effort=1,
        rivals={
            "only the sum counts": "Rates add up: only the sum of the strengths counts.",
            "slower": "Unequal heads are slower by as much.",
        },
    ),
    Claim(
        "super-additive-rates",
        "Rates of scalar heads are sum_h m_h e^{beta m_h g} times that of one head m = 1 at beta = 0, more for "
        "unequal heads by Jensen's inequality.",
        superadditive_experiment,
        expected=1.0,
        tolerance=1e-10,
        reason="velocities of tokens are rounded to 1e-13",
        source=ESTIMATE,
        theme=THEME,
        unit="measured gain over equal heads / predicted",
        effort=0.2,
        rivals={
            "additive": "Rates add up: there is no gain.",
            "squares": "The gain is that of the sum of squares of the strengths.",
        },
    ),
)
