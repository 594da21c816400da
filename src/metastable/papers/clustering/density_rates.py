"""Claims about how fast a density synchronises: what lingers at the antipode decides, not the cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from metastable.drawing import Lines, Series
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.clustering.axial import disorder, late_rate
from metastable.papers.clustering.sources import ESTIMATE
from metastable.papers.reading import farthest, fine, listed, slope
from metastable.theory import synchronisation_rate
from metastable.theory.equiangular import late_rate as token_rate

THEME = "Rates of densities"
WINDOW = (1e-8, 1e-5)
"""Range of 1 - R over which a rate is fitted: seven e-folds, late enough for the faster part to be gone."""
Case = tuple[int, float]
"""Dimension and inverse temperature."""


def softmax_cases(setting: Setting) -> list[Case]:
    """Cases of the softmax flow; none on S^2, where both rates agree."""
    few = [(2, 0.0), (2, 1.0), (4, 0.5), (8, 1.0)]
    return list(setting.choose(few, [*few, (2, 0.5), (4, 0.0), (5, 1.5), (8, 0.0), (16, 2.0)], few[1:]))


def unnormalized_cases(setting: Setting) -> list[Case]:
    """Cases of the unnormalised flow on both sides of e^{2 beta} = (d-1)/2."""
    few = [(2, 0.3), (3, 0.4), (4, 0.8), (5, 0.1), (8, 0.2)]
    return list(setting.choose(few, [*few, (2, 0.0), (2, 0.7), (3, 0.7), (5, 1.0), (8, 0.05)], few[1:]))


def _measure(cases: Sequence[Case], normalized: bool, rivals: dict[str, list[float]]) -> Outcome:
    """Fitted rates as shares of what is expected; `rivals` by name, a rate for every case."""
    curves: dict[str, np.ndarray] = {"cases": np.array(cases)}
    found, rows = [], []
    for d, beta in cases:
        expected = synchronisation_rate(d, beta, normalized)
        # The start takes some d/(d-1) e-folds of R, the fall to the window's end 18.5, each at its rate.
        times = np.linspace(0, 4 + 20 / expected, 97)
        values = disorder(d, beta, times, normalized)
        rate = late_rate(times, values, WINDOW)
        found.append(rate / expected)
        rows.append(
            {"d": d, "beta": beta, "rate": rate, "expected": expected, "tokens": token_rate(beta, normalized)}
        )
        curves |= {
            f"t {d} {beta:g}": times,
            f"values {d} {beta:g}": values,
            f"rate {d} {beta:g}": np.array([expected]),
        }
    return Outcome(
        farthest(found, 1.0),
        curves=curves,
        table=rows,
        rivals={
            name: farthest([row["rate"] / rate for row, rate in zip(rows, rates, strict=True)], 1.0)
            for name, rates in rivals.items()
        },
    )


def softmax_experiment(setting: Setting) -> Outcome:
    """Rate of 1 - R of densities under softmax attention."""
    cases = softmax_cases(setting)
    return _measure(
        cases,
        True,
        {"rate of tokens": [2.0 for _ in cases], "rate of the antipode": [d - 1.0 for d, _ in cases]},
    )


def unnormalized_experiment(setting: Setting) -> Outcome:
    """Rate of 1 - R of densities under unnormalised attention."""
    cases = unnormalized_cases(setting)
    return _measure(
        cases,
        False,
        {
            "rate of tokens": [token_rate(beta, False) for _, beta in cases],
            "rate of softmax": [synchronisation_rate(d, beta) for d, beta in cases],
            "rate of the antipode": [(d - 1) * math.exp(-beta) for d, beta in cases],
        },
    )


def rates_figure(outcome: Outcome) -> Lines:
    """1 - R against time, and the expected exponential through the end of the fitted stretch."""
    series = []
    for place, (d, beta) in enumerate(outcome.curves["cases"].tolist()):
        key = f"{int(d)} {beta:g}"
        t, values = outcome.curves[f"t {key}"], outcome.curves[f"values {key}"]
        at = int(np.flatnonzero(values > WINDOW[0])[-1])
        grid = fine(t)
        law = values[at] * np.exp(-outcome.curves[f"rate {key}"][0] * (grid - t[at]))
        series.append(Series(t, values, f"d = {int(d)}, β = {beta:g}", colour=place))
        shown = law < 0.3
        series.append(Series(grid[shown], law[shown], "" if place else "expected rate", "dashed", colour=place))
    title = "A density synchronises at the rate of its slower part"
    return Lines(title, "time t", "1 − R", series, log_y=True, y_floor=1e-10)


CRITICAL_WINDOW = (1e-9, 1e-4)
"""Range of 1 - R over which the local rate on S^2 is read: the next order is a share 1 - R of it."""
CRITICAL_TIMES = np.linspace(0, 16, 81)
"""Times of the runs on S^2: 1 - R has fallen below the window by the end."""


def critical_betas(setting: Setting) -> tuple[float, ...]:
    """Inverse temperatures of the runs on S^2; 0 is the unnormalised flow as well."""
    chosen: tuple[float, ...] = setting.choose((0.0, 1.0), (0.0, 0.5, 1.0, 2.0))
    return chosen


def inverse_gap(times: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """1/(2 - r) with the local rate r, at the middles of the times."""
    rate = -np.diff(np.log(values)) / np.diff(times)
    return (times[1:] + times[:-1]) / 2, 1 / (2 - rate)


def critical_experiment(setting: Setting) -> Outcome:
    """S^2, softmax: slope of 1/(2 - r) against time, 1 for t e^{-2t}."""
    curves: dict[str, np.ndarray] = {"beta": np.array(critical_betas(setting))}
    slopes, rows = [], []
    for beta in critical_betas(setting):
        values = disorder(3, beta, CRITICAL_TIMES)
        late = (values < CRITICAL_WINDOW[1]) & (values > CRITICAL_WINDOW[0])
        middle, inverse = inverse_gap(CRITICAL_TIMES[late], values[late])
        slopes.append(slope(middle, inverse))
        rows.append({"beta": beta, "slope of 1/(2 - r)": slopes[-1], "r at the end": float(2 - 1 / inverse[-1])})
        curves |= {f"t {beta:g}": middle, f"inverse {beta:g}": inverse}
    squared = inverse_gap(CRITICAL_TIMES[late], CRITICAL_TIMES[late] ** 2 * np.exp(-2 * CRITICAL_TIMES[late]))
    slower = inverse_gap(CRITICAL_TIMES[late], np.exp(-1.9 * CRITICAL_TIMES[late]))
    return Outcome(
        farthest(slopes, 1.0),
        curves=curves,
        table=rows,
        rivals={"a pure exponential": slope(*slower), "t^2 e^{-2t}": slope(*squared)},
    )


def critical_figure(outcome: Outcome) -> Lines:
    """1/(2 - r) against time: straight lines of slope one."""
    series = []
    for place, beta in enumerate(outcome.curves["beta"].tolist()):
        t, inverse = outcome.curves[f"t {beta:g}"], outcome.curves[f"inverse {beta:g}"]
        series.append(Series(t, inverse, f"β = {beta:g}", "points", colour=place))
        series.append(Series(t, inverse.mean() + t - t.mean(), "" if place else "slope 1", "dashed", colour=place))
    return Lines("S²: 1 − R falls like t e^(−2t), local rate r", "time t", "1/(2 − r)", series)


CLAIMS = (
    Claim(
        "density-rate-softmax",
        lambda setting: (
            "At beta = 0 and under softmax a density synchronises like 1 - R ~ e^{-min(2, d-1) t}, slower "
            "than tokens on "
            f"the circle ((d, beta) = {_listed(softmax_cases(setting))})."
        ),
        softmax_experiment,
        expected=1.0,
        tolerance=0.02,
        reason="a rate from a log-linear fit of deterministic data over seven e-folds is good to 2%",
        source=ESTIMATE,
        figure=rates_figure,
        theme=THEME,
        unit="rate / expected",
        effort=4,
        rivals={
            "rate of tokens": "A density synchronises at the rate 2 of finitely many tokens in every dimension.",
            "rate of the antipode": "What is left at the antipode decides in every dimension: the rate is d - 1.",
        },
    ),
    Claim(
        "density-rate-unnormalised",
        lambda setting: (
            "Under unnormalised attention 1 - R ~ e^{-rt} with r = min(2 e^beta, (d-1) e^{-beta}), on both "
            "sides of the "
            f"crossing ((d, beta) = {_listed(unnormalized_cases(setting))})."
        ),
        unnormalized_experiment,
        expected=1.0,
        tolerance=0.02,
        reason="a rate from a log-linear fit of deterministic data over seven e-folds is good to 2%",
        source=ESTIMATE,
        figure=rates_figure,
        theme=THEME,
        unit="rate / expected",
        effort=6,
        rivals={
            "rate of tokens": "A density synchronises at the rate 2 e^beta of finitely many tokens.",
            "rate of softmax": "The rate is min(2, d-1), as under softmax.",
            "rate of the antipode": "The rate is (d-1) e^{-beta} for every beta.",
        },
    ),
    Claim(
        "density-rate-critical",
        lambda setting: (
            "On S^2 the rates of cluster and antipode agree, and 1 - R ~ t e^{-2t}: with r its local rate, "
            "1/(2 - r) grows "
            f"like t (softmax, beta = {listed(critical_betas(setting))}, 1 - R from {CRITICAL_WINDOW[1]:g} to "
            f"{CRITICAL_WINDOW[0]:g})."
        ),
        critical_experiment,
        expected=1.0,
        tolerance=0.03,
        reason="the next order of r is 1 - R <= 1e-4, which 1/(2 - r) <= 10 magnifies a hundredfold; the rest "
        "is the fit",
        source=ESTIMATE,
        figure=critical_figure,
        theme=THEME,
        unit="slope of 1/(2 - r)",
        effort=2,
        rivals={
            "a pure exponential": "1 - R falls exponentially, at a rate of its own.",
            "t^2 e^{-2t}": "The prefactor is t^2.",
        },
    ),
)


def _listed(cases: Sequence[Case]) -> str:
    return ", ".join(f"({d}, {beta:g})" for d, beta in cases)
