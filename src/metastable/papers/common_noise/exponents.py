"""Claims about close tokens: the Lyapunov exponent and the dimensions in which noise synchronises."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from torch import Tensor

from metastable.drawing import Lines, Series
from metastable.flows import CommonNoise
from metastable.papers.claim import Outcome, Setting, as_rows
from metastable.papers.common_noise.pairs import LEFT_BY_STEPS, distance, extrapolated, mean_and_error, pairs
from metastable.papers.own_error import OwnError, with_systematic
from metastable.papers.reading import beside
from metastable.papers.verdict import ESTIMATE
from metastable.theory import TwoPointMotion

THEME = "Synchronisation by noise"
APART = 1e-7
"""1 - g at the start: in the time of the runs neither of order one nor lost in rounding."""
METHOD = "euler-maruyama"
EXPONENTS = (
    ("linear", 3),
    ("linear", 5),
    ("relu", 3),
    ("relu", 8),
    ("tanh", 5),
    ("gelu", 6),
    ("constant", 3),
    ("constant", 6),
)
SAMPLES = (3000, 30_000, 700)
"""Pairs of every case in a quick, full and small run."""
TIME = 0.6
"""Time in units of 1/kappa(1)."""
STEPS_PER_DIMENSION = 6
"""Steps of the middle run per dimension: h d kappa(1) = TIME/6, of whose square the extrapolation leaves a part."""
ALMOST = ("erf", "tanh", "sin")
"""Activations with kappa'(1) > kappa(1) by 18 to 31%: beyond some dimension they do not synchronise."""
DIMENSIONS = (4, 10, 16)
DIMENSION_SAMPLES = (800, 6000, 400)


class Exponent(NamedTuple):
    """Rate of the mean of log(1 - g), in units of kappa(1), its standard error, and what the steps leave in it."""

    rate: float
    error: float
    left: float


def exponent(activation: str, d: int, samples: int, seed: int) -> Exponent:
    """Measured from almost consensus."""
    t = TIME / TwoPointMotion(activation, d).covariance.one
    step = t / (STEPS_PER_DIMENSION * d)
    found = extrapolated(
        CommonNoise(activation=activation), pairs(samples, d, APART), t, step, seed, log_distance, METHOD
    )
    mean, error = mean_and_error(found.values)
    return Exponent((mean - math.log(APART)) / TIME, error / TIME, float(found.left.mean()) / TIME)


def log_distance(points: Tensor) -> np.ndarray:
    """log(1 - g)."""
    return np.asarray(np.log(distance(points)))


def lyapunov_experiment(setting: Setting) -> Outcome:
    """rms over cases of measured less predicted exponent, in units of kappa(1)."""
    samples = setting.choose(*SAMPLES)
    motions = [TwoPointMotion(activation, d) for activation, d in EXPONENTS]
    found, error, left = np.array(
        [exponent(*case, samples, setting.seeds(1, 10, k)[0]) for k, case in enumerate(EXPONENTS)]
    ).T
    one = np.array([m.covariance.one for m in motions])
    predicted = np.array([m.lyapunov for m in motions]) / one
    others = {
        "rate of the mean": np.array([m.growth for m in motions]) / one,
        "rate of the distance": predicted / 2,
        "κ(1) alone": np.array([1.0 - m.d for m in motions]),
    }
    noise = float(np.sqrt(np.mean(error**2))) / math.sqrt(2 * len(found))
    outcome = Outcome(
        rms(found - predicted),
        noise,
        rivals={name: (rms(found - other), noise) for name, other in others.items()},
        curves={"predicted": predicted, "measured": found, "error": error},
        table=as_rows(
            {
                "activation": [activation for activation, _ in EXPONENTS],
                "d": [d for _, d in EXPONENTS],
                "Λ/κ(1)": predicted,
                "measured": found,
                "standard error": error,
                "left by the steps": left,
                "growth of the mean/κ(1)": others["rate of the mean"],
            }
        ),
    )
    return with_systematic(outcome, math.hypot(rms(error), rms(left)))


def rms(values: np.ndarray) -> float:
    """Root of the mean square."""
    return float(np.sqrt(np.mean(values**2)))


def lyapunov_figure(outcome: Outcome) -> Lines:
    """Measured against predicted."""
    curves = outcome.curves
    ends = np.array([curves["predicted"].min() - 0.3, curves["predicted"].max() + 0.3])
    series = [
        Series(curves["predicted"], curves["measured"], "pairs", "points", colour=0, error=curves["error"]),
        Series(ends, ends, "measured = predicted", "dashed", colour=0),
    ]
    title = "Exponent of 1 − g near consensus, five activations in dimensions 3 to 8"
    return Lines(title, "((d−3)κ'(1) − (d−1)κ(1)) / κ(1)", "measured exponent / κ(1)", series)


