"""Claims about finitely many tokens: they follow the density until the last of them leaves the antipode."""

from __future__ import annotations

import numpy as np

from metastable.drawing import Lines, Series, shaded
from metastable.meanfield import axial_disorder
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.clustering.axial import disorder, late_rate, quantile_tokens, run
from metastable.papers.clustering.sources import ESTIMATE
from metastable.papers.reading import farthest, first_crossing, listed, slope
from metastable.theory import last_departure

THEME = "Finitely many tokens"
EARLY = 0.1
"""1 - R below which tokens and density are compared: they are leaving the antipode by then."""


def betas(setting: Setting) -> tuple[float, ...]:
    """Inverse temperatures of the tokens on the circle; the figure is drawn for the last."""
    chosen: tuple[float, ...] = setting.choose((0.0, 1.0), (0.0, 0.5, 1.0), (1.0,))
    return chosen


def counts(setting: Setting) -> np.ndarray:
    """Numbers of tokens on the circle, in mirrored pairs."""
    return np.array(setting.choose((64, 512, 4096), (64, 512, 4096, 32768)))


def _paths(setting: Setting) -> tuple[np.ndarray, dict[float, np.ndarray], dict[float, list[np.ndarray]]]:
    times = np.linspace(0, 12 + np.log(counts(setting)[-1]), 121)
    density = {beta: disorder(2, beta, times) for beta in betas(setting)}
    tokens = {
        beta: [
            axial_disorder(run(2, beta, times, rho0=quantile_tokens(n // 2, 2))).numpy() for n in counts(setting)
        ]
        for beta in betas(setting)
    }
    return times, density, tokens


def regimes_experiment(setting: Setting) -> Outcome:
    """Tokens on the circle, softmax: rates before and after the last departure, and when the one gives way.

    Density and tokens end as A e^{-t} and B e^{-2t}; the lines cross at t = ln(B/A).
    """
    times, density, tokens = _paths(setting)
    n, rows, slopes, before, after = counts(setting), [], [], [], []
    for beta in betas(setting):
        late = density[beta][-1] * np.exp(times[-1])
        changes = []
        for count, values in zip(n, tokens[beta], strict=True):
            end = values[-1] * np.exp(2 * times[-1])
            changes.append(float(np.log(end / late)))
            after.append(late_rate(times, values, (1e-3 * values[-1], 30 * values[-1])) / 2)
            rows.append({"beta": beta, "n": int(count), "change at": changes[-1], "rate after": 2 * after[-1]})
        # Where thirty tokens and more are left, single ones do not show.
        alike = (tokens[beta][-1] > 60 / n[-1]) & (tokens[beta][-1] < EARLY)
        rate, of_density = (-slope(times[alike], np.log(v[alike])) for v in (tokens[beta][-1], density[beta]))
        before.append(rate / of_density)
        rows[-1] |= {"rate before": rate, "of the density then": of_density}
        slopes.append(slope(np.log(n), changes))
    curves = {"t": times, "n": n, "density": density[1.0]}
    return Outcome(
        farthest([*slopes, *before, *after], 1.0),
        curves=curves | {f"tokens {count}": row for count, row in zip(n, tokens[1.0], strict=True)},
        table=rows,
        rivals={
            "rate 2 from the start": farthest([found / 2 for found in before], 1.0),
            "rate 1 for ever": farthest([2 * rate for rate in after], 1.0),
            "change at (1/2) ln n": farthest([2 * found for found in slopes], 1.0),
        },
        note=f"slopes of the time of change in ln n: {', '.join(f'{found:.4f}' for found in slopes)}",
    )


def regimes_figure(outcome: Outcome) -> Lines:
    """1 - R of tokens leaves that of the density."""
    t, n = outcome.curves["t"], outcome.curves["n"]
    series = shaded([(t, outcome.curves[f"tokens {count}"]) for count in n], [f"n = {count}" for count in n])
    series.append(Series(t, outcome.curves["density"], "density", "dashed"))
    title = "Tokens on the circle leave the density when the last is gone, β = 1"
    return Lines(title, "time t", "1 − R", series, log_y=True, y_floor=1e-12)


DEPARTURE_DIMENSIONS = (2, 3, 4)
"""Dimensions in which the last departure is timed."""


def departure_experiment(setting: Setting) -> Outcome:
    """beta = 0: when the last of n tokens crosses the equator, as a slope in ln n/(d-1)."""
    n = np.array(setting.choose((300, 2000, 12000), (300, 2000, 12000, 48000), (300, 1500, 6000)))
    curves: dict[str, np.ndarray] = {"n": n}
    slopes, rows = [], []
    for d in DEPARTURE_DIMENSIONS:
        when = []
        for count in n:
            times = np.linspace(0, 6 + last_departure(int(count), d), 81)
            path = run(d, 0.0, times, rho0=quantile_tokens(int(count), d))
            last = path.points[:, 0]
            # artanh u moves almost at unit speed, so that its crossing is linear between two times.
            height = np.arcsinh((last[:, 0] / last[:, 1]).numpy())
            when.append(first_crossing(times, height, 0.0))
        slopes.append(slope([last_departure(int(count), d) for count in n], when))
        rows += as_rows({"d": np.full(len(n), d), "n": n, "last departure": when})
        curves[f"when {d}"] = np.array(when)
    return Outcome(
        farthest(slopes, 1.0),
        curves=curves,
        table=rows,
        rivals={
            "ln n in every dimension": farthest(
                [found / (d - 1) for found, d in zip(slopes, DEPARTURE_DIMENSIONS, strict=True)], 1.0
            ),
            "twice as late": farthest([found / 2 for found in slopes], 1.0),
            "no n": 0.0,
        },
    )


def departure_figure(outcome: Outcome) -> Lines:
    """Times of the last departure against n."""
    n, series = outcome.curves["n"], []
    grid = np.geomspace(n[0], n[-1], 121)
    for place, d in enumerate(DEPARTURE_DIMENSIONS):
        when = outcome.curves[f"when {d}"]
        law = when[-1] + np.log(grid / n[-1]) / (d - 1)
        series.append(Series(n, when, f"d = {d}", "points", colour=place))
        series.append(Series(grid, law, "" if place else "ln n/(d−1) + const", "dashed", colour=place))
    title = "The last of n tokens leaves the antipode, β = 0"
    ticks = {float(count): f"{count}" for count in n}
    return Lines(title, "number of tokens n", "time of the last departure", series, log_x=True, x_ticks=ticks)


CLAIMS = (
    Claim(
        "tokens-two-rates",
        lambda setting: (
            "n tokens at the quantiles of a density on the circle synchronise at its rate up to t = ln n + O(1), "
            "when the last has left the "
            f"antipode, and at the rate 2 from there on (n = {listed(counts(setting))}, beta = "
            f"{listed(betas(setting))})."
        ),
        regimes_experiment,
        expected=1.0,
        tolerance=0.05,
        reason="before the change, thirty tokens and more at the antipode make up a density to 1/30; rates "
        "after it and "
        "slopes are good to 2%",
        source=ESTIMATE,
        figure=regimes_figure,
        theme=THEME,
        unit="rates and slope / expected",
        effort=4,
        rivals={
            "rate 2 from the start": "Tokens synchronise at the rate 2 from the start.",
            "rate 1 for ever": "Tokens synchronise at the rate of the density for ever.",
            "change at (1/2) ln n": "The rate changes at (1/2) ln n.",
        },
    ),
    Claim(
        "tokens-last-departure",
        "At beta = 0 the last of n tokens at the quantiles of a density leaves the antipode at t = ln(n)/(d-1) + "
        f"O(1) (d = {listed(DEPARTURE_DIMENSIONS)}, n from 300 to 6000 and more).",
        departure_experiment,
        expected=1.0,
        tolerance=0.05,
        reason="the tail of the marginal is a power up to a share of 1%, and R is below 1 by 10% to 1% at the "
        "departures",
        source=ESTIMATE,
        figure=departure_figure,
        theme=THEME,
        unit="slope in ln(n)/(d-1)",
        effort=4,
        rivals={
            "ln n in every dimension": "The last token leaves after ln n in every dimension.",
            "twice as late": "The last token leaves after 2 ln(n)/(d-1).",
            "no n": "The time does not depend on n.",
        },
    ),
)
