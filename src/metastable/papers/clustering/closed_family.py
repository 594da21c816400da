"""The claim about beta = 0: tokens symmetric about an axis move through one closed family of laws."""

from __future__ import annotations

import numpy as np
import torch

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import SelfAttention
from metastable.meanfield import axisymmetric_nodes
from metastable.measure import Measure
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.clustering.axial import START
from metastable.papers.clustering.sources import ESTIMATE
from metastable.papers.reading import fine, listed
from metastable.solve import solve
from metastable.theory import moebius
from metastable.weights import AttentionWeights

THEME = "Closed forms"
END = 6.0
"""Time up to which tokens are followed: R is above 0.96 in every dimension by then."""


def dimensions(setting: Setting) -> tuple[int, ...]:
    """Dimensions in which tokens run."""
    chosen: tuple[int, ...] = setting.choose((2, 3, 4, 8), (2, 3, 4, 5, 8, 16, 64), (2, 3, 8))
    return chosen


def in_all_directions(overlaps: Measure, d: int, seed: int) -> Measure:
    """Every overlap as a pair of tokens of R^d, on either side of the axis in a random direction."""
    u, side = overlaps.points.unbind(1)
    across = torch.zeros(overlaps.n, d, dtype=torch.float64)
    across[:, 1:] = sphere.uniform(overlaps.n, d - 1, seed=seed) if d > 2 else 1.0
    along = torch.zeros_like(across)
    along[:, 0] = u
    points = torch.cat([along + side[:, None] * across, along - side[:, None] * across])
    return Measure(points, torch.cat([overlaps.mass, overlaps.mass]))


def family_experiment(setting: Setting) -> Outcome:
    """The softmax flow at beta = 0 of tokens with masses in R^d: largest deviation of R(t) from the closed form."""
    times = np.linspace(0, END, 25)
    curves: dict[str, np.ndarray] = {"t": times, "d": np.array(dimensions(setting))}
    errors, circle, linear = [], [], []
    for d in dimensions(setting):
        rho0 = in_all_directions(axisymmetric_nodes(d, [(1.0, START)], 8.0), d, setting.seeds(1, d)[0])
        flow = SelfAttention(AttentionWeights(V=np.eye(d), B=np.eye(d)), 0.0)
        path = solve(flow, rho0, END, times, rtol=1e-8, atol=1e-10)
        R = torch.linalg.vector_norm(torch.einsum("n,mnd->md", path.mass, path.points), dim=1).numpy()
        eta = moebius.shift(times, START, d)
        errors.append(float(np.abs(R - moebius.order(eta, d).numpy()).max()))
        start = moebius.order(START, d)
        other = moebius.order(moebius.shift(times, moebius.shift_of_order(start, 2), 2), 2).numpy()
        circle.append(float(np.abs(R - other).max()))
        # R' = ((d-1)/d) R (1 - R^2) is the circle's law with a time of its own.
        growth = 2 * (d - 1) / d
        closed = 1 / np.sqrt(1 + (1 / start**2 - 1) * np.exp(-growth * times))
        linear.append(float(np.abs(R - closed).max()))
        curves[f"R {d}"] = R
    return Outcome(
        max(errors),
        curves=curves,
        table=as_rows({"d": np.array(dimensions(setting)), "largest error of R": errors}),
        rivals={"circle everywhere": max(circle), "closed equation for R": max(linear)},
    )


def family_figure(outcome: Outcome) -> Lines:
    """R(t) in every dimension on its closed form."""
    t, series = outcome.curves["t"], []
    grid = fine(t)
    for place, d in enumerate(outcome.curves["d"].tolist()):
        exact = moebius.order(moebius.shift(grid, START, d), d).numpy()
        series.append(Series(grid, exact, f"d = {d}", colour=place))
        series.append(Series(t, outcome.curves[f"R {d}"], "" if place else "tokens", "points", colour=place))
    return Lines("Synchronisation at β = 0: tokens on the closed form", "time t", "order parameter R", series)


CLAIMS = (
    Claim(
        "moebius-family",
        lambda setting: (
            "At beta = 0 a law symmetric about an axis is a Moebius image of the uniform one whose shift "
            "obeys eta' = "
            f"f_d(eta) = R, f_d by a hypergeometric function (d = {listed(dimensions(setting))}, t <= {END:g})."
        ),
        family_experiment,
        expected=0.0,
        tolerance=1e-6,
        reason="the nodes are exact to 1e-9 and the integrator is asked for 1e-8 per step",
        source=ESTIMATE,
        figure=family_figure,
        theme=THEME,
        unit="largest error of R",
        effort=2,
        rivals={
            "circle everywhere": "R follows the law of the circle, f_2 = tanh(eta/2), in every dimension.",
            "closed equation for R": "R' = ((d-1)/d) R (1 - R^2) in every dimension, as on the circle.",
        },
    ),
)
