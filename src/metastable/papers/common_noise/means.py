"""The claim about the mean distance of two tokens, which may grow although most pairs come together (Y2)."""

from __future__ import annotations

import math

import numpy as np

from metastable.drawing import Lines, Series
from metastable.flows import CommonNoise
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.common_noise.exponents import APART, METHOD, STEPS_PER_DIMENSION, THEME
from metastable.papers.common_noise.pairs import distance, extrapolated, mean_and_error, pairs
from metastable.papers.reading import SAMPLING, farthest
from metastable.papers.verdict import ESTIMATE
from metastable.solve import solve
from metastable.theory import TwoPointMotion

MEANS = (("linear", 4), ("relu", 5), ("tanh", 6), ("sigmoid", 6))
MEAN_TIME = 0.25
"""Time in units of 1/kappa(1) in which the mean is still that of typical pairs."""
MEAN_SAMPLES = (4000, 40_000, 1500)


def mean_experiment(setting: Setting) -> Outcome:
    """E[1 - g] over its prediction, the value of four cases that is farthest from one."""
    samples = setting.choose(*MEAN_SAMPLES)
    ratios, errors, rows, typical, means = [], [], [], [], []
    for k, (activation, d) in enumerate(MEANS):
        motion = TwoPointMotion(activation, d)
        t = MEAN_TIME / motion.covariance.one
        step = t / (STEPS_PER_DIMENSION * d)
        seed = setting.seeds(1, 30, k)[0]
        found = extrapolated(
            CommonNoise(activation=activation), pairs(samples, d, APART), t, step, seed, distance, METHOD
        )
        mean, error = mean_and_error(found.values / APART)
        predicted = math.exp(motion.growth * t)
        ratios.append(mean / predicted)
        errors.append(error / predicted)
        means.append(mean)
        typical.append(mean / math.exp(motion.lyapunov * t))
        rows.append(
            {
                "activation": activation,
                "d": d,
                "E[1−g_t]/(1−g_0)": mean,
                "predicted": predicted,
                "exp of the mean of log": math.exp(motion.lyapunov * t),
            }
        )
    worst = int(np.argmax(np.abs(np.array(ratios) - 1)))
    return Outcome(
        ratios[worst],
        max(errors),
        rivals={
            "as log(1−g)": (farthest(typical, 1.0), max(errors)),
            "no change": (farthest(means, 1.0), max(errors)),
        },
        curves=mean_curves(setting),
        table=rows,
    )


def mean_curves(setting: Setting) -> dict[str, np.ndarray]:
    """Mean and median of 1 - g over time for ReLU, d = 5."""
    start, times = pairs(setting.choose(1000, 4000, 200), 5, 1e-4), np.linspace(0, 6, 25)
    path = solve(CommonNoise(activation="relu"), start, 6.0, times=times, step=0.05, seed=setting.seeds(1, 31)[0])
    apart = distance(path.points)
    return {"t": times, "mean": apart.mean(1), "median": np.median(apart, axis=1)}


def mean_figure(outcome: Outcome) -> Lines:
    """The mean rises, the median falls."""
    curves = outcome.curves
    t, fine = curves["t"], np.linspace(0, 6, 100)
    motion = TwoPointMotion("relu", 5)
    series = [
        Series(t, curves["mean"], "mean of 1 − g", "points", colour=0),
        Series(fine[:45], 1e-4 * np.exp(motion.growth * fine[:45]), "exp(t)", colour=0),
        Series(t, curves["median"], "median of 1 − g", "points", colour=1),
        Series(fine, 1e-4 * np.exp(motion.lyapunov * fine), "exp(−t)", colour=1),
    ]
    title = "Mean and median of the distance of two tokens, ReLU noise, d = 5"
    return Lines(title, "time t", "1 − g", series, log_y=True)


def mean_error(setting: Setting) -> float:
    """Relative standard error of a mean of e^{N(0, 8 MEAN_TIME)}, twice as large by the extrapolation."""
    return 2 * math.sqrt(math.expm1(8 * MEAN_TIME) / setting.choose(*MEAN_SAMPLES))


CLAIMS = (
    Claim(
        "mean-grows",
        "Near consensus E[1 − g] changes with the rate (d−1)κ'(1) − (d−3)κ(1), which is positive for linear, ReLU "
        "and tanh activations although log(1 − g) falls on almost every path; for the sigmoid both fall.",
        mean_experiment,
        expected=1.0,
        tolerance=lambda setting: SAMPLING * mean_error(setting),
        reason=lambda setting: (
            f"{SAMPLING:g} standard errors of the widest of four log-normal means, {mean_error(setting):.2g} each "
            f"from {setting.choose(*MEAN_SAMPLES)} pairs"
        ),
        source=ESTIMATE,
        figure=mean_figure,
        theme=THEME,
        unit="measured / predicted mean",
        effort=3,
        rivals={
            "as log(1−g)": "The mean follows the typical path, with the rate Λ.",
            "no change": "The mean stays as it is.",
        },
    ),
)
