"""Claims about depth: when recency is lost, and how much the first token is remembered."""

from __future__ import annotations

import math

import numpy as np

from metastable.drawing import Lines, Series
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.lost_in_the_middle.sampling import MODES, WIDTH
from metastable.papers.reading import beside, farthest, fine, listed, spanned
from metastable.papers.verdict import ESTIMATE
from metastable.theory import critical_depth, log_retrieval_profile, token_profile

PAPER = "arXiv:2605.09213"
THEME = "Depth"
BETAS, SLOPES = (0.5, 1.0, 2.0, 3.0), (0.5, 1.0, 2.0)
"""Inverse temperatures and ALiBi slopes at which the loss of recency is looked for."""
TOKENS = (200, 400), (400, 800)
"""Numbers of tokens from which the end of the context is extrapolated."""
FIRST = (1000, 3000, 10_000), (1000, 10_000, 100_000)
"""Numbers of tokens whose first one is looked at."""
FIRST_CASES = ((1.0, 1.0, 1.0), (0.5, 2.0, 4.0), (2.0, 0.5, 0.5))
"""(beta, lambda, t)."""


def last_rise(n: int, t: float, beta: float, alibi: float) -> float:
    """Slope of the profile of n tokens at the end of the context, relative to the profile there."""
    end = token_profile(n, t, beta, alibi, WIDTH, MODES).numpy()[-3:]
    return float(n * (3 * end[2] - 4 * end[1] + end[0]) / 2 / end[2])


def depth_of_loss(n: int, beta: float, alibi: float) -> float:
    """The depth at which the last of n tokens ceases to know more of the recent ones."""
    from scipy import optimize

    guess = float(critical_depth(beta, alibi, WIDTH, MODES))
    return float(optimize.brentq(lambda t: last_rise(n, t, beta, alibi), guess / 3, 3 * guess, rtol=1e-9))


def critical_experiment(setting: Setting) -> Outcome:
    """Depths by the recursion of n tokens, extrapolated, over the formula's."""
    n, twice = setting.choose(*TOKENS)
    rows, ratios = [], []
    rivals: dict[str, list[float]] = {"one mode": [], "no slope": [], "first order in the slope": []}
    curves: dict[str, np.ndarray] = {"beta": np.array(BETAS), "fine": np.linspace(0.4, 3.2, 113)}
    for alibi in SLOPES:
        found = [2 * depth_of_loss(twice, beta, alibi) - depth_of_loss(n, beta, alibi) for beta in BETAS]
        formula = [float(critical_depth(beta, alibi, WIDTH, MODES)) for beta in BETAS]
        for beta, depth, expected in zip(BETAS, found, formula, strict=True):
            ratios.append(depth / expected)
            rivals["one mode"].append(depth / critical_depth(beta, alibi, WIDTH, 1))
            rivals["no slope"].append(depth / (expected / -math.expm1(-alibi)))
            rivals["first order in the slope"].append(depth / (expected / -math.expm1(-alibi) * alibi))
            rows.append({"beta": beta, "lambda": alibi, "recursion": depth, "formula": expected})
        curves[f"measured {alibi:g}"] = np.array(found)
        curves[f"theory {alibi:g}"] = np.asarray(critical_depth(curves["fine"], alibi, WIDTH, MODES))
    return Outcome(
        farthest(ratios, 1.0),
        rivals={name: farthest(values, 1.0) for name, values in rivals.items()},
        curves=curves,
        table=rows,
        note="the ratio farthest from 1",
    )


def critical_figure(outcome: Outcome) -> Lines:
    """Depth of loss against beta."""
    curves = outcome.curves
    slopes = [name.removeprefix("theory ") for name in curves if name.startswith("theory ")]
    dots = [
        Series(curves["beta"], curves[f"measured {s}"], f"recursion, λ = {s}", "points", colour=i)
        for i, s in enumerate(slopes)
    ]
    lines = [
        Series(curves["fine"], curves[f"theory {s}"], f"t_crit, λ = {s}", colour=i) for i, s in enumerate(slopes)
    ]
    title = "The depth at which recency is lost"
    return Lines(title, "inverse temperature β", "depth t", beside(dots, lines), log_y=True)


