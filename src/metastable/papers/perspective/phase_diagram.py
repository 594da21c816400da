"""The phase diagram in (t, beta) of the published experiment, on the flow itself, and where its boundary lies."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float

from metastable import sphere
from metastable.drawing import MapPanel, Maps, Series
from metastable.flows import SelfAttention
from metastable.measure import Ensemble
from metastable.observe import along, pair_fraction
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.perspective.sources import ESTIMATE
from metastable.papers.perspective.tokens import identity
from metastable.papers.reading import first_crossing
from metastable.solve import solve
from metastable.theory.equiangular import travel_time

THEME = "Phase diagram"
TOKENS = 32
"""Tokens of a draw in the published experiment."""
LAST = 30.0
"""Its last time."""
CLOSE = 0.999
"""Its overlap above which two tokens are one."""
HIGH = 1024
"""Dimension in which tokens are nearly orthogonal at first."""
COMPARED = 4.0
"""Largest beta of the comparison: there tokens meet at a time of 7, far below the last one."""


def diagram_betas(setting: Setting) -> np.ndarray:
    """Inverse temperatures of the diagram; all of the published ones in a full run."""
    return np.linspace(0.1, 9.0, setting.choose(10, 90, 7))


def draws(setting: Setting) -> dict[int, int]:
    """Draws of the tokens by dimension: on the circle as many as published in a full run."""
    return setting.choose({2: 32, HIGH: 4}, {2: 2048, 3: 128, 8: 128, HIGH: 32}, {2: 16, HIGH: 4})


def fractions(
    d: int, betas: Float[np.ndarray, "k"], count: int, times: Float[np.ndarray, "m"], setting: Setting
) -> Float[np.ndarray, "2 k m"]:
    """Fraction of ordered pairs i != j with <x_i, x_j> > 0.999 by beta and time, over both halves of the draws."""
    inside = min(d, TOKENS)
    found = np.zeros((2, len(betas), len(times)))
    for row, (beta, seed) in enumerate(zip(betas, setting.seeds(len(betas), d), strict=True)):
        points = sphere.uniform(count * TOKENS, d, seed=seed).reshape(count, TOKENS, d)
        if d > TOKENS:  # n tokens span n dimensions, and stay in them
            points = torch.linalg.qr(points.transpose(1, 2), mode="r")[1].transpose(1, 2).contiguous()
        flow = SelfAttention(identity(inside), float(beta))
        path = solve(flow, Ensemble(points), float(times[-1]), times, rtol=1e-4, atol=1e-5)
        seen = along(path, lambda many: pair_fraction(many, CLOSE)).numpy()
        found[:, row] = seen[:, ::2].mean(1), seen[:, 1::2].mean(1)
    return found


def boundary(times: np.ndarray, fraction: Float[np.ndarray, "k m"]) -> Float[np.ndarray, "k"]:
    """Time at which half of the pairs are close, by beta; infinite where they are not by the last time."""
    crossed = [first_crossing(times, row, 0.5) for row in fraction]
    return np.array([math.inf if math.isnan(time) else time for time in crossed])


def diagram_experiment(setting: Setting) -> Outcome:
    """Largest relative distance, over beta, of the boundary in high dimension from the curve t(g = 0.999)."""
    betas, times = diagram_betas(setting), np.linspace(0.0, LAST, setting.choose(61, 151, 61))
    halves = {d: fractions(d, betas, count, times, setting) for d, count in draws(setting).items()}
    compared = betas <= COMPARED
    curve, flat = (np.array([travel_time(CLOSE, TOKENS, b) for b in used]) for used in (betas, 0 * betas))
    on_circle, in_space = (boundary(times, halves[d].mean(0)) for d in (2, HIGH))

    def distance(found: np.ndarray, expected: np.ndarray) -> float:
        return float(np.abs(found / expected - 1)[compared].max())

    # half the difference of two halves estimates the standard error of their mean, at every beta
    first, second = (boundary(times, half)[compared] for half in halves[HIGH])
    differences = (first - second) / curve[compared] / 2
    rows = {"beta": betas, "t(0.999)": curve, f"boundary, d = {HIGH}": in_space, "boundary, d = 2": on_circle}
    return Outcome(
        distance(in_space, curve),
        uncertainty=float(np.sqrt(np.mean(differences**2))),
        curves={"beta": betas, "t": times} | {f"d = {d}": both.mean(0) for d, both in halves.items()},
        table=as_rows({name: values[compared] for name, values in rows.items()}),
        rivals={"the circle, too": distance(on_circle, curve), "whatever beta": distance(in_space, flat)},
    )


def diagram_figure(outcome: Outcome) -> Maps:
    """A diagram for every dimension, with the equiangular curve on the highest."""
    betas, times = outcome.curves["beta"], outcome.curves["t"]
    grid = np.linspace(betas[0], betas[-1], 181)
    curve = np.array([travel_time(CLOSE, TOKENS, b) for b in grid])
    seen = curve <= times[-1]
    names = [name for name in outcome.curves if name.startswith("d = ")]
    panels = [MapPanel(name, outcome.curves[name]) for name in names[:-1]]
    over = [Series(curve[seen], grid[seen], "t(g = 0.999)")]
    panels.append(MapPanel(f"{names[-1]}, and t(g = 0.999)", outcome.curves[names[-1]], over))
    return Maps(
        f"Pairs of {TOKENS} uniform tokens with overlap above {CLOSE:g}",
        "time t",
        "inverse temperature β",
        times,
        betas,
        panels,
        "fraction of pairs",
        columns=2,
        signed=False,
    )


CLAIMS = (
    Claim(
        "phase-diagram",
        f"In high dimension (d = {HIGH}, n = {TOKENS} uniform tokens) half of all pairs are closer than 0.999 "
        "at the time "
        f"t(g = 0.999) of equiangular tokens, for beta up to {COMPARED:g}; on the circle they are not.",
        diagram_experiment,
        expected=0.0,
        tolerance=math.sqrt(math.log(HIGH) / HIGH),
        reason=f"sqrt(log d/d), the size of the largest of the first overlaps, at d = {HIGH}",
        source=ESTIMATE,
        figure=diagram_figure,
        theme=THEME,
        unit="largest relative error of the time",
        effort=40,
        rivals={
            "the circle, too": "The boundary of the diagram on the circle is the same.",
            "whatever beta": "The boundary does not depend on beta.",
        },
    ),
)
