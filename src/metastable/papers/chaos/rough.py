"""The contrast: a context that is read through its nearest token, by hardmax attention."""

from __future__ import annotations

import math

import numpy as np
import torch

from metastable import sphere
from metastable.attention.hardmax import hardmax
from metastable.drawing import Lines
from metastable.papers.chaos.sampling import Mean, counts_figure, root_exponent, uniform_contexts
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.reading import SAMPLING, farthest, fine, spanned
from metastable.papers.verdict import ESTIMATE

THEME = "Forward"
DIMENSIONS = (2, 4, 5, 6)
"""On S^2 the rate n^{-1/(d-1)} is n^{-1/2}, that of smooth attention, and nothing is told apart."""
COUNTS = (128, 512, 2048), (128, 512, 2048, 8192)
DRAWS = 300, 2000, 220
"""Tokens of context, and contexts of each number."""
OBSERVERS, TIME = 16, 1.0
SPREAD = 0.56
"""Relative standard deviation over contexts of the squared distance, averaged over observers, times d-1: that of
16 squares of exponential variables for d = 2, less for larger d."""
CURVATURE = 0.03
"""The order n^{-2/(d-1)} of the sphere's curvature in (d-1) times the exponent: 6 n^{-2/5}/ln(2048/128) of it is
0.03 for d = 6 at the smallest n."""


def distances(n: int, d: int, draws: int, seed: int, other: int) -> np.ndarray:
    """|x^n(T) - x(T)|^2 of observers of hardmax attention, V = B = I, in the mean over those of each context.

    The context rests, since every token of it attends itself, and so does an observer of infinitely many; one of n
    goes to its nearest token, tan(angle/2) = e^{-T} tan(angle_0/2).
    """
    observers = sphere.uniform(draws * OBSERVERS, d, seed=other).view(draws, OBSERVERS, d)
    contexts = uniform_contexts(draws, n, d, seed)
    score = torch.stack([hardmax(x, keys)[1] for x, keys in zip(observers, contexts, strict=True)])
    angle = torch.arccos(score.clamp(-1.0, 1.0))
    left = 2 * torch.arctan(math.exp(-TIME) * torch.tan(angle / 2))
    return (2 * torch.sin((angle - left) / 2)).square().mean(1).numpy()


def limit_constant(d: int) -> float:
    """lim n^{1/(d-1)} rms: (1 - e^{-T}) sqrt(Gamma(1 + 2/(d-1)))/c^{1/(d-1)}, c a^{d-1} a cap of angle a (X3)."""
    cap = math.gamma(d / 2) / (math.sqrt(math.pi) * (d - 1) * math.gamma((d - 1) / 2))
    return -math.expm1(-TIME) * math.sqrt(math.gamma(1 + 2 / (d - 1))) / cap ** (1 / (d - 1))


def rate_error(setting: Setting) -> float:
    """Standard error of (d-1) times the exponent, from the first and the last number."""
    counts = setting.choose(*COUNTS)
    relative = SPREAD / math.sqrt(setting.choose(*DRAWS)) / 2
    return math.sqrt(2) * relative / math.log(counts[-1] / counts[0])


def rough_experiment(setting: Setting) -> Outcome:
    """(d-1) times the exponent of n, of all dimensions the one farthest from -1."""
    counts, draws = np.array(setting.choose(*COUNTS)), setting.choose(*DRAWS)
    rows, found, errors = [], [], []
    curves = {"n": counts.astype(float), "fine": fine(counts)}
    for d in DIMENSIONS:
        means = [Mean.of(distances(int(n), d, draws, *setting.seeds(2, 20, d, int(n)))) for n in counts]
        fit = root_exponent(counts, means)
        found.append(fit.exponent * (d - 1))
        errors.append(fit.error * (d - 1))
        value, error = np.array(means).T
        curves |= {f"measured d = {d}": np.sqrt(value), f"error d = {d}": error / np.sqrt(value) / 2}
        curves[f"theory d = {d}"] = limit_constant(d) * curves["fine"] ** (-1 / (d - 1))
        constant = float(np.sqrt(value[-1]) * counts[-1] ** (1 / (d - 1)))
        rows.append({"d": d, "exponent": fit.exponent, "n^(1/(d-1)) rms": constant, "its limit": limit_constant(d)})
    smooth = [-(d - 1) / 2 for d in DIMENSIONS]
    general = [-(d - 1) / d for d in DIMENSIONS]
    return Outcome(
        farthest(found, -1.0),
        max(errors),
        rivals={
            "n^(-1/2)": min(smooth, key=lambda value: abs(value + 1)),
            "n^(-1/d)": min(general, key=lambda value: abs(value + 1)),
        },
        curves=curves,
        table=rows,
        note="the dimension farthest from -1; of a rival the nearest",
    )


def rough_figure(outcome: Outcome) -> Lines:
    """rms distance against n."""
    return counts_figure(outcome, "Hardmax attention to n tokens, T = 1; lines: formula", "rms |xⁿ(T) − x(T)|")


CLAIMS = (
    Claim(
        "rough-context-rate",
        lambda setting: (
            "A token that reads its context through the nearest token, by hardmax attention, is n^(-1/(d-1)) away "
            f"from infinite context on S^(d-1), for d = 2, 4, 5 and 6 (n {spanned(setting.choose(*COUNTS))})."
        ),
        rough_experiment,
        expected=-1.0,
        tolerance=lambda setting: SAMPLING * rate_error(setting) + CURVATURE,
        reason=lambda setting: (
            f"{SAMPLING:g} standard errors of (d-1) times the exponent, {rate_error(setting):.2g} each, and "
            f"{CURVATURE} for the curvature of the sphere"
        ),
        source=ESTIMATE,
        figure=rough_figure,
        theme=THEME,
        unit="exponent of n times (d-1)",
        effort=2,
        rivals={
            "n^(-1/2)": "The rate is that of smooth attention.",
            "n^(-1/d)": "The rate is that of W1 between a law and its sample in R^d.",
        },
    ),
)
