"""Claims about equiangular tokens: n tokens whose overlaps are all g move like one number."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from metastable.drawing import Lines, Series
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.perspective.sources import ESTIMATE
from metastable.papers.perspective.tokens import NAMES, attention, gaps, overlaps
from metastable.papers.reading import farthest, listed
from metastable.papers.running import equiangular
from metastable.solve import Event, solve
from metastable.theory.equiangular import late_rate, overlap, overlap_at_zero_beta, travel_time

THEME = "Equiangular tokens"

CASES = ((2, 0.5, -0.5), (5, 3.0, 0.2), (8, 1.0, 0.0), (32, 4.0, 0.0))
"""n, beta and the first overlap."""
TIMES = np.linspace(0.0, 1.0, 9)
"""Times in units of the travel time to an overlap of 0.99."""


def reduction_experiment(setting: Setting) -> Outcome:
    """Largest distance of any overlap, at any time, from the solution of the equation for g."""
    cases = setting.choose(CASES, (*CASES, (3, 6.0, -0.4), (64, 5.0, 0.1)))
    rows, error, other = [], [], []
    curves: dict[str, np.ndarray] = {}
    for n, beta, start in cases:
        for normalized in (True, False):
            times = TIMES * travel_time(0.99, n, beta, start, normalized)
            flow = attention(n, beta, normalized)
            path = solve(flow, equiangular(n, start), float(times[-1]), times, rtol=1e-10, atol=1e-12)
            found = overlaps(path.points).numpy()
            exact, rival = (
                np.array([overlap(t, n, beta, start, which) for t in times])
                for which in (normalized, not normalized)
            )
            error.append(float(np.abs(found - exact[:, None]).max()))
            other.append(float(np.abs(found - rival[:, None]).max()))
            rows.append((n, beta, start, NAMES[normalized], error[-1], other[-1]))
            if normalized:
                curves |= {f"{n} {beta:g} {start:g}": np.stack([times, found.mean(1)])}
    names = ("n", "beta", "g(0)", "flow", "error", "error of the other flow")
    return Outcome(
        max(error),
        curves=curves,
        table=as_rows(dict(zip(names, zip(*rows, strict=True), strict=True))),
        rivals={"the other normalisation": min(other)},
    )


def reduction_figure(outcome: Outcome) -> Lines:
    """Overlaps of tokens as points on the curves of the equation."""
    series = []
    for place, (name, (times, found)) in enumerate(outcome.curves.items()):
        n, beta, start = (float(part) for part in name.split())
        grid = np.linspace(0.0, times[-1], 81)
        exact = np.array([overlap(t, int(n), beta, start) for t in grid])
        label = f"n = {n:g}, β = {beta:g}"
        series.append(Series(grid, exact, label, colour=place))
        series.append(Series(times, found, "" if place else "tokens", "points", colour=place))
    return Lines("Equiangular tokens under softmax attention, V = B = I", "time t", "overlap g", series)


COUNTS = (2, 5, 16, 64)
"""Numbers of tokens at beta = 0."""


def without_self(t: float, n: int) -> float:
    """g(t) at beta = 0 of tokens that do not attend to themselves: the same in the time n/(n-1) t."""
    return overlap_at_zero_beta(n / (n - 1) * t, n)


def zero_beta_experiment(setting: Setting) -> Outcome:
    """Orthogonal tokens at beta = 0: distance of their overlaps from (e^{2t}-1)/(e^{2t}+n-1)."""
    times = np.linspace(0.0, 4.0, 9)
    found = {}
    for n in setting.choose(COUNTS, (*COUNTS, 200), COUNTS[:3]):
        path = solve(attention(n, 0.0), equiangular(n, 0.0), 4.0, times, rtol=1e-12, atol=1e-13)
        found[n] = overlaps(path.points).numpy()

    def error(exact: Callable[[float, int], float], worst: Callable[[list[float]], float] = max) -> float:
        return worst(
            [float(np.abs(g - np.array([exact(t, n) for t in times])[:, None]).max()) for n, g in found.items()]
        )

    return Outcome(
        error(overlap_at_zero_beta),
        curves={"t": times} | {f"n = {n}": g.mean(1) for n, g in found.items()},
        rivals={
            "no attention to oneself": error(without_self, min),
            "pairs": error(lambda t, n: math.tanh(t)),
        },
    )


def zero_beta_figure(outcome: Outcome) -> Lines:
    """Overlaps at beta = 0."""
    times, grid = outcome.curves["t"], np.linspace(0.0, 4.0, 121)
    series = []
    for place, (name, found) in enumerate((k, v) for k, v in outcome.curves.items() if k != "t"):
        n = int(name.removeprefix("n = "))
        series.append(Series(grid, [overlap_at_zero_beta(t, n) for t in grid], name, colour=place))
        series.append(Series(times, found, "" if place else "tokens", "points", colour=place))
    return Lines("β = 0: g(t) = (e²ᵗ − 1)/(e²ᵗ + n − 1)", "time t", "overlap g", series)


RATES = (0.0, 1.0, 3.0)
"""Inverse temperatures of the late rates."""


def rate_experiment(setting: Setting) -> Outcome:
    """Decay rate of the largest 1 - <x_i, x_j> of random tokens, from 1e-5 to 1e-7, over 2 or 2 e^beta."""
    n, d = setting.choose(12, 48, 8), 3
    generator = np.random.default_rng(setting.seed)
    rows, found, rival = [], [], []
    for beta in setting.choose(RATES, (*RATES, 6.0)):
        for normalized in (True, False):
            rate = late_rate(beta, normalized)
            # tokens of a cap: the approach from everywhere is another claim
            points = generator.normal(size=(n, d)) * 0.3 + np.array([2.0, 0.0, 0.0])
            events = [
                Event(lambda x, m: gaps(x).max().log(), math.log(level), -1, stop=level < 1e-6, name=f"{level:g}")
                for level in (1e-5, 1e-7)
            ]
            path = solve(attention(d, beta, normalized), points, 40 / rate, rtol=1e-9, atol=1e-14, events=events)
            first, last = (crossing.time for crossing in path.events)
            measured = math.log(100.0) / (last - first)
            found.append(measured / rate)
            if beta > 0:
                rival.append(measured / late_rate(beta, not normalized))
            rows.append((beta, NAMES[normalized], measured, rate))
    return Outcome(
        farthest(found, 1.0),
        table=as_rows(dict(zip(("beta", "flow", "rate", "expected"), zip(*rows, strict=True), strict=True))),
        rivals={
            "the other normalisation": min(rival, key=lambda value: abs(value - 1)),
            "tokens, not overlaps": farthest(found, 1.0) * 2,
        },
    )


TARGETS = (0.5, 0.999)
"""Overlaps whose times are the golden ones."""
GOLDEN_BETAS = (0.0, 1.0, 4.0, 9.0)


def travel_experiment(setting: Setting) -> Outcome:
    """Orthogonal tokens: relative error of the times at which their smallest overlap passes 0.5 and 0.999."""
    n = 32
    betas = setting.choose(GOLDEN_BETAS, (*GOLDEN_BETAS, 2.0, 6.0), GOLDEN_BETAS[:3])
    rows, error, constant, mean_field = [], [], [], []
    for beta in betas:
        events = [Event(lambda x, m: overlaps(x).min(), g, 1, stop=g > 0.9, name=f"{g:g}") for g in TARGETS]
        path = solve(attention(n, beta), equiangular(n, 0.0), 400.0, rtol=1e-10, atol=1e-12, events=events)
        for g, crossing in zip(TARGETS, path.events, strict=True):
            exact = travel_time(g, n, beta)
            error.append(abs(crossing.time / exact - 1))
            if beta > 0:
                constant.append(abs(crossing.time / travel_time(g, n, 0.0) - 1))
                mean_field.append(abs(crossing.time / travel_time(g, n, beta, normalized=False) - 1))
            rows.append((beta, g, crossing.time, exact))
    return Outcome(
        max(error),
        curves={"row": np.array(rows)},
        table=as_rows(dict(zip(("beta", "g", "t(g) of tokens", "t(g)"), zip(*rows, strict=True), strict=True))),
        rivals={"whatever beta": min(constant), "unnormalised": min(mean_field)},
    )


def travel_figure(outcome: Outcome) -> Lines:
    """Times against beta, as in the phase diagram of the paper but with the axes exchanged."""
    rows = outcome.curves["row"]
    grid, series = np.linspace(0.0, rows[:, 0].max(), 121), []
    for place, g in enumerate(TARGETS):
        chosen = rows[rows[:, 1] == g]
        series.append(Series(grid, [travel_time(g, 32, b) for b in grid], f"t(g = {g:g})", colour=place))
        series.append(Series(chosen[:, 0], chosen[:, 2], "" if place else "tokens", "points", colour=place))
    title = "When 32 orthogonal tokens meet: t(g) = ∫ dg/g'"
    return Lines(title, "inverse temperature β", "time", series, log_y=True)


CLAIMS = (
    Claim(
        "equiangular-reduction",
        "Equiangular tokens stay so, and their overlap solves g' = 2 e^(beta "
        "g)(1-g)((n-1)g+1)/(e^beta+(n-1)e^(beta g)) "
        "(softmax) or (2/n) e^(beta g)(1-g)((n-1)g+1) (unnormalised), for n = 2 to 32 tokens and beta = 0.5 to 4.",
        reduction_experiment,
        expected=0.0,
        tolerance=1e-7,
        reason="the run has a tolerance of 1e-10 per step, some hundred steps, and errors grow while g does",
        source=ESTIMATE,
        figure=reduction_figure,
        theme=THEME,
        unit="largest error of an overlap",
        rivals={"the other normalisation": "Both flows have one and the same equation for g."},
    ),
    Claim(
        "zero-beta-closed-form",
        f"At beta = 0 orthogonal tokens have the overlap (e^(2t)-1)/(e^(2t)+n-1) (n = {listed(COUNTS)}).",
        zero_beta_experiment,
        expected=0.0,
        tolerance=1e-10,
        reason="the run has a tolerance of 1e-12 per step and takes some hundred steps",
        source=ESTIMATE,
        figure=zero_beta_figure,
        theme=THEME,
        unit="largest error of an overlap",
        rivals={
            "no attention to oneself": "Tokens attend to the others only.",
            "pairs": "However many tokens there are, every pair meets like two tokens do, g = tanh t.",
        },
    ),
    Claim(
        "consensus-rates",
        "Near consensus 1 - <x_i, x_j> decays at 2 (softmax) and at 2 e^beta (unnormalised), beta = "
        f"{listed(RATES)}.",
        rate_experiment,
        expected=1.0,
        tolerance=1e-3,
        reason="1 - <x_i, x_j> is between 1e-5 and 1e-7, and the next order is beta times that",
        source=ESTIMATE,
        theme=THEME,
        unit="measured over expected rate",
        rivals={
            "the other normalisation": "Both flows contract at one rate.",
            "tokens, not overlaps": "1 - <x_i, x_j> decays like the difference of two tokens, at 1 and e^beta.",
        },
    ),
    Claim(
        "travel-times",
        "Orthogonal tokens reach the overlaps 0.5 and 0.999 at t(g) = int dg/g' (n = 32, beta from 0 to 9).",
        travel_experiment,
        expected=0.0,
        tolerance=1e-6,
        reason="tolerance 1e-10 of the run; at beta = 9 the time multiplies an error of the first overlap by "
        "a thousand",
        source=ESTIMATE,
        figure=travel_figure,
        theme=THEME,
        unit="largest relative error",
        rivals={
            "whatever beta": "The time does not depend on beta: it is that of beta = 0.",
            "unnormalised": "The time is that of the unnormalised flow.",
        },
    ),
)