def dimension_experiment(setting: Setting) -> Outcome:
    """The dimension at which the measured exponent changes sign, over the predicted one."""
    samples = setting.choose(*DIMENSION_SAMPLES)
    ratios, errors, shifts, rows = [], [], [], []
    curves: dict[str, np.ndarray] = {"d": np.array(DIMENSIONS, dtype=float), "fine": np.linspace(3, 17, 50)}
    others: dict[str, list[float]] = {"in every dimension": [], "κ'(1) < κ(1)": [], "the mean": []}
    for k, activation in enumerate(ALMOST):
        found, error, left = np.array(
            [exponent(activation, d, samples, setting.seeds(1, 20, k, d)[0]) for d in DIMENSIONS]
        ).T
        kappa = TwoPointMotion(activation, 3).covariance
        ratio = kappa.slope / kappa.one
        expected = (3 * ratio - 1) / (ratio - 1)
        crossing, noise = root(curves["d"], found, error)
        ratios.append(crossing / expected)
        errors.append(noise / expected)
        shifts.append((crossing - root(curves["d"], found - left, error)[0]) / expected)
        rows.append(
            {"activation": activation, "predicted": expected, "measured": crossing, "standard error": noise}
        )
        others["in every dimension"].append(0.0)
        others["κ'(1) < κ(1)"].append(crossing / 3.0)
        others["the mean"].append(crossing / ((ratio - 3) / (ratio - 1)))
        curves |= {f"tokens {activation}": found, f"error {activation}": error}
        curves[f"theory {activation}"] = (curves["fine"] - 3) * ratio - (curves["fine"] - 1)
    uncertainty = math.hypot(*errors) / len(errors)
    outcome = Outcome(
        float(np.mean(ratios)),
        uncertainty,
        rivals={name: (float(np.mean(values)), uncertainty) for name, values in others.items()},
        curves=curves,
        table=rows,
    )
    return with_systematic(outcome, float(np.mean(shifts)))


def root(x: np.ndarray, y: np.ndarray, error: np.ndarray) -> tuple[float, float]:
    """Where a line through values with these standard errors is zero, and the standard error of that place."""
    centre = x - x.mean()
    slope, level = np.polyfit(centre, y, 1)
    place = -level / slope
    weights = 1 / len(x) + place * centre / (centre @ centre)
    return float(x.mean() + place), float(np.sqrt(((weights * error) ** 2).sum()) / abs(slope))


def dimension_figure(outcome: Outcome) -> Lines:
    """Exponents against the dimension."""
    curves = outcome.curves
    dots = [
        Series(curves["d"], curves[f"tokens {name}"], name, "points", colour=i, error=curves[f"error {name}"])
        for i, name in enumerate(ALMOST)
    ]
    lines = [
        Series(curves["fine"], curves[f"theory {name}"], f"theory, {name}", colour=i)
        for i, name in enumerate(ALMOST)
    ]
    title = "Exponent of 1 − g against the dimension: below zero tokens synchronise"
    return Lines(title, "dimension d", "exponent / κ(1)", beside(dots, lines))


CLAIMS = (
    OwnError(
        "lyapunov-exponent",
        "Near consensus log(1 − g) changes with the rate Λ = (d−3)κ'(1) − (d−1)κ(1), for linear, ReLU, tanh, GELU "
        "and constant activations in dimensions from 3 to 8.",
        lyapunov_experiment,
        expected=0.0,
        reason=f"what is expected of the rms: standard errors of the exponents, and {LEFT_BY_STEPS}",
        source=ESTIMATE,
        figure=lyapunov_figure,
        relation="at most",
        theme=THEME,
        unit="rms of measured − predicted, in κ(1)",
        effort=4,
        rivals={
            "rate of the mean": "It has the rate of E[1 − g], (d−1)κ'(1) − (d−3)κ(1).",
            "rate of the distance": "It has the rate Λ/2, which is that of |x − y|.",
            "κ(1) alone": "It has the rate −(d−1)κ(1), whatever the slope of κ.",
        },
    ),
    OwnError(
        "synchronisation-dimension",
        "Noise alone synchronises iff κ'(1)/κ(1) < (d−1)/(d−3): tanh up to d = 14, erf up to 11, sin up to 9 (the "
        "dimension at which measured exponents for d from 4 to 16 change sign).",
        dimension_experiment,
        expected=1.0,
        reason=LEFT_BY_STEPS,
        source=ESTIMATE,
        figure=dimension_figure,
        theme=THEME,
        unit="measured / predicted dimension",
        effort=5,
        rivals={
            "in every dimension": "As for ReLU: the exponent never changes sign.",
            "κ'(1) < κ(1)": "Only if kappa is steeper than itself, in up to three dimensions.",
            "the mean": "Where the rate of the mean changes sign.",
        },
    ),
)
