"""Claims about the way forward: a token moved by n tokens of context, against infinitely many."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from metastable import sphere
from metastable.drawing import Lines
from metastable.papers.agreement import agreement_figure
from metastable.papers.chaos.sampling import (
    BELOW,
    NEXT_ORDER,
    PAPER,
    Mean,
    counts_figure,
    identity,
    next_orders,
    pooled,
    rate_outcome,
    root_curves,
    root_exponent,
    uniform_contexts,
    watched,
    with_fewer,
)
from metastable.papers.claim import Outcome, Setting
from metastable.papers.own_error import OwnError, with_systematic
from metastable.papers.reading import fine, spanned
from metastable.papers.verdict import ESTIMATE
from metastable.theory import context_spread, growth_rate, sampling_error

THEME = "Forward"
CASES = ((2, 2.0, 1.0), (2, 8.0, 0.6), (3, 2.0, 1.0), (3, 6.0, 0.5), (4, 2.0, 1.0), (5, 3.0, 0.7))
"""(d, beta, T)."""
COUNTS = (32, 96, 256), (32, 64, 128, 256, 512, 1024), (32, 80, 200)
DRAWS = (400, 260, 160), (2000, 2000, 1500, 1000, 600, 300), (320, 200, 130)
"""Tokens of context, and contexts of each number."""
OBSERVERS = 8
"""Observers of every context: the field of one context is correlated all over the sphere, and more of them say no
more."""


@cache
def squares(setting: Setting) -> dict[tuple[int, float, float], list[Mean]]:
    """n E|x^n(T) - x(T)|^2 for all cases and numbers, fewer ones first; x(T) = x(0)."""
    found = {}
    for place, (d, beta, t) in enumerate(CASES):
        means = []
        for n, draws in sizes(setting):
            seed, other = setting.seeds(2, place, n)
            observers = sphere.uniform(draws * OBSERVERS, d, seed=other).view(draws, OBSERVERS, d)
            end = watched(identity(d, beta), uniform_contexts(draws, n, d, seed), observers, [0.0, t])
            means.append(Mean.of(n * (end[1] - end[0]).square().sum(2).mean(1)))
        found[d, beta, t] = means
    return found


def sizes(setting: Setting) -> list[tuple[int, int]]:
    """Numbers of tokens and of contexts."""
    return with_fewer(setting.choose(*COUNTS), setting.choose(*DRAWS))


def scaled(means: list[Mean], factors: np.ndarray) -> list[Mean]:
    """Means and errors times factors."""
    return [Mean(one.value * f, one.error * f) for one, f in zip(means, factors, strict=True)]


def above_the_circle() -> list[tuple[int, float, float]]:
    """The cases in which n^{-1/d} is not n^{-1/2}."""
    return [case for case in CASES if case[0] > 2]


def rate_experiment(setting: Setting) -> Outcome:
    """Exponent of the rms distance against n, in the mean over spheres."""
    counts = np.array(setting.choose(*COUNTS))
    rows, fits, curves = [], [], {"n": counts.astype(float), "fine": fine(counts)}
    for d, beta, t in above_the_circle():
        numbers = np.array(sizes(setting)).T[0]
        means = scaled(squares(setting)[d, beta, t], 1 / numbers)
        fits.append(root_exponent(numbers, means, len(BELOW)))
        rows.append({"d": d, "beta": beta, "T": t, "exponent": fits[-1].exponent, "standard error": fits[-1].error})
        law = math.sqrt(context_spread(t, beta, d))
        curves |= root_curves(f"d = {d}, β = {beta:g}, T = {t:g}", means[-len(counts) :], law, curves["fine"])
    return rate_outcome(
        fits,
        {"n^(-1/d)": [-1 / d for d, _, _ in above_the_circle()], "n^(-1)": -1.0, "no convergence": 0.0},
        curves=curves,
        table=rows,
        note="the mean over the cases of the table",
    )


def rate_figure(outcome: Outcome) -> Lines:
    """rms distance against n."""
    title = "A token with n tokens of context, V = B = I; lines: formula"
    return counts_figure(outcome, title, "rms |xⁿ(T) − x(T)|")


def constant_experiment(setting: Setting) -> Outcome:
    """n E|x^n(T) - x(T)|^2 over the formula, in the mean over cases and the two largest n."""
    rows, ratios, orders = [], [], []
    rivals: dict[str, list[Mean]] = {"context at rest": [], "the circle's": [], "mean of the context": []}
    curves: dict[str, np.ndarray] = {}
    for (d, beta, t), means in squares(setting).items():
        formula = context_spread(t, beta, d)
        resting = sampling_error(d, beta, 1) ** 2 * t**2
        first = d * math.expm1(t * growth_rate(1, beta, d)) ** 2 / (d - 1)
        value, error = np.array(means[-2:]).T
        label = f"d = {d}, β = {beta:g}, T = {t:g}"
        numbers = np.array(sizes(setting)).T[0]
        orders += next_orders(numbers, scaled(means, 1 / numbers))[-2:].tolist()
        curves |= {f"measured {label}": value, f"error {label}": error, f"expected {label}": np.full(2, formula)}
        for n, mean in zip(setting.choose(*COUNTS)[-2:], means[-2:], strict=True):
            ratios += scaled([mean], np.array([1 / formula]))
            others = (resting, context_spread(t, beta, 2), first)
            for name, other in zip(rivals, others, strict=True):
                rivals[name] += scaled([mean], np.array([1 / other]))
            rows.append({"d": d, "beta": beta, "T": t, "n": n, "n E|.|^2": mean.value, "formula": formula})
    outcome = Outcome(
        *pooled(ratios),
        rivals={name: pooled(values) for name, values in rivals.items()},
        curves=curves,
        table=rows,
        note="the mean over the cases of the table",
    )
    return with_systematic(outcome, float(np.mean(orders)))


def constant_figure(outcome: Outcome) -> Lines:
    """Measured against predicted constants."""
    title = "The constant of n^(−1/2), V = B = I"
    return agreement_figure(outcome, title, "Σ N_l (e^(σ_l T) − 1)²/(l(l+d−2))", "n E|xⁿ(T) − x(T)|²")


CLAIMS = (
    OwnError(
        "context-rate",
        lambda setting: (
            "A token moved by n iid tokens of context is n^(-1/2) away from where infinitely many bring it, not "
            f"n^(-1/d): uniform context on S^2, S^3 and S^4, n {spanned(setting.choose(*COUNTS))}."
        ),
        rate_experiment,
        expected=-0.5,
        reason=NEXT_ORDER,
        source=PAPER,
        figure=rate_figure,
        theme=THEME,
        unit="exponent of n",
        effort=7,
        rivals={
            "n^(-1/d)": "The rate is that of general contextual flow maps.",
            "n^(-1)": "The rate is that of a deterministic context.",
            "no convergence": "A finite context keeps a distance from the infinite one.",
        },
    ),
    OwnError(
        "context-constant",
        "n E|x^n(T) - x(T)|^2 tends to sum_l N_l (e^(sigma_l T) - 1)^2/(l(l+d-2)), N_l harmonics of degree l, for "
        "six (d, beta, T) with d from 2 to 5.",
        constant_experiment,
        expected=1.0,
        reason=NEXT_ORDER,
        source=ESTIMATE,
        figure=constant_figure,
        theme=THEME,
        unit="measured / formula, in the mean",
        effort=7,
        rivals={
            "context at rest": "The noise of the context at the start moves the token, T times the velocity there.",
            "the circle's": "The constant is that of the circle in every dimension.",
            "mean of the context": "Only the mean of the context matters, its mode of degree one.",
        },
    ),
)