def first_experiment(setting: Setting) -> Outcome:
    """Growth of what is known of the first token with the number of tokens, over that of S_t(1/n)."""
    counts = np.array(setting.choose(*FIRST))
    rows, ratios = [], []
    rivals: dict[str, list[float]] = {"bounded": [], "like 1/s": [], "like log(1/s)": []}
    curves: dict[str, np.ndarray] = {"n": counts.astype(float), "fine": fine(counts)}
    for beta, alibi, t in FIRST_CASES:
        found = np.log([float(token_profile(int(n), t, beta, alibi, WIDTH, MODES)[0]) for n in counts])
        expected = np.asarray(log_retrieval_profile(1 / counts, t, beta, alibi, WIDTH, MODES))
        grown = float(found[-1] - found[0])
        ratios.append(grown / float(expected[-1] - expected[0]))
        rivals["bounded"].append(0.0)
        rivals["like 1/s"].append(grown / math.log(counts[-1] / counts[0]))
        rivals["like log(1/s)"].append(grown / math.log(math.log(counts[-1]) / math.log(counts[0])))
        label = f"β = {beta:g}, λ = {alibi:g}, t = {t:g}"
        line = np.asarray(log_retrieval_profile(1 / curves["fine"], t, beta, alibi, WIDTH, MODES))
        curves |= {f"measured {label}": np.exp(found), f"theory {label}": np.exp(line)}
        rows += [
            {
                "beta": beta,
                "lambda": alibi,
                "t": t,
                "n": int(n),
                "first token": math.exp(f),
                "S_t(1/n)": math.exp(e),
            }
            for n, f, e in zip(counts, found, expected, strict=True)
        ]
    return Outcome(
        farthest(ratios, 1.0),
        rivals={name: min(values, key=lambda value: abs(value - 1)) for name, values in rivals.items()},
        curves=curves,
        table=rows,
        note="the ratio farthest from 1; of a rival the nearest",
    )


def first_figure(outcome: Outcome) -> Lines:
    """What is known of the first of n tokens."""
    curves = outcome.curves
    labels = [name.removeprefix("theory ") for name in curves if name.startswith("theory ")]
    dots = [
        Series(curves["n"], curves[f"measured {one}"], f"first token, {one}", "points", colour=i)
        for i, one in enumerate(labels)
    ]
    lines = [Series(curves["fine"], curves[f"theory {one}"], "S_t(1/n)", colour=i) for i, one in enumerate(labels)]
    title = "Primacy: what is known of the first token"
    return Lines(title, "number of tokens n", "retrieval", beside(dots, lines), log_x=True, log_y=True)


CLAIMS = (
    Claim(
        "critical-depth",
        "The slope of the retrieval profile at the end of the context changes its sign at t_crit = "
        "2(1-e^-lambda) sum(w a)/sum(w a^2), for beta from 0.5 to 3 and lambda from 0.5 to 2.",
        critical_experiment,
        expected=1.0,
        tolerance=0.005,
        reason=lambda setting: (
            f"extrapolated from {listed(setting.choose(*TOKENS))} tokens; what is left, (a t/n)^2, is below a "
            "thousandth, and differences of the profile add as much"
        ),
        source=PAPER,
        figure=critical_figure,
        theme=THEME,
        unit="recursion / formula",
        rivals={
            "one mode": "Only the first mode counts, t_crit = 2(1-e^-lambda)/a_1.",
            "no slope": "The slope of ALiBi does not enter, t_crit = 2 sum(w a)/sum(w a^2).",
            "first order in the slope": "The slope enters as lambda, not as 1-e^-lambda.",
        },
    ),
    Claim(
        "primacy-diverges",
        lambda setting: (
            "What the last token knows of the first grows without bound with the number of tokens, like the closed "
            f"form at s = 1/n and hence exp(2 sqrt(a t log n)) (n {spanned(setting.choose(*FIRST))}, three cases)."
        ),
        first_experiment,
        expected=1.0,
        tolerance=0.05,
        reason="the place of the first token is 1/n but for a constant, which changes the growth by up to 1/log n "
        "of itself between its ends: 3% from a thousand to ten thousand tokens",
        source=ESTIMATE,
        figure=first_figure,
        theme=THEME,
        unit="growth of log retrieval / predicted",
        rivals={
            "bounded": "The first token is remembered like its neighbours.",
            "like 1/s": "Retrieval of the first token grows in proportion to the number of tokens.",
            "like log(1/s)": "It grows like the logarithm of the number of tokens.",
        },
    ),
)
