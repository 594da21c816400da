"""The contrast: a context that is read through its nearest token, by hardmax attention."""

from __future__ import annotations

import math

import numpy as np
import torch

from metastable import sphere
from metastable.attention.hardmax import hardmax
from metastable.drawing import Lines
from metastable.papers.chaos.sampling import Mean, counts_figure, root_exponent, uniform_contexts
from metastable.papers.claim import Outcome, Setting
from metastable.papers.own_error import OwnError, with_systematic
from metastable.papers.reading import farthest, fine, spanned
from metastable.papers.verdict import ESTIMATE

THEME = "Forward"
DIMENSIONS = (2, 4, 5, 6)
"""On S^2 the rate n^{-1/(d-1)} is n^{-1/2}, that of smooth attention, and nothing is told apart."""
COUNTS = (128, 512, 2048), (128, 512, 2048, 8192)
DRAWS = 300, 2000, 220
"""Tokens of context, and contexts of each number."""
OBSERVERS, TIME = 16, 1.0
ANGLES, SMALLEST = 4001, 1e-7
"""Of the quadrature over the angle to the nearest token, and the smallest of them."""


def distances(n: int, d: int, draws: int, seed: int, other: int) -> np.ndarray:
    """|x^n(T) - x(T)|^2 of observers of hardmax attention, V = B = I, in the mean over those of each context.

    The context rests, since every token of it attends itself, and so does an observer of infinitely many; one of n
    goes to its nearest token, tan(angle/2) = e^{-T} tan(angle_0/2).
    """
    observers = sphere.uniform(draws * OBSERVERS, d, seed=other).view(draws, OBSERVERS, d)
    contexts = uniform_contexts(draws, n, d, seed)
    score = torch.stack([hardmax(x, keys)[1] for x, keys in zip(observers, contexts, strict=True)])
    return moved(np.arccos(score.clamp(-1.0, 1.0).numpy())).mean(1)


def moved(angle: np.ndarray) -> np.ndarray:
    """Square of the distance that an observer goes towards a token at this angle."""
    left = 2 * np.arctan(math.exp(-TIME) * np.tan(angle / 2))
    return np.asarray((2 * np.sin((angle - left) / 2)) ** 2)


def expected_square(n: int, d: int) -> float:
    """E|x^n(T) - x(T)|^2: the nearest of n tokens is beyond the angle a with the probability (1 - cap(a))^n."""
    from scipy import special

    angle = np.append(0.0, np.geomspace(SMALLEST, math.pi, ANGLES))
    half = special.betainc((d - 1) / 2, 0.5, np.sin(angle) ** 2) / 2
    beyond = np.where(angle <= math.pi / 2, 1 - half, half)
    return float(np.trapezoid(beyond**n, moved(angle)))


def limit_constant(d: int) -> float:
    """lim n^{1/(d-1)} rms: (1 - e^{-T}) sqrt(Gamma(1 + 2/(d-1)))/c^{1/(d-1)}, c a^{d-1} a cap of angle a (X3)."""
    cap = math.gamma(d / 2) / (math.sqrt(math.pi) * (d - 1) * math.gamma((d - 1) / 2))
    return -math.expm1(-TIME) * math.sqrt(math.gamma(1 + 2 / (d - 1))) / cap ** (1 / (d - 1))


def rough_experiment(setting: Setting) -> Outcome:
    """(d-1) times the exponent of n, of all dimensions the one farthest from -1."""
    counts, draws = np.array(setting.choose(*COUNTS)), setting.choose(*DRAWS)
    rows, found, errors, curved = [], [], [], []
    curves = {"n": counts.astype(float), "fine": fine(counts)}
    for d in DIMENSIONS:
        means = [Mean.of(distances(int(n), d, draws, *setting.seeds(2, 20, d, int(n)))) for n in counts]
        fit = root_exponent(counts, means)
        found.append(fit.exponent * (d - 1))
        errors.append(fit.error * (d - 1))
        exact = [Mean(expected_square(int(n), d), 0.0) for n in counts]
        curved.append(abs(root_exponent(counts, exact).exponent * (d - 1) + 1))
        value, error = np.array(means).T
        curves |= {f"measured d = {d}": np.sqrt(value), f"error d = {d}": error / np.sqrt(value) / 2}
        curves[f"theory d = {d}"] = limit_constant(d) * curves["fine"] ** (-1 / (d - 1))
        constant = float(np.sqrt(value[-1]) * counts[-1] ** (1 / (d - 1)))
        rows.append({"d": d, "exponent": fit.exponent, "n^(1/(d-1)) rms": constant, "its limit": limit_constant(d)})
    smooth = [-(d - 1) / 2 for d in DIMENSIONS]
    general = [-(d - 1) / d for d in DIMENSIONS]
    outcome = Outcome(
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
    return with_systematic(outcome, max(curved))


def rough_figure(outcome: Outcome) -> Lines:
    """rms distance against n."""
    return counts_figure(outcome, "Hardmax attention to n tokens, T = 1; lines: formula", "rms |xⁿ(T) − x(T)|")


CLAIMS = (
    OwnError(
        "rough-context-rate",
        lambda setting: (
            "A token that reads its context through the nearest token, by hardmax attention, is n^(-1/(d-1)) away "
            f"from infinite context on S^(d-1), for d = 2, 4, 5 and 6 (n {spanned(setting.choose(*COUNTS))})."
        ),
        rough_experiment,
        expected=-1.0,
        reason="the curvature of the sphere, by the exact law of the nearest token",
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
