"""Claims about positive V: how often random starts end on both sides of the leading axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from metastable.drawing import Lines, Series
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.reading import SAMPLING, listed
from metastable.papers.spectral_selection.measuring import PAPER, ends, starts
from metastable.papers.verdict import ESTIMATE

THEME = "Alignment or two poles"
SPECTRUM = (3.0, 2.0, 1.0, 0.4)
"""The published spectrum."""
ALL_SIZES = tuple(range(2, 21))
SIZES = ALL_SIZES, ALL_SIZES, ALL_SIZES[::2]
"""Numbers of tokens of a quick, a full and a small run, each as often as any other."""
BETAS = (0.03, 0.5, 1.0, 2.0, 8.0), (0.03, 0.1, 0.3, 0.5, 1.0, 2.0, 4.0, 8.0), (0.03, 0.6, 8.0)
"""Inverse temperatures of a quick, a full and a small run."""
COLD = 8.0
COLD_STARTS = 60, 1000, 60
"""Starts of every n at this temperature."""
PUBLISHED = 0.818
"""The published share at beta = 8; for which mix of n in {2, ..., 20} is not known to us."""
TIME = 12.0
"""Twelve e-folds of l_1 - l_2 = 1."""


def bipolar(setting: Setting, betas: Sequence[float], n: int, systems: int, stream: int) -> np.ndarray:
    """Whether uniform starts of n tokens end on both sides of e_1: (betas, systems)."""
    points = starts(setting, systems, n, len(SPECTRUM), stream, n)
    x = ends(SPECTRUM, betas, points, TIME, rtol=1e-4)[..., 0]
    both = (x.amax(2) > 0) & (x.amin(2) < 0)
    return both.double().numpy()


def start_share(n: int) -> float:
    """1 - 2^{1-n}: how often n uniform tokens are not all on one side of the equator."""
    return 1 - 2.0 ** (1 - n)


def _error(sample: np.ndarray) -> np.ndarray:
    """Standard error of the mean over sizes and systems, (sizes, ..., systems), each size a stratum of its own."""
    found: np.ndarray = np.sqrt(sample.var(-1, ddof=1).sum(0) / sample.shape[-1]) / len(sample)
    return found


def rise_experiment(setting: Setting) -> Outcome:
    """The bipolar share against beta: what it is at the smallest, and by how much it ever falls."""
    betas, sizes, systems = setting.choose(*BETAS), setting.choose(*SIZES), setting.choose(40, 400, 30)
    sample = np.array([bipolar(setting, betas, n, systems, 9) for n in sizes])
    shares, errors = sample.mean((0, 2)), _error(sample)
    rises, doubts = np.diff(shares), _error(np.diff(sample, axis=1))
    fallen = rises < 0
    rows = as_rows({"beta": betas, "bipolar share": shares, "standard error": errors})
    return Outcome(
        float(shares[0] - rises[fallen].sum()),
        uncertainty=float(np.hypot(errors[0], np.sqrt((doubts[fallen] ** 2).sum()))),
        curves={
            "beta": np.array(betas),
            "share": shares,
            "error": errors,
            "by size": sample.mean(2).T,
            "n": np.array(sizes),
        },
        table=rows,
        rivals={
            "sides are kept": float(np.mean([start_share(n) for n in sizes])),
            "the same at every temperature": (float(shares[-1]), float(errors[-1])),
            "falls with beta": (float(2 * shares[-1]), float(2 * errors[-1])),
        },
        note=f"{systems} starts for each n; at beta = {betas[-1]:g} the share is "
        f"{shares[-1]:.1%} +- {errors[-1]:.1%}",
    )


def rise_figure(outcome: Outcome) -> Lines:
    """Shares of a few sizes and of all together."""
    beta, shares = outcome.curves["beta"], outcome.curves["by size"]
    series = [Series(beta, outcome.curves["share"], "all n alike", "marked", colour=0)]
    ends_of_bars = np.outer([-2, 2], outcome.curves["error"]) + outcome.curves["share"]
    series += [
        Series([b, b], bar, "± 2 standard errors" if place == 0 else "", colour=0)
        for place, (b, bar) in enumerate(zip(beta, ends_of_bars.T, strict=True))
    ]
    sizes = outcome.curves["n"].tolist()
    for place, n in enumerate((2, 4, 10, 20)):
        series.append(Series(beta, shares[:, sizes.index(n)], f"n = {n}", "dashed", colour=place + 1))
    series.append(Series([COLD], [PUBLISHED], "published, mix of n not known", "points", colour=7, hollow=[True]))
    title = "Bipolar ends of random starts, λ = 3, 2, 1, 0.4"
    return Lines(title, "inverse temperature β", "share of starts", series, log_x=True)


def cold_experiment(setting: Setting) -> Outcome:
    """The bipolar share at beta = 8 beside that of the starts, 1 - 2^{1-n}."""
    sizes, systems = setting.choose(*SIZES), setting.choose(*COLD_STARTS)
    sample = np.array([bipolar(setting, (COLD,), n, systems, 10)[0] for n in sizes])
    by_size, expected = sample.mean(1), np.array([start_share(n) for n in sizes])
    rows = as_rows(
        {
            "n": np.array(sizes),
            "bipolar share": by_size,
            "standard error": sample.std(1, ddof=1) / np.sqrt(systems),
            "1 - 2^(1-n)": expected,
        }
    )
    error = float(_error(sample))
    return Outcome(
        float(sample.mean() / expected.mean()),
        uncertainty=float(error / expected.mean()),
        curves={"n": np.array(sizes, dtype=float), "share": by_size},
        table=rows,
        rivals={
            "published 81.8%": (float(sample.mean()) / PUBLISHED, error / PUBLISHED),
            "every second start": (2 * float(sample.mean()), 2 * error),
        },
        note=f"{sample.mean():.1%} +- {error:.1%} of all starts, {expected.mean():.1%} expected; the published "
        f"{PUBLISHED:.1%} lies between n = 3 and n = 4, so that its mix holds more of the small n",
    )


def cold_tolerance(setting: Setting) -> float:
    """1/(beta l_1), and SAMPLING standard errors of the share of starts with tokens on both sides."""
    shares = np.array([start_share(n) for n in setting.choose(*SIZES)])
    error = np.sqrt((shares * (1 - shares)).sum() / setting.choose(*COLD_STARTS)) / shares.sum()
    return float(1 / (COLD * SPECTRUM[0]) + SAMPLING * error)


def cold_figure(outcome: Outcome) -> Lines:
    """Shares by the number of tokens."""
    n = outcome.curves["n"]
    fine = np.linspace(n[0], n[-1], 121)
    series = [
        Series(n, outcome.curves["share"], f"runs, β = {COLD:g}", "points", colour=0),
        Series(fine, 1 - 2.0 ** (1 - fine), "starts on both sides, 1 − 2^(1−n)", "dashed", colour=0),
    ]
    ticks = {float(value): f"{value}" for value in (2, 4, 8, 12, 16, 20)}
    title = "Cold tokens keep their side of the equator"
    return Lines(title, "number of tokens n", "share of bipolar ends", series, x_ticks=ticks)


def _sizes(setting: Setting) -> str:
    sizes = setting.choose(*SIZES)
    return "2, ..., 20" if sizes == ALL_SIZES else listed(sizes)


CLAIMS = (
    Claim(
        "bipolar-rise",
        lambda setting: (
            "For V = diag(3, 2, 1, .4) no random start ends bipolar at beta = .03, and the share that does rises "
            f"with beta (beta = {listed(setting.choose(*BETAS))}, n = {_sizes(setting)} alike)."
        ),
        rise_experiment,
        expected=0.0,
        tolerance=0.01,
        reason="a share of zero, and a sum of falls of the same starts from one beta to the next; 1% is below "
        "every rise of the share but those from 0 to 0",
        source=PAPER,
        figure=rise_figure,
        theme=THEME,
        unit="share at the smallest beta + sum of falls",
        effort=8,
        rivals={
            "sides are kept": "Tokens keep their side of the equator at every temperature: 1 - 2^{1-n} of starts.",
            "the same at every temperature": "The share does not depend on beta.",
            "falls with beta": "Warm tokens end bipolar, cold ones align.",
        },
    ),
    Claim(
        "bipolar-cold",
        lambda setting: (
            "At beta = 8 nearly all starts with tokens on both sides of the equator end bipolar: the share is at "
            f"most 1 - 2^{{1-n}} and close to it (n = {_sizes(setting)} alike)."
        ),
        cold_experiment,
        expected=1.0,
        tolerance=cold_tolerance,
        reason="tokens that attend across the equator are those within 1/(beta l_1) = 4% of it; four standard "
        "errors of so many starts besides",
        source=ESTIMATE,
        figure=cold_figure,
        theme=THEME,
        unit="share of bipolar ends / mean of 1 - 2^{1-n}",
        effort=5,
        rivals={
            "published 81.8%": "The share is the published 81.8% for equally many starts of every n, too.",
            "every second start": "The two outcomes are equally likely.",
        },
    ),
)
