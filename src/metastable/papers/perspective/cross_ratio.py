"""The claim that attention without temperature conserves cross ratios."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import SelfAttention
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.perspective.sources import ESTIMATE
from metastable.solve import solve
from metastable.weights import AttentionWeights, Schedule

THEME = "Without temperature"
CASES = ((2, 12, False), (3, 12, True), (5, 20, False))
"""Dimension, number of tokens, and whether V changes in time."""
BETAS = (0.05, 0.5)
"""Inverse temperatures at which cross ratios change."""
TIMES = np.linspace(0.0, 2.0, 21)


def cross_ratios(points: Float[Tensor, "m n d"]) -> Float[Tensor, "m k"]:
    """|x_i-x_j||x_k-x_l|/(|x_i-x_k||x_j-x_l|) of neighbouring quadruples of tokens."""
    a, b, c, d = (torch.roll(points, -k, dims=1) for k in range(4))

    def chord(x: Tensor, y: Tensor) -> Tensor:
        return torch.linalg.vector_norm(x - y, dim=-1)

    return chord(a, b) * chord(c, d) / (chord(a, c) * chord(b, d))


def chord_ratios(points: Float[Tensor, "m n d"]) -> Float[Tensor, "m k"]:
    """|x_i-x_j|/|x_j-x_k|, which has not the weights of a cross ratio."""
    a, b, c = (torch.roll(points, -k, dims=1) for k in range(3))
    return torch.linalg.vector_norm(a - b, dim=-1) / torch.linalg.vector_norm(b - c, dim=-1)


def _drift(ratios: Float[Tensor, "m k"]) -> np.ndarray:
    """Largest change of the logarithm of a ratio since the start, over the times."""
    return (torch.log(ratios) - torch.log(ratios[0])).abs().amax(1).numpy()


def cross_ratio_experiment(setting: Setting) -> Outcome:
    """Largest change of the logarithm of a cross ratio, V random, in several dimensions, also with V(t)."""
    generator = np.random.default_rng(setting.seed)
    cases = setting.choose(CASES, (*CASES, (2, 60, True), (9, 60, False)))
    kept: list[np.ndarray] = []
    warm: dict[float, list[np.ndarray]] = {beta: [] for beta in BETAS}
    simple, rows = [], []
    for d, n, moving in cases:
        V, turn = (torch.from_numpy(generator.normal(size=(d, d)) / math.sqrt(d)) for _ in range(2))
        eye = torch.eye(d, dtype=torch.float64)
        points = sphere.uniform(n, d, seed=setting.seeds(1, d, n)[0])

        def weights(t: float, V: Tensor = V, turn: Tensor = turn, eye: Tensor = eye) -> AttentionWeights:
            return AttentionWeights(V=V + math.sin(3 * t) * turn, B=eye)

        for beta in (0.0, *BETAS):
            w = Schedule(weights, time_scale=0.5) if moving else weights(0.0)
            path = solve(SelfAttention(w, beta), points, 2.0, TIMES, rtol=1e-10, atol=1e-12)
            change = _drift(cross_ratios(path.points))
            (kept if beta == 0 else warm[beta]).append(change)
            if beta == 0:
                simple.append(_drift(chord_ratios(path.points)).max())
                rows.append((d, n, "V(t)" if moving else "V", float(change.max())))
    return Outcome(
        float(np.max(kept)),
        curves={"t": TIMES, "0": np.max(kept, 0)}
        | {f"{beta:g}": np.max(changes, 0) for beta, changes in warm.items()},
        table=as_rows(dict(zip(("d", "n", "weights", "change"), zip(*rows, strict=True), strict=True))),
        rivals={
            "any temperature": float(np.min([np.max(changes) for changes in warm.values()])),
            "any ratio of chords": float(min(simple)),
        },
    )


def cross_ratio_figure(outcome: Outcome) -> Lines:
    """Change of cross ratios over time."""
    curves = {name: np.maximum(values, 1e-16) for name, values in outcome.curves.items() if name != "t"}
    series = [Series(TIMES[1:], values[1:], f"β = {name}") for name, values in curves.items()]
    return Lines(
        "Cross ratios of four tokens, any V", "time t", "largest change of log cross ratio", series, log_y=True
    )


CLAIMS = (
    Claim(
        "cross-ratios",
        "At beta = 0 every cross ratio |x_i-x_j||x_k-x_l|/(|x_i-x_k||x_j-x_l|) is conserved, whatever V is "
        "and however "
        "it changes in time (d = 2 to 5).",
        cross_ratio_experiment,
        expected=0.0,
        tolerance=1e-7,
        reason="the run has a tolerance of 1e-10 per step, and the closest of the tokens are 1e-2 apart",
        source=ESTIMATE,
        figure=cross_ratio_figure,
        theme=THEME,
        unit="largest change of its logarithm",
        effort=2,
        rivals={
            "any temperature": "They are conserved at beta = 0.05 and 0.5, too.",
            "any ratio of chords": "Ratios of two chords, |x_i-x_j|/|x_j-x_k|, are conserved.",
        },
    ),
)
