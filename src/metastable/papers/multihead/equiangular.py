"""Claims about heads M_h = m_h I and equiangular tokens: one equation for the overlap, and radial dominance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from metastable.drawing import Lines, Series
from metastable.measure import Measure
from metastable.observe import head_energies
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.multihead.heads import overlaps, run, scalar, together
from metastable.papers.multihead.sources import ESTIMATE
from metastable.papers.reading import farthest, listed
from metastable.papers.running import equiangular
from metastable.solve import Event, solve
from metastable.theory.scalar_heads import dominance_threshold, pull, travel_time

THEME = "Scalar heads"
CLUSTERED = 0.9
"""Overlap up to which runs of scalar heads are followed."""
CASES = (
    (5, 0.0, 1.0, (1.5, 0.5)),
    (12, 0.1, 2.0, (0.9, 0.4, 0.2)),
    (8, 0.3, 1.5, (1.0, -1.2)),
    (20, 0.05, 0.5, (1.2, 1.2, 0.1, -0.4)),
)
"""(n, g(0), beta, m_h); the first three in a quick run."""


def reduction_experiment(setting: Setting) -> Outcome:
    """Runs of all tokens: the time at which an overlap is seen against the travel time of the reduction."""
    rows: list[dict[str, Any]] = []
    curves: dict[str, np.ndarray] = {}
    for n, start, beta, m in CASES[: setting.choose(3, 4, 2)]:
        whole = travel_time(CLUSTERED, n, beta, m, start=start)
        times = np.linspace(0, whole, 9)
        path = run(together(scalar(n, m), beta), equiangular(n, start), times)
        g = overlaps(path)[1:]
        spread = float((path.points[-1] @ path.points[-1].T - torch.eye(n))[0, 1:].sub(g[-1]).abs().max())
        rivals = {"one head of the sum": (sum(m),), "heads of the mean": (sum(m) / len(m),) * len(m)}
        row = {"n": n, "g(0)": start, "beta": beta, "m": listed(m), "spread of overlaps": spread}
        row["heads"] = farthest([_time(x, n, beta, m, start) for x in g] / times[1:], 1.0)
        for name, other in rivals.items():
            row[name] = farthest([_time(x, n, beta, other, start) for x in g] / times[1:], 1.0)
        rows.append(row)
        curves[f"n = {n}, β = {beta:g}, m = {listed(m)}"] = np.array([times[1:], g])
    measured = {key: farthest([row[key] for row in rows], 1.0) for key in ("heads", *rivals)}
    curves["case"] = np.arange(len(rows))
    return Outcome(measured.pop("heads"), curves=curves, table=rows, rivals=measured)


def _time(g: float, n: int, beta: float, m: Sequence[float], start: float) -> float:
    """The travel time; infinite for heads that do not lead there."""
    end = min(max(float(g), -1 / (n - 1)), 1.0)
    leads = min(pull(start, beta, m), pull(end, beta, m)) > 0
    return travel_time(end, n, beta, m, start=start) if leads else math.inf


def reduction_figure(outcome: Outcome) -> Lines:
    """The reduction as lines, the overlaps of all tokens as points."""
    series = []
    for place, (n, start, beta, m) in zip(outcome.curves["case"], CASES, strict=False):
        name = f"n = {n}, β = {beta:g}, m = {listed(m)}"
        times, g = outcome.curves[name]
        grid = np.linspace(start, CLUSTERED, 121)
        exact = [travel_time(x, n, beta, m, start=start) for x in grid]
        series.append(Series(exact, grid, name, colour=int(place)))
        series.append(Series(times, g, "" if place else "all tokens", "points", colour=int(place)))
    return Lines("Scalar heads, equiangular tokens: one equation for the overlap", "time t", "overlap g", series)


DOMINANCE = ((40, 3, 1.7, 0.0), (40, 3, 1.2, 0.0), (16, 2, 1.5, 0.0), (100, 5, 2.0, 0.0), (24, 8, 0.8, 0.0))
"""(n, H, beta, g(0)) of equal heads, m = 1; the first three in a quick run. beta_RD(g) rises before it falls, so
that dominance may begin and end in one run."""


def dominance_experiment(setting: Setting) -> Outcome:
    """Overlaps at which the margin of radial dominance changes its sign in a run, against beta_RD(g) = beta."""
    rows: list[dict[str, Any]] = []
    for n, heads, beta, start in DOMINANCE[: setting.choose(3, 5, 2)]:
        flow = together(scalar(n, (1.0,) * heads), beta)

        def margin(points: torch.Tensor, mass: torch.Tensor, flow=flow) -> float:  # type: ignore[no-untyped-def]
            return float(head_energies(Measure(points, mass), flow).dominance.min())

        end = travel_time(CLUSTERED, n, beta, (1.0,) * heads, start=start)
        seen = solve(flow, equiangular(n, start), end, rtol=1e-9, events=[Event(margin, name="dominance")]).events
        times = [0.0, *(crossing.time for crossing in seen)]
        for g, crossing in zip(overlaps(run(flow, equiangular(n, start), times))[1:], seen, strict=True):
            rows.append(
                {
                    "n": n,
                    "heads": heads,
                    "beta": beta,
                    "dominance": "begins" if crossing.direction > 0 else "ends",
                    "g": float(g),
                    "beta_RD(g)/beta": dominance_threshold(n, heads, float(g)) / beta,
                    "beta_RD(0)/beta": dominance_threshold(n, heads) / beta,
                    "H for H - 1": dominance_threshold(n, heads + 1, float(g)) / beta,
                }
            )
    keys = ("beta_RD(g)/beta", "beta_RD(0)/beta", "H for H - 1")
    worst = {key: farthest([row[key] for row in rows], 1.0) for key in keys}
    curves = {key: np.array([row[key] for row in rows]) for key in ("n", "heads", "beta", "g")}
    rivals = {"at g = 0": worst["beta_RD(0)/beta"], "H for H - 1": worst["H for H - 1"]}
    return Outcome(worst["beta_RD(g)/beta"], curves=curves, table=rows, rivals=rivals)


def dominance_figure(outcome: Outcome) -> Lines:
    """beta_RD as a function of the overlap, and the sign changes in runs."""
    curves, series = outcome.curves, []
    pairs = sorted({(int(n), int(h)) for n, h in zip(curves["n"], curves["heads"], strict=True)})
    for place, (n, heads) in enumerate(pairs):
        here = (curves["n"] == n) & (curves["heads"] == heads)
        grid = np.linspace(0, 0.8, 401)
        line = np.array([dominance_threshold(n, heads, g) for g in grid])
        shown = line >= 0
        series.append(Series(grid[shown], line[shown], f"β_RD, n = {n}, H = {heads}", colour=place))
        label = "" if place else "sign changes in runs"
        series.append(Series(curves["g"][here], curves["beta"][here], label, "points", colour=place))
    return Lines("Radial dominance of equal heads: below the line", "overlap g", "β", series)


def growth_experiment(setting: Setting) -> Outcome:
    """Positive scalar heads beyond beta_RD: the least dE_h/dt over dE/dt, while tokens cluster."""
    rows = []
    for (n, heads, _, start), beta in zip(
        DOMINANCE[: setting.choose(2, 5)], (2.5, 3.0, 2.0, 3.0, 2.0), strict=False
    ):
        m = np.random.default_rng(setting.seeds(1, n, heads)).uniform(0.5, 1.5, heads).tolist()
        flow = together(scalar(n, m), beta)
        times = np.linspace(0, travel_time(CLUSTERED, n, beta, m, start=start), 9)
        path = run(flow, equiangular(n, start), times, rtol=1e-8)
        states = [head_energies(path.measure(k), flow) for k in range(len(path))]
        least = min(float(state.production.min() / state.production.sum()) for state in states)
        margins = [float((s.dominance / s.production.sum()).min()) for s in states]
        threshold = max(dominance_threshold(n, heads, g) for g in np.linspace(0, 0.9, 91))
        row = {"n": n, "heads": heads, "beta": beta, "largest beta_RD for m = 1": threshold, "least share": least}
        rows.append(row | {"least margin": min(margins)})
    measured = min(row["least share"] for row in rows)
    return Outcome(measured, table=rows, rivals={"dominance decides": min(row["least margin"] for row in rows)})


CLAIMS = (
    Claim(
        "equiangular-heads",
        lambda setting: (
            "Equiangular tokens under heads m_h I stay so, with g' = (2/n) (1-g) (1+(n-1)g) sum_h m_h e^{beta m_h "
            f"g}} up to g = {CLUSTERED:g} for {setting.choose(3, 4, 2)} choices of n, beta and strengths."
        ),
        reduction_experiment,
        expected=1.0,
        tolerance=1e-6,
        reason="the integrator is good to 1e-9, times are read off where g changes by 1e-2 and more",
        source=ESTIMATE,
        figure=reduction_figure,
        theme=THEME,
        unit="travel time of the reduction / time of the run",
        effort=1,
        rivals={
            "one head of the sum": "H heads act as one head of strength sum m_h.",
            "heads of the mean": "H heads act as H heads of the mean strength.",
        },
    ),
    Claim(
        "radial-dominance-threshold",
        "Radial dominance of H equal heads begins and ends where beta = beta_RD(g) = "
        "ln(sqrt((n-1)(1-g)(1+(n-1)g)/(H-1)) - (n-1)g)/(1-g).",
        dominance_experiment,
        expected=1.0,
        tolerance=1e-6,
        reason="the integrator is good to 1e-9, and beta_RD changes by less than 10^2 times the overlap",
        source=ESTIMATE,
        figure=dominance_figure,
        theme=THEME,
        unit="beta_RD(g) / beta at a change of sign in a run",
        effort=2,
        rivals={
            "at g = 0": "The threshold is that of g = 0, (1/2) ln((n-1)/(H-1)), for all overlaps.",
            "H for H - 1": "A head has to dominate H shadows, its own among them.",
        },
    ),
    Claim(
        "scalar-heads-need-no-dominance",
        "For positive scalar heads all E_h grow while equiangular tokens cluster, also without radial dominance: "
        "it is sufficient, not necessary.",
        growth_experiment,
        expected=0.0,
        tolerance=1e-9,
        reason="an inequality between sums that are rounded to 1e-12",
        source=ESTIMATE,
        relation="at least",
        theme=THEME,
        unit="least dE_h/dt over dE/dt",
        effort=1,
        rivals={"dominance decides": "An energy falls where the margin of radial dominance is negative."},
    ),
)
