"""Claims about the order of the three phases: on the circle for all beta, and as a portrait on S^2."""

from __future__ import annotations

import numpy as np
import torch

from metastable import sphere
from metastable.drawing import PhaseMap, Portrait, dominant_axes, spectra
from metastable.meanfield import reference_skew
from metastable.measure import Measure
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.concentration.families import commuting, competing
from metastable.papers.concentration.measuring import mean_field, run
from metastable.papers.concentration.sources import PAPER
from metastable.theory import limit, spectrum
from metastable.transport import wasserstein

THEME = "Three phases"


def phases_experiment(setting: Setting) -> Outcome:
    """Which of rho_0, Pi#rho_0 and the terminal law is nearest, by beta and time; share in the right order."""
    w, law = commuting(), reference_skew()
    betas = np.array(setting.choose((8.0, 16.0, 32.0), (8.0, 16.0, 32.0, 64.0, 128.0, 256.0)))
    times = np.linspace(0, setting.choose(10.5, 18.0), setting.choose(43, 91))
    top = spectrum(w).V.space[:, 0]
    phase = np.zeros((len(betas), len(times)), dtype=int)
    rows = []
    for i, beta in enumerate(betas):
        path = mean_field(w, beta, law, times, tol=1e-2)
        start, target = path.measure(0), limit(w, path.measure(0))
        end = path.measure(len(path) - 1)
        plus = float(end.mass[end.points @ top > 0].sum())
        terminal = Measure(torch.stack([top, -top]), [plus, 1 - plus])
        for j in range(len(times)):
            here = path.measure(j)
            phase[i, j] = int(np.argmin([float(wasserstein(here, other)) for other in (start, target, terminal)]))
        changes = np.flatnonzero(np.diff(phase[i]))
        rows.append({"beta": beta, "phases": " ".join("ICT"[phase[i, j]] for j in [0, *(changes + 1)])})
    ordered = [in_order(row) for row in phase]
    return Outcome(float(np.mean(ordered)), curves={"t": times, "beta": betas, "phase": phase}, table=rows)


def in_order(phases: np.ndarray) -> bool:
    """Initial, concentrated and terminal are first met in this order, and the last one is terminal.

    Half-way between the directions of E and of V's top a narrow pair of clusters is far from both laws, and for a
    moment nearer to a spread-out rho_0; that is geometry and no fourth phase.
    """
    met = list(dict.fromkeys(phases.tolist()))
    return met == [0, 1, 2] and int(phases[-1]) == 2


def phases_figure(outcome: Outcome) -> PhaseMap:
    """The phase diagram."""
    return PhaseMap(
        "Nearest phase, V = diag(1, 2), B = diag(3, 1), skewed data",
        outcome.curves["t"],
        outcome.curves["beta"],
        outcome.curves["phase"],
    )


def portrait_experiment(setting: Setting) -> Outcome:
    """Iid tokens on S^2: the share of the way to E that is reached, then the share to the top of V."""
    w, beta, n = competing(3), 50.0, setting.choose(300, 600)
    times = np.linspace(0, 24, 61)
    path = run(w, beta, sphere.uniform(n, 3, seed=setting.seed + 3), times, rtol=1e-6)
    to_E = (2 * (1 - path.points[..., 0].abs()) @ path.mass).sqrt().numpy()
    to_top = (2 * (1 - path.points[..., 1].abs()) @ path.mass).sqrt().numpy()
    concentrated, end = float(to_E.min()), float(to_top[-1])
    rows = [
        {"phase": "concentrated", "t": times[int(np.argmin(to_E))], "distance to E": concentrated},
        {"phase": "terminal", "t": times[-1], "distance to the top of V": end},
    ]
    curves: dict[str, np.ndarray] = {
        "t": times,
        "points": path.points.numpy().astype(np.float32),
        "mass": path.mass.numpy(),
    }
    return Outcome(max(concentrated, end), curves=curves, table=rows)


def portrait_figure(outcome: Outcome) -> Portrait:
    """The tokens over time."""
    found = spectrum(competing(3))
    return Portrait(
        "Three phases on the sphere: V = diag(1, 2, ½), B = diag(4, 1, 1), β = 50",
        outcome.curves["t"],
        outcome.curves["points"],
        outcome.curves["mass"],
        dominant_axes(found),
        spectra(found),
    )


CLAIMS = (
    Claim(
        "three-phases",
        "For every beta the law is nearest first to rho_0, then to Pi#rho_0, and in the end to its terminal law on "
        "the top space of V.",
        phases_experiment,
        expected=1.0,
        tolerance=0.0,
        reason="a count",
        source=PAPER,
        figure=phases_figure,
        theme=THEME,
        unit="share of betas in order",
        effort=12,
    ),
    Claim(
        "three-phases-on-the-sphere",
        "iid tokens on S^2 concentrate on E, then move to the top direction of V.",
        portrait_experiment,
        expected=0.35,
        tolerance=0.0,
        reason="uniform tokens start at distance 1 of either; a few stragglers keep the first at 0.25",
        source=PAPER,
        figure=portrait_figure,
        relation="at most",
        theme=THEME,
        unit="distance to E, then to V's top",
        effort=4,
    ),
)
