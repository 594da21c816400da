"""The claim that random tokens in high dimension move like orthogonal ones."""

from __future__ import annotations

import math

import numpy as np

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.perspective.equiangular import THEME
from metastable.papers.perspective.sources import ESTIMATE
from metastable.papers.perspective.tokens import attention, overlaps
from metastable.papers.reading import fine, slope, spanned
from metastable.solve import solve
from metastable.theory.equiangular import overlap, travel_time

TOKENS = 16
"""Tokens of a draw, as in the golden number of this claim: d = 3000, largest deviation 0.09."""
BETAS = (0.5, 2.0)
"""Inverse temperatures; larger ones take long to meet, and amplify more what the first overlaps were."""


def dimensions(setting: Setting) -> np.ndarray:
    """Dimensions between which the exponent is fitted."""
    return np.array(setting.choose((64, 256, 1024), (64, 128, 256, 512, 1024, 2048, 4096), (64, 256, 1024)))


def deviation_experiment(setting: Setting) -> Outcome:
    """Exponent in d of the largest distance of any overlap, at any time, from the curve g(t)."""
    dims, draws = dimensions(setting), setting.choose(12, 48, 8)
    exact, still, other = (np.zeros((draws, len(dims))) for _ in range(3))
    shown: dict[str, np.ndarray] = {}
    for beta in BETAS:
        times = np.linspace(0.0, 1.5 * travel_time(0.9, TOKENS, beta), 25)
        curve = np.array([overlap(t, TOKENS, beta) for t in times])
        twice = np.array([overlap(t, 2 * TOKENS, beta) for t in times])
        for place, d in enumerate(dims):
            for draw, seed in enumerate(setting.seeds(draws, int(d))):
                points = sphere.uniform(TOKENS, int(d), seed=seed)
                # n tokens span n dimensions and stay in them
                inside = np.linalg.qr(points.numpy().T)[1].T
                path = solve(attention(TOKENS, beta), inside, float(times[-1]), times, rtol=1e-6, atol=1e-8)
                found = overlaps(path.points).numpy()
                for kept, curved in ((exact, curve), (still, np.zeros_like(curve)), (other, twice)):
                    kept[draw, place] = max(kept[draw, place], np.abs(found - curved[:, None]).max())
                if draw == 0 and place == len(dims) - 1 and beta == BETAS[-1]:
                    shown = {"t": times, "found": found, "curve": curve}
    exponents = [slope(np.log(dims), np.log(row)) for row in exact]
    mean = exact.mean(0)
    return Outcome(
        float(np.mean(exponents)),
        uncertainty=float(np.std(exponents, ddof=1) / math.sqrt(draws)),
        curves={"d": dims.astype(float), "deviation": mean, **shown},
        table=as_rows({"d": dims, "deviation": mean, "over sqrt(log d/d)": mean / np.sqrt(np.log(dims) / dims)}),
        rivals={
            "tokens rest": slope(np.log(dims), np.log(still.mean(0))),
            "another number of tokens": slope(np.log(dims), np.log(other.mean(0))),
            "1/d": -1.0,
        },
    )


def deviation_figure(outcome: Outcome) -> Lines:
    """Deviation against dimension."""
    d, deviation = outcome.curves["d"], outcome.curves["deviation"]
    grid = fine(d)
    return Lines(
        "Uniform tokens in dimension d against the equiangular curve",
        "dimension d",
        "largest deviation of an overlap from g(t)",
        [
            Series(d, deviation, f"{TOKENS} tokens", "points", colour=0),
            Series(grid, deviation[-1] * np.sqrt(d[-1] / grid), "slope −1/2", "dashed", colour=0),
            Series(grid, np.sqrt(np.log(grid) / grid), "√(log d/d)", "dotted", colour=1),
        ],
        log_x=True,
        log_y=True,
    )


CLAIMS = (
    Claim(
        "high-dimension",
        lambda setting: (
            f"Overlaps of {TOKENS} uniform tokens follow g(t) of orthogonal ones up to an error that falls like "
            f"d^(-1/2) (d {spanned(dimensions(setting))})."
        ),
        deviation_experiment,
        expected=-0.5,
        tolerance=0.12,
        reason="the first overlaps are of size d^(-1/2); what is of second order in them is 0.1 at the smallest d",
        source=ESTIMATE,
        figure=deviation_figure,
        theme=THEME,
        unit="exponent of d",
        effort=3,
        rivals={
            "tokens rest": "In high dimension attention is uniform and tokens do not move.",
            "another number of tokens": "They follow the curve of another number of tokens, that of 2 n.",
            "1/d": "The error falls like 1/d.",
        },
    ),
)
