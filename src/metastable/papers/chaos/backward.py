"""The claim about the way back: how fast derivatives with finite context converge to those with infinite."""

from __future__ import annotations

import numpy as np

from metastable import sphere
from metastable.drawing import Lines
from metastable.flows import SelfAttention
from metastable.papers.chaos.sampling import (
    BELOW,
    NEXT_ORDER,
    PAPER,
    Mean,
    counts_figure,
    rate_outcome,
    root_curves,
    root_exponent,
    root_level,
    uniform_contexts,
    watched,
    with_fewer,
)
from metastable.papers.claim import Outcome, Setting
from metastable.papers.own_error import OwnError
from metastable.papers.reading import fine, spanned
from metastable.theory import weight_derivative
from metastable.weights import AttentionWeights

THEME = "Backward"
RATES = ((3, 2.0, 1.0), (4, 3.0, 0.8), (5, 2.0, 0.8))
"""(d, beta, T)."""
COUNTS = (48, 128, 320), (48, 128, 320, 800), (48, 120, 256)
DRAWS = (160, 110, 70), (1500, 1000, 600, 250), (120, 80, 60)
"""Tokens of context, and contexts of each number."""
OBSERVERS, WIDE = 8, 0.02
"""Observers of every context, and the step of central differences, whose error is far below the noise."""


def rate_experiment(setting: Setting) -> Outcome:
    """Exponent of the rms error of the derivative along a random direction of V."""
    counts = np.array(setting.choose(*COUNTS))
    sizes = with_fewer(counts.tolist(), setting.choose(*DRAWS))
    rows, fits, curves = [], [], {"n": counts.astype(float), "fine": fine(counts)}
    for place, (d, beta, t) in enumerate(RATES):
        other, third = setting.seeds(2, 70, place)
        direction = np.random.default_rng(third).standard_normal((d, d)) / d
        observers, size = sphere.uniform(OBSERVERS, d, seed=other), float(np.linalg.norm(direction))
        means = []
        for n, draws in sizes:
            contexts = uniform_contexts(draws, n, d, setting.seeds(1, 71, place, n)[0])
            ends = []
            for h in (WIDE, -WIDE):
                w = AttentionWeights(V=np.eye(d) + h * direction, B=np.eye(d))
                ends.append(watched(SelfAttention(w, beta), contexts, observers, [0.0, t], rtol=1e-5)[1])
            error = (ends[0] - ends[1]) / (2 * WIDE) - weight_derivative(observers, direction, t, beta)
            means.append(Mean.of(error.square().sum(2).mean(1) / size**2))
        fits.append(root_exponent([n for n, _ in sizes], means, len(BELOW)))
        level = root_level(counts, means)
        curves |= root_curves(f"d = {d}, β = {beta:g}, T = {t:g}", means[-len(counts) :], level, curves["fine"])
        rows.append({"d": d, "beta": beta, "T": t, "exponent": fits[-1].exponent})
        rows[-1] |= {"standard error": fits[-1].error, "sqrt(n) rms": level}
    return rate_outcome(
        fits,
        {"n^(-1/d)": [-1 / d for d, _, _ in RATES], "n^(-1)": -1.0, "no convergence": 0.0},
        curves=curves,
        table=rows,
        note="the mean over the cases of the table",
    )


def rate_figure(outcome: Outcome) -> Lines:
    """rms error against n."""
    title = "Derivative by V with n tokens of context; lines: slope −1/2"
    return counts_figure(outcome, title, "rms error of dx(T)/dε, |D| = 1")


CLAIMS = (
    OwnError(
        "weight-derivative-rate",
        lambda setting: (
            "The derivative of a token by the weights with n iid tokens of context is n^(-1/2) away from that with "
            f"infinitely many, not n^(-1/d): S^2, S^3 and S^4, n {spanned(setting.choose(*COUNTS))}."
        ),
        rate_experiment,
        expected=-0.5,
        reason=NEXT_ORDER,
        source=PAPER,
        figure=rate_figure,
        theme=THEME,
        unit="exponent of n",
        effort=6,
        rivals={
            "n^(-1/d)": "The rate is that of general contextual flow maps.",
            "n^(-1)": "The rate is that of a deterministic context.",
            "no convergence": "Derivatives of a finite context keep a distance from the infinite one.",
        },
    ),
)
