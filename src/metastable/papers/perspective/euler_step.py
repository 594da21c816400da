"""The claim about the published step: Euler with h = 0.1 contracts faster than the flow."""

from __future__ import annotations

import math

import numpy as np

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.perspective.phase_diagram import THEME, TOKENS
from metastable.papers.perspective.sources import ESTIMATE
from metastable.papers.perspective.tokens import attention, gaps
from metastable.papers.reading import farthest, fine, listed, slope
from metastable.solve import solve

STEPS = (0.025, 0.05, 0.1, 0.2)
"""Steps of Euler's method; 0.1 is the published one."""
BETAS = (0.1, 1.0)
"""Inverse temperatures, at which all tokens of all draws have met well before the end."""


def rate_of(h: float) -> float:
    """-ln(1 - h)/h: rate at which differences of tokens decay near consensus under Euler's method (B11)."""
    return -math.log1p(-h) / h


def step_experiment(setting: Setting) -> Outcome:
    """Decay rate of the largest distance of two tokens under Euler's method over -ln(1-h)/h."""
    rows, found, exact, residual = [], [], [], []
    for h in STEPS:
        for beta, seed in zip(BETAS, setting.seeds(len(BETAS), 1), strict=True):
            # tokens of one half of the sphere meet soon
            points = sphere.uniform(TOKENS, 3, seed=seed)
            points[:, 0] = points[:, 0].abs() + 0.2
            times = h * np.arange(round(10 / h), round(14 / h) + 1)
            path = solve(attention(3, beta), points, float(times[-1]), times, method="euler", step=h)
            rate = -slope(times, 0.5 * np.log(gaps(path.points).amax(1).numpy()))
            found.append(rate / rate_of(h))
            if h >= 0.1:
                exact.append(rate)
                residual.append(rate / (math.log1p(h) / h))
            rows.append((h, beta, rate, rate_of(h)))
    return Outcome(
        farthest(found, 1.0),
        curves={"row": np.array(rows)},
        table=as_rows(dict(zip(("h", "beta", "rate", "expected"), zip(*rows, strict=True), strict=True))),
        rivals={
            "the rate of the flow": min(exact, key=lambda value: abs(value - 1)),
            "a layer that adds and normalises": min(residual, key=lambda value: abs(value - 1)),
        },
    )


def step_figure(outcome: Outcome) -> Lines:
    """Rates against the step."""
    rows = outcome.curves["row"]
    grid, series = fine(rows[:, 0]), []
    series.append(Series(grid, [rate_of(h) for h in grid], "−ln(1−h)/h", colour=0))
    for place, beta in enumerate(BETAS):
        chosen = rows[rows[:, 1] == beta]
        series.append(Series(chosen[:, 0], chosen[:, 2], f"tokens, β = {beta:g}", "points", colour=place))
    series.append(Series(grid, np.ones_like(grid), "the flow", "dashed", colour=7))
    return Lines("Contraction near consensus under Euler's method", "step h", "rate", series)


CLAIMS = (
    Claim(
        "euler-step",
        "Under Euler's method with step h differences of tokens decay at -ln(1-h)/h near consensus, 5% "
        "faster than under "
        f"the flow at the published h = 0.1 (h = {listed(STEPS)}).",
        step_experiment,
        expected=1.0,
        tolerance=1e-3,
        reason="tokens are closer than e^(-9) when the rate is read, and the next order is beta times their "
        "squared distance",
        source=ESTIMATE,
        figure=step_figure,
        theme=THEME,
        unit="measured over expected rate",
        rivals={
            "the rate of the flow": "Differences decay at 1, as under the flow.",
            "a layer that adds and normalises": "They decay at ln(1+h)/h, as when x + h m is normalised.",
        },
    ),
)
