"""Claims about the way forward: a token moved by n tokens of context, against infinitely many."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from metastable import sphere
from metastable.drawing import Lines
from metastable.papers.agreement import agreement_figure
from metastable.papers.chaos.sampling import (
    PAPER,
    Fit,
    Mean,
    averaged,
    counts_figure,
    expected_error,
    identity,
    pooled,
    root_curves,
    root_exponent,
    uniform_contexts,
    watched,
)
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.reading import SAMPLING, fine, spanned
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
SPREAD = 0.85
"""Largest relative standard deviation over contexts of the squared distance, averaged over observers: d = 2."""
NEXT_ORDER = 3.0
"""The order 1/n of the mean square, relative: about -3/n for d = 4 and T = 1, the largest."""


@cache
def squares(setting: Setting) -> dict[tuple[int, float, float], list[Mean]]:
    """n E|x^n(T) - x(T)|^2 for all cases and numbers; x(T) = x(0)."""
    found = {}
    for place, (d, beta, t) in enumerate(CASES):
        means = []
        for n, draws in zip(setting.choose(*COUNTS), setting.choose(*DRAWS), strict=True):
            seed, other = setting.seeds(2, place, n)
            observers = sphere.uniform(draws * OBSERVERS, d, seed=other).view(draws, OBSERVERS, d)
            end = watched(identity(d, beta), uniform_contexts(draws, n, d, seed), observers, [0.0, t])
            means.append(Mean.of(n * (end[1] - end[0]).square().sum(2).mean(1)))
        found[d, beta, t] = means
    return found


def scaled(means: list[Mean], factors: np.ndarray) -> list[Mean]:
    """Means and errors times factors."""
    return [Mean(one.value * f, one.error * f) for one, f in zip(means, factors, strict=True)]


def rate_error(setting: Setting) -> float:
    """Standard error of the mean exponent that the number of contexts gives."""
    return expected_error(setting.choose(*COUNTS), setting.choose(*DRAWS), SPREAD, len(above_the_circle()))


def above_the_circle() -> list[tuple[int, float, float]]:
    """The cases in which n^{-1/d} is not n^{-1/2}."""
    return [case for case in CASES if case[0] > 2]


def rate_order(setting: Setting) -> float:
    """What the order 1/n does to the exponent between the first and the last number."""
    counts = setting.choose(*COUNTS)
    return NEXT_ORDER / counts[0] / 2 / math.log(counts[-1] / counts[0])


def rate_experiment(setting: Setting) -> Outcome:
    """Exponent of the rms distance against n, in the mean over spheres."""
    counts = np.array(setting.choose(*COUNTS))
    rows, fits, curves = [], [], {"n": counts.astype(float), "fine": fine(counts)}
    for d, beta, t in above_the_circle():
        means = scaled(squares(setting)[d, beta, t], 1 / counts)
        fits.append(root_exponent(counts, means))
        rows.append({"d": d, "beta": beta, "T": t, "exponent": fits[-1].exponent, "standard error": fits[-1].error})
        law = math.sqrt(context_spread(t, beta, d))
        curves |= root_curves(f"d = {d}, β = {beta:g}, T = {t:g}", means, law, curves["fine"])
    found = averaged(fits)
    general = averaged([Fit(-1 / d, found.error * math.sqrt(len(fits))) for d, _, _ in above_the_circle()])
    return Outcome(
        *found,
        rivals={"n^(-1/d)": general, "n^(-1)": (-1.0, found.error), "no convergence": (0.0, found.error)},
        curves=curves,
        table=rows,
        note="the mean over the cases of the table",
    )


def rate_figure(outcome: Outcome) -> Lines:
    """rms distance against n."""
    title = "A token with n tokens of context, V = B = I; lines: formula"
    return counts_figure(outcome, title, "rms |xⁿ(T) − x(T)|")


def constant_draws(setting: Setting) -> int:
    """Contexts over which the constant is averaged, those of the two largest numbers in all cases."""
    return len(CASES) * sum(setting.choose(*DRAWS)[-2:])


def constant_tolerance(setting: Setting) -> float:
    """Four standard errors, and the order 1/n of the smaller number."""
    return SAMPLING * SPREAD / math.sqrt(constant_draws(setting)) + NEXT_ORDER / setting.choose(*COUNTS)[-2]


def constant_experiment(setting: Setting) -> Outcome:
    """n E|x^n(T) - x(T)|^2 over the formula, in the mean over cases and the two largest n."""
    rows, ratios = [], []
    rivals: dict[str, list[Mean]] = {"context at rest": [], "the circle's": [], "mean of the context": []}
    curves: dict[str, np.ndarray] = {}
    for (d, beta, t), means in squares(setting).items():
        formula = context_spread(t, beta, d)
        resting = sampling_error(d, beta, 1) ** 2 * t**2
        first = d * math.expm1(t * growth_rate(1, beta, d)) ** 2 / (d - 1)
        value, error = np.array(means[-2:]).T
        label = f"d = {d}, β = {beta:g}, T = {t:g}"
        curves |= {f"measured {label}": value, f"error {label}": error, f"expected {label}": np.full(2, formula)}
        for n, mean in zip(setting.choose(*COUNTS)[-2:], means[-2:], strict=True):
            ratios += scaled([mean], np.array([1 / formula]))
            others = (resting, context_spread(t, beta, 2), first)
            for name, other in zip(rivals, others, strict=True):
                rivals[name] += scaled([mean], np.array([1 / other]))
            rows.append({"d": d, "beta": beta, "T": t, "n": n, "n E|.|^2": mean.value, "formula": formula})
    return Outcome(
        *pooled(ratios),
        rivals={name: pooled(values) for name, values in rivals.items()},
        curves=curves,
        table=rows,
        note="the mean over the cases of the table",
    )


def constant_figure(outcome: Outcome) -> Lines:
    """Measured against predicted constants."""
    title = "The constant of n^(−1/2), V = B = I"
    return agreement_figure(outcome, title, "Σ N_l (e^(σ_l T) − 1)²/(l(l+d−2))", "n E|xⁿ(T) − x(T)|²")


CLAIMS = (
    Claim(
        "context-rate",
        lambda setting: (
            "A token moved by n iid tokens of context is n^(-1/2) away from where infinitely many bring it, not "
            f"n^(-1/d): uniform context on S^2, S^3 and S^4, n {spanned(setting.choose(*COUNTS))}."
        ),
        rate_experiment,
        expected=-0.5,
        tolerance=lambda setting: SAMPLING * rate_error(setting) + rate_order(setting),
        reason=lambda setting: (
            f"{SAMPLING:g} standard errors of the mean exponent, {rate_error(setting):.2g} each, and "
            f"{rate_order(setting):.2g} for the order 1/n"
        ),
        source=PAPER,
        figure=rate_figure,
        theme=THEME,
        unit="exponent of n",
        effort=3,
        rivals={
            "n^(-1/d)": "The rate is that of general contextual flow maps.",
            "n^(-1)": "The rate is that of a deterministic context.",
            "no convergence": "A finite context keeps a distance from the infinite one.",
        },
    ),
    Claim(
        "context-constant",
        "n E|x^n(T) - x(T)|^2 tends to sum_l N_l (e^(sigma_l T) - 1)^2/(l(l+d-2)), N_l harmonics of degree l, for "
        "six (d, beta, T) with d from 2 to 5.",
        constant_experiment,
        expected=1.0,
        tolerance=constant_tolerance,
        reason=lambda setting: (
            f"{SAMPLING:g} standard errors of the mean over {constant_draws(setting)} contexts, and "
            f"{NEXT_ORDER:g}/n for the next order"
        ),
        source=ESTIMATE,
        figure=constant_figure,
        theme=THEME,
        unit="measured / formula, in the mean",
        effort=3,
        rivals={
            "context at rest": "The noise of the context at the start moves the token, T times the velocity there.",
            "the circle's": "The constant is that of the circle in every dimension.",
            "mean of the context": "Only the mean of the context matters, its mode of degree one.",
        },
    ),
)
