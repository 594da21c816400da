"""Claims about mixed equilibria: three groups in the plane of two eigenvectors rest where P1 says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from metastable.drawing import Lines, Series
from metastable.flows import SelfAttention
from metastable.measure import Measure
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.spectral_selection.measuring import PAPER
from metastable.theory import attention_jacobian, mixed_equilibria, mixed_points, selection_weights

THEME = "Mixed equilibria"
CASES = (
    (2.0, -3.0, 1.5, 1, 1), (-0.4, -4.0, 0.03, 1, 1), (-2.0, -4.0, 0.03, 1, 1), (1.0, -2.0, 1.0, 2, 1),
    (-1.0, -2.0, 0.3, 1, 2), (0.5, -1.5, 2.0, 3, 2), (-0.5, -3.0, 0.5, 2, 3), (1.5, 0.5, 0.4, 1, 3),
)  # fmt: skip
"""(a, b, beta, m, k); the first three are those whose roots are published."""
DRAWN = ((2.0, -3.0), (-0.4, -4.0), (-2.0, -4.0))


def mixed_experiment(setting: Setting) -> Outcome:
    """Largest speed at every root of P1, and at those of equations that differ from it in a sign or a factor."""
    rows: list[dict[str, Any]] = []
    rivals: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for case in CASES:
        a, b, beta, m, k = case
        for q in mixed_equilibria(*case):
            rate = _rates(a, b, beta, m, k, q)
            rows.append(
                {"a": a, "b": b, "beta": beta, "m": m, "k": k, "q": f"{q:.10f}"}
                | {"speed": speed(case, q), "largest rate": rate}
            )
        for name, variant in VARIANTS.items():
            roots = [speed(case, q) for q in _roots(variant, case)]
            # An equation without a root where there is an equilibrium misses it altogether.
            rivals[name].append(max(roots, default=1.0))
    curves = {}
    for place, (a, b) in enumerate(DRAWN):
        betas = np.geomspace(0.02, 3.0, setting.choose(81, 201, 41))
        found = [(beta, q, _rates(a, b, beta, 1, 1, q)) for beta in betas for q in mixed_equilibria(a, b, beta)]
        curves[f"roots {place}"] = np.array(found)
    return Outcome(
        max(float(row["speed"]) for row in rows),
        curves=curves,
        table=rows,
        rivals={name: max(found) for name, found in rivals.items()},
        note=f"{len(rows)} equilibria of {len(CASES)} settings",
    )


def speed(case: tuple[float, float, float, int, int], q: float) -> float:
    """The largest speed of the tokens of the three groups."""
    a, b, beta, m, k = case
    rho = Measure(mixed_points(q, m, k))
    velocity = SelfAttention(selection_weights(np.diag([a, b])), beta, kernel="dense").velocity(0.0, *rho)
    return float(velocity.norm(dim=1).max())


def _rates(a: float, b: float, beta: float, m: int, k: int, q: float) -> float:
    """The largest rate of disturbances in the plane."""
    J = attention_jacobian(selection_weights(np.diag([a, b])), beta, mixed_points(q, m, k))
    return float(torch.linalg.eigvals(J).real.max())


def _terms(q: float, a: float, b: float, beta: float, m: int, k: int) -> tuple[float, float, float]:
    """The three terms of P1."""
    return (
        q * (a - b) * math.exp(beta * (b + (a - b) * q * q)),
        q * (a + b) * math.exp(beta * (-b + (a + b) * q * q)),
        a * m / k * math.exp(beta * a * q),
    )


VARIANTS: dict[str, Callable[..., float]] = {
    "other sign of the last term": lambda q, *c: sum(_terms(q, *c)[:2]) - _terms(q, *c)[2],
    "a - b in both terms": lambda q, a, b, beta, m, k: (
        2 * _terms(q, a, b, beta, m, k)[0] + _terms(q, a, b, beta, m, k)[2]
    ),
    "k/m for m/k": lambda q, a, b, beta, m, k: sum(_terms(q, a, b, beta, k, m)),
}
"""Equations that a slip of the pen would give."""


def _roots(equation: Callable[..., float], case: tuple[float, float, float, int, int]) -> list[float]:
    """Roots in (-1, 1) that a scan of 2000 steps sees."""
    from scipy.optimize import brentq

    def f(q: float) -> float:
        return equation(q, *case)

    grid = np.linspace(-1, 1, 2001)
    values = np.array([f(q) for q in grid])
    places = np.flatnonzero(values[1:] * values[:-1] < 0)
    return [float(brentq(f, grid[i], grid[i + 1], xtol=1e-14)) for i in places]


def mixed_figure(outcome: Outcome) -> Lines:
    """All roots against beta, those that are stable in the plane filled."""
    series = []
    for place, (a, b) in enumerate(DRAWN):
        beta, q, rate = outcome.curves[f"roots {place}"].T
        for stable in (True, False):
            chosen = (rate < 0) == stable
            if chosen.any():
                label = f"a = {a:g}, b = {b:g}" + ("" if stable else ", unstable")
                hollow = [not stable] * int(chosen.sum())
                series.append(Series(beta[chosen], q[chosen], label, "points", colour=place, hollow=hollow))
    title = "Mixed equilibria {u, qu ± √(1−q²)v}, m = k = 1"
    return Lines(title, "inverse temperature β", "overlap q", series, log_x=True)


CLAIMS = (
    Claim(
        "mixed-equilibria",
        "m tokens at u and k each at qu +- sqrt(1-q^2)v rest exactly where q solves P1; the three published roots "
        "are .0239051913, -.2341172382 and -.4323657845.",
        mixed_experiment,
        expected=0.0,
        tolerance=1e-14,
        reason="q is known to the last digit or two, which the field multiplies by beta |V|^2 < 15",
        source=PAPER,
        figure=mixed_figure,
        theme=THEME,
        unit="largest speed at a root",
        effort=2,
        rivals={
            "other sign of the last term": "The tokens at u pull the other way.",
            "a - b in both terms": "The opposite group counts like the own one.",
            "k/m for m/k": "The groups enter the other way round.",
        },
    ),
)
