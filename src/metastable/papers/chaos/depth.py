"""Claims about depth: how the distance from infinite context grows, and where it is lost."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.papers.chaos.sampling import identity, uniform_contexts, watched
from metastable.papers.claim import Outcome, Setting
from metastable.papers.own_error import OwnError, with_systematic
from metastable.papers.reading import fine, first_crossing, listed, slope
from metastable.papers.verdict import ESTIMATE
from metastable.theory import clustering_time, context_spread, fastest_mode, growth_rate

THEME = "Depth"
CASES = ((2, 4.0), (3, 3.0))
"""(d, beta)."""
COUNTS = (32, 90, 256), (32, 128, 512, 2048)
DRAWS = (480, 240, 140), (1600, 800, 300, 60), (280, 140, 70)
"""Tokens of context, and contexts of each number."""
OBSERVERS, FRAMES, LAST = 8, 27, 1.3
"""Times at which distances are kept, up to LAST ln sqrt(n)/sigma_max."""
PARTS = 10
"""Parts of the contexts, of which each is left out once for a standard error."""


def squared_distances(d: int, beta: float, n: int, draws: int, seed: int, other: int) -> tuple[np.ndarray, ...]:
    """Times, the formula there, and n |x^n - x|^2 over it (times, draws), averaged over observers."""
    times = np.linspace(0, LAST * clustering_time(n, beta, d), FRAMES)[1:]
    observers = sphere.uniform(draws * OBSERVERS, d, seed=other).view(draws, OBSERVERS, d)
    ways = watched(identity(d, beta), uniform_contexts(draws, n, d, seed), observers, np.append(0.0, times))
    square = (ways[1:] - ways[0]).square().sum(3).mean(2).numpy()
    formula = np.asarray(context_spread(times, beta, d))
    return times, formula, n * square / formula[:, None]


def half_time(times: np.ndarray, ratios: np.ndarray) -> tuple[float, float]:
    """When the mean ratio falls to one half, and the standard error of that by leaving out parts."""
    whole = first_crossing(times, ratios.mean(1), 0.5, upwards=False)
    parts = np.arange(ratios.shape[1]) % PARTS
    others = [first_crossing(times, ratios[:, parts != i].mean(1), 0.5, upwards=False) for i in range(PARTS)]
    return whole, math.sqrt((PARTS - 1) * float(np.var(others)))


def formula_slope(counts: Sequence[int], halves: Sequence[float], beta: float, d: int) -> float:
    """Slope against ln sqrt(n) of the depths at which the formula reaches A n, A from the measured depths.

    Linear growth ends where the square of the distance is of order one: F(t)/n = A, F the formula of all modes.
    With the fastest alone the slope would be 1/sigma_max.
    """
    from scipy import optimize

    spread = np.log(np.asarray(context_spread(np.array(halves), beta, d)))
    level = float(np.mean(spread - np.log(counts)))

    def beyond(t: float, n: int) -> float:
        return math.log(float(context_spread(t, beta, d))) - level - math.log(n)

    depths = [optimize.brentq(beyond, min(halves) / 4, 4 * max(halves), args=(n,)) for n in counts]
    return slope(np.log(np.sqrt(counts)), depths)


def horizon_experiment(setting: Setting) -> Outcome:
    """Slope of the depth at which half of the formula is left against ln sqrt(n), times sigma_max."""
    counts = setting.choose(*COUNTS)
    x = np.log(np.sqrt(counts))
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    rows, found, errors, slower = [], [], [], []
    rivals: dict[str, list[float]] = {"mean of the context": [], "Lipschitz constant": []}
    curves: dict[str, np.ndarray] = {}
    for d, beta in CASES:
        rate = fastest_mode(beta, d)[1]
        halves, noise = [], []
        for n, draws in zip(counts, setting.choose(*DRAWS), strict=True):
            times, formula, ratios = squared_distances(d, beta, n, draws, *setting.seeds(2, 30, d, n))
            half, error = half_time(times, ratios)
            halves.append(half)
            noise.append(error)
            rows.append({"d": d, "beta": beta, "n": n, "depth": half, "standard error": error})
            rows[-1]["ln sqrt(n)/sigma_max"] = clustering_time(n, beta, d)
            if d == CASES[0][0]:
                curves |= {f"t {n}": times, f"rms {n}": np.sqrt(ratios.mean(1) * formula / n)}
        steep = slope(x, halves)
        found.append(steep * rate)
        slower.append(formula_slope(counts, halves, beta, d) * rate - 1)
        errors.append(float(np.sqrt(((weights * noise) ** 2).sum())) * rate)
        rivals["mean of the context"].append(steep * growth_rate(1, beta, d))
        rivals["Lipschitz constant"].append(steep * 2)
    error = math.hypot(*errors) / len(errors)
    outcome = Outcome(
        float(np.mean(found)),
        error,
        rivals={name: (float(np.mean(values)), error) for name, values in rivals.items()} | {"uniform in n": 0.0},
        curves=curves,
        table=rows,
        note="the mean over the cases of the table",
    )
    return with_systematic(outcome, float(np.mean(slower)))


def horizon_figure(outcome: Outcome) -> Lines:
    """rms distance against depth."""
    curves = outcome.curves
    counts = [int(name.removeprefix("t ")) for name in curves if name.startswith("t ")]
    d, beta = CASES[0]
    series, moments = [], {}
    for i, n in enumerate(counts):
        grid = fine(curves[f"t {n}"])
        series.append(Series(curves[f"t {n}"], curves[f"rms {n}"], f"n = {n}", "points", colour=i))
        series.append(Series(grid, np.sqrt(np.asarray(context_spread(grid, beta, d)) / n), "", colour=i))
        moments[clustering_time(n, beta, d)] = f"ln √n/σ, n = {n}"
    title = f"Depth and finite context on the circle, β = {beta:g}; lines: formula"
    ticks = {0.01: "0.01", 0.1: "0.1", 1.0: "1", 10.0: "10"}  # the last leaves room for what the moments say
    return Lines(title, "depth T", "rms |xⁿ(T) − x(T)|", series, log_y=True, moments=moments, y_ticks=ticks)


CLAIMS = (
    OwnError(
        "depth-of-context",
        lambda setting: (
            "The distance from infinite context grows with depth until, after a time that grows like ln "
            "sqrt(n)/sigma_max, clusters have formed and half of the formula is left, sigma_max the rate of the "
            f"fastest mode (circle, beta = 4, and S^2, beta = 3; n = {listed(setting.choose(*COUNTS))})."
        ),
        horizon_experiment,
        expected=1.0,
        reason="modes beside the fastest: what the formula of all of them makes of the slope",
        source=ESTIMATE,
        figure=horizon_figure,
        theme=THEME,
        unit="slope against ln sqrt(n) times sigma_max",
        effort=7,
        rivals={
            "mean of the context": "The mean of the context drives it, with the rate of degree one.",
            "Lipschitz constant": "Distances grow with the Lipschitz constant of the field, 2|V|.",
            "uniform in n": "The depth does not depend on the number of tokens.",
        },
    ),
)
