"""Claims about two tokens over a short time: the drift and the variance rate of g = <x, y> (Y4)."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from metastable.drawing import Lines, Series
from metastable.flows import CommonNoise
from metastable.papers.claim import Outcome, Setting, as_rows
from metastable.papers.common_noise.pairs import distance, mean_and_error, pairs
from metastable.papers.own_error import OwnError, with_systematic
from metastable.papers.reading import beside
from metastable.papers.verdict import ESTIMATE
from metastable.solve import solve
from metastable.theory import TwoPointMotion

THEME = "Two tokens"
KINDS = (("linear", 3), ("relu", 5), ("tanh", 4), ("gelu", 8), ("constant", 4))
"""Activations, each in a dimension of its own."""
METHOD = "euler-maruyama"
OVERLAPS = (-0.6, 0.0, 0.4, 0.8)
TIME = 0.003
"""A short time, in units of 1/kappa(1): one step of the method. The variance is extrapolated from half of it."""
SAMPLES = (10_000, 60_000, 6000)
"""Pairs for every case in a quick, full and small run."""
EXTRAPOLATED = math.sqrt(3)
"""Error of the variance that is extrapolated from t/2 and t over that at t, whose correlation is 1/2."""


class Moments(NamedTuple):
    """Rates of the mean and variance of g by case, in units of kappa(1), with their standard errors."""

    drift: np.ndarray
    drift_error: np.ndarray
    variance: np.ndarray
    variance_error: np.ndarray
    one_step: np.ndarray
    """The rate of the variance before it is extrapolated."""


@cache
def moments(setting: Setting) -> Moments:
    """Measured on pairs from every overlap."""
    rows = []
    for number, (activation, d) in enumerate(KINDS):
        one = TwoPointMotion(activation, d).covariance.one
        for place, g in enumerate(OVERLAPS):
            start = pairs(setting.choose(*SAMPLES), d, 1 - g)
            flow, t, seed = CommonNoise(activation=activation), TIME / one, setting.seeds(1, number, place)[0]
            whole, half = (
                1 - g - distance(solve(flow, start, h, step=h, seed=seed, method=METHOD).end.points)
                for h in (t, t / 2)
            )
            mean, error = mean_and_error(whole / TIME)
            plain = float(whole.var(ddof=1)) / TIME
            square = 4 * float(half.var(ddof=1)) / TIME - plain
            rows.append((mean, error, square, EXTRAPOLATED * square * math.sqrt(2 / len(whole)), plain))
    return Moments(*np.array(rows).T)


def cases() -> tuple[list[TwoPointMotion], np.ndarray]:
    """Every kind at every overlap."""
    kinds = [TwoPointMotion(activation, d) for activation, d in KINDS]
    return [one for one in kinds for _ in OVERLAPS], np.tile(OVERLAPS, len(kinds))


def fitted(measured: np.ndarray, error: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """The factor between measurement and prediction over all cases by weighted least squares, and its error."""
    weight = predicted / error**2
    return float(weight @ measured / (weight @ predicted)), 1 / math.sqrt(float(weight @ predicted))


def step_change(motion: TwoPointMotion, g: float) -> float:
    """c of E g_h = g + b h + c h^2 after one step of the method, in units of kappa(1)^2: by Isserlis' theorem for
    the tangent parts v, w of the noise in <x + v, y + w>/(|x + v||y + w|).
    """
    d, kappa = motion.d, float(motion.covariance(g)) / motion.covariance.one
    both = d - 2 + g**2
    return g * (0.75 * (d**2 - 1) + ((d - 1) ** 2 + 2 * kappa**2 * both) / 4) - kappa * both * (d + 1)


def drift_experiment(setting: Setting) -> Outcome:
    """Factor between the measured drift and b(g)."""
    found, (motions, g) = moments(setting), cases()
    one, d = np.array([m.covariance.one for m in motions]), np.array([m.d for m in motions])
    kappa = np.array([float(m.covariance(x)) for m, x in zip(motions, g, strict=True)])
    predicted = np.array([float(m.drift(x)) for m, x in zip(motions, g, strict=True)]) / one
    others = {
        "no Itô term": (d - 2 + g**2) * kappa / one,
        "independent noise": -(d - 1) * g,
        "without curvature": d * (kappa / one - g),
    }
    factor, error = fitted(found.drift, found.drift_error, predicted)
    change = TIME * np.array([step_change(m, x) for m, x in zip(motions, g, strict=True)])
    outcome = Outcome(
        factor,
        error,
        rivals={name: fitted(found.drift, found.drift_error, other) for name, other in others.items()},
        curves=_curves(found.drift, found.drift_error, "drift"),
        table=as_rows(
            {
                "activation": [m.covariance.name for m in motions],
                "d": d,
                "g": g,
                "b(g)/κ(1)": predicted,
                "measured": found.drift,
                "standard error": found.drift_error,
            }
        ),
    )
    return with_systematic(outcome, fitted(change, found.drift_error, predicted)[0])


def variance_experiment(setting: Setting) -> Outcome:
    """Factor between the measured variance rate and a(g)."""
    found, (motions, g) = moments(setting), cases()
    one = np.array([m.covariance.one for m in motions])
    predicted = np.array([float(m.variance(x)) for m, x in zip(motions, g, strict=True)]) / one
    factor, error = fitted(found.variance, found.variance_error, predicted)
    others = {"independent noise": 2 * (1 - g**2), "one token moves": (1 - g**2)}
    first_order = factor - fitted(found.one_step, found.variance_error, predicted)[0]
    outcome = Outcome(
        factor,
        error,
        rivals={name: fitted(found.variance, found.variance_error, other) for name, other in others.items()},
        curves=_curves(found.variance, found.variance_error, "variance"),
        table=as_rows({"g": g, "a(g)/κ(1)": predicted, "measured": found.variance}),
    )
    return with_systematic(outcome, first_order**2)


def _curves(measured: np.ndarray, error: np.ndarray, name: str) -> dict[str, np.ndarray]:
    """Measurements by kind, and the prediction on a fine grid."""
    grid = np.linspace(-0.95, 0.99, 150)
    curves = {"g": np.array(OVERLAPS), "fine": grid}
    for number, (activation, d) in enumerate(KINDS):
        motion, part = TwoPointMotion(activation, d), slice(number * len(OVERLAPS), (number + 1) * len(OVERLAPS))
        predicted = motion.drift(grid) if name == "drift" else motion.variance(grid)
        label = f"{activation}, d = {d}"
        curves |= {f"tokens {label}": measured[part], f"error {label}": error[part]}
        curves[f"theory {label}"] = predicted / motion.covariance.one
    return curves


def moments_figure(outcome: Outcome, y_label: str, title: str) -> Lines:
    """Dots with error bars on the lines of theory."""
    curves = outcome.curves
    labels = [f"{activation}, d = {d}" for activation, d in KINDS]
    dots = [
        Series(curves["g"], curves[f"tokens {one}"], one, "points", colour=i, error=curves[f"error {one}"])
        for i, one in enumerate(labels)
    ]
    lines = [
        Series(curves["fine"], curves[f"theory {one}"], f"theory, {one}", colour=i) for i, one in enumerate(labels)
    ]
    return Lines(title, "overlap g of two tokens", y_label, beside(dots, lines))


def drift_figure(outcome: Outcome) -> Lines:
    """The drift."""
    return moments_figure(outcome, "drift of g / κ(1)", "Drift of the overlap of two tokens under a common noise")


def variance_figure(outcome: Outcome) -> Lines:
    """The variance rate."""
    title = "Variance rate of the overlap of two tokens under a common noise"
    return moments_figure(outcome, "variance rate of g / κ(1)", title)


CLAIMS = (
    OwnError(
        "two-point-drift",
        "Under a common noise of covariance κ the overlap of two tokens drifts with "
        "b(g) = (d−2+g²)κ(g) − (d−1)κ(1)g, for five activations in dimensions from 3 to 8 and g from −0.6 to 0.8.",
        drift_experiment,
        expected=1.0,
        reason=f"the second order of one step of {TIME:g}/κ(1), which is known",
        source=ESTIMATE,
        figure=drift_figure,
        theme=THEME,
        unit="measured / predicted",
        effort=3,
        rivals={
            "no Itô term": "Without the loss −(d−1)κ(1)g that keeps the tokens on the sphere.",
            "independent noise": "With a noise of its own for every token.",
            "without curvature": "As in flat space: d(κ(g) − κ(1)g).",
        },
    ),
    OwnError(
        "two-point-variance",
        "The variance of the overlap grows with the rate a(g) = 2(1−g²)(κ(1) − gκ(g)), in the same cases.",
        variance_experiment,
        expected=1.0,
        reason="the second order in the time, the square of what the first changes",
        source=ESTIMATE,
        figure=variance_figure,
        theme=THEME,
        unit="measured / predicted",
        effort=3,
        rivals={
            "independent noise": "With a noise of its own for every token: 2κ(1)(1−g²).",
            "one token moves": "Only one of the tokens feels the noise: κ(1)(1−g²).",
        },
    ),
)
