"""Claims about other weights and laws, where nothing rests: the mean-field solver stands for infinite context."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from metastable import meanfield
from metastable.drawing import Lines
from metastable.flows import SelfAttention
from metastable.meanfield import Law, Skewed, VonMisesFisher, reference_skew
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
    watched,
    with_fewer,
)
from metastable.papers.claim import Outcome, Setting
from metastable.papers.own_error import OwnError
from metastable.papers.reading import fine, spanned
from metastable.weights import AttentionWeights

THEME = "Forward"
COUNTS = (64, 140, 320), (64, 128, 256, 512, 1024), (64, 128, 256)
DRAWS = (240, 160, 80), (1000, 1000, 800, 500, 300), (200, 140, 80)
"""Tokens of context, and contexts of each number."""
OBSERVERS = 12
"""Nodes of the mean-field solution that are carried by the sampled contexts, too."""


def sheared(d: int) -> AttentionWeights:
    """Neither V nor B is symmetric, nor do they commute: M = diag(2, 1, ...), B with 1/2 above the diagonal."""
    B = np.eye(d) + 0.5 * np.eye(d, k=1)
    M = np.diag([2.0] + [1.0] * (d - 1))
    return AttentionWeights(V=M @ np.linalg.inv(B.T), B=B)


def turning(d: int) -> AttentionWeights:
    """V a contraction with a rotation, whose leading eigenvalues are complex; B = I."""
    V = np.eye(d) * 0.6
    V[0, 1], V[1, 0] = -0.8, 0.8
    return AttentionWeights(V=V, B=np.eye(d))


def repelling(d: int) -> AttentionWeights:
    """V negative, B between them no multiple of it: tokens spread."""
    return AttentionWeights(V=-np.diag([0.5, 1.0, 0.8][:d]), B=np.eye(d) - 0.3 * np.eye(d, k=-1))


CASES: Sequence[tuple[str, AttentionWeights, float, Law, float]] = (
    ("circle, sheared", sheared(2), 6.0, reference_skew(), 0.5),
    ("S², sheared", sheared(3), 4.0, Skewed([0.0, 1.0, 0.0], 0.6), 0.5),
    ("S², turning", turning(3), 3.0, Skewed([1.0, 0.0, 0.0], 0.5), 1.0),
    ("S², repelling", repelling(3), 6.0, VonMisesFisher([0.0, 0.6, 0.8], 1.0), 1.0),
)
"""(name, weights, beta, law of the context, T). On the circle n^{-1/d} is n^{-1/2}: it is in the table only."""


def reference(w: AttentionWeights, beta: float, law: Law, t: float) -> tuple[Tensor, Tensor]:
    """Positions of some nodes of the mean field at 0 and T; its error, 1e-4, is far below that of a context."""
    path = meanfield.solve(w, beta, law, t, tol=1e-4, times=[0.0, t], strict=True)
    chosen = torch.linspace(0, path.points.shape[1] - 1, OBSERVERS).round().long()
    return path.points[0][chosen], path.points[-1][chosen]


def general_experiment(setting: Setting) -> Outcome:
    """Exponent of the rms distance of sampled contexts from the mean field."""
    counts = np.array(setting.choose(*COUNTS))
    sizes = with_fewer(counts.tolist(), setting.choose(*DRAWS))
    rows, fits, curves = [], [], {"n": counts.astype(float), "fine": fine(counts)}
    for place, (name, w, beta, law, t) in enumerate(CASES):
        start, end = reference(w, beta, law, t)
        means = []
        for n, draws in sizes:
            (seed,) = setting.seeds(1, 40, place, n)
            contexts = torch.as_tensor(law.sample(draws * n, seed=seed)).view(draws, n, -1)
            there = watched(SelfAttention(w, beta), contexts, start, [0.0, t])[1]
            means.append(Mean.of((there - end).square().sum(2).mean(1)))
        fits.append(root_exponent([n for n, _ in sizes], means, len(BELOW)))
        level = root_level(counts, means)
        curves |= root_curves(name, means[-len(counts) :], level, curves["fine"])
        rows.append({"case": name, "beta": beta, "T": t, "exponent": fits[-1].exponent})
        rows[-1] |= {"standard error": fits[-1].error, "sqrt(n) rms": level}
    return rate_outcome(
        [fit for fit, (_, w, *_) in zip(fits, CASES, strict=True) if w.d > 2],
        {"n^(-1/d)": [-1 / w.d for _, w, *_ in CASES if w.d > 2], "n^(-1/4)": -0.25, "n^(-1)": -1.0},
        curves=curves,
        table=rows,
        note="the mean over the cases on S^2",
    )


def general_figure(outcome: Outcome) -> Lines:
    """rms distance against n."""
    title = "Tokens of context against the mean field; lines: slope −1/2"
    return counts_figure(outcome, title, "rms |xⁿ(T) − x(T)|")


CLAIMS = (
    OwnError(
        "context-rate-general",
        lambda setting: (
            "For weights that are not symmetric and contexts that are not uniform a token is n^(-1/2) away from "
            f"the mean field, on S^2 as on the circle (n {spanned(setting.choose(*COUNTS))})."
        ),
        general_experiment,
        expected=-0.5,
        reason=NEXT_ORDER,
        source=PAPER,
        figure=general_figure,
        theme=THEME,
        unit="exponent of n",
        effort=6,
        rivals={
            "n^(-1/d)": "The rate is that of general contextual flow maps, n^(-1/3) on S^2.",
            "n^(-1/4)": "The rate is that of W2 between a law and its sample on the line.",
            "n^(-1)": "The rate is that of a deterministic context.",
        },
    ),
)
