"""Claims about V = B = I, where every direction is in E: how fast small waves of the density grow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import special

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import SelfAttention
from metastable.measure import Measure
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.concentration.great_circle import THEME
from metastable.papers.concentration.measuring import run
from metastable.papers.concentration.sources import ESTIMATE
from metastable.papers.reading import listed
from metastable.theory import growth_rate
from metastable.weights import AttentionWeights

MODE_BETAS = (8.0, 32.0, 128.0)
"""Inverse temperatures at which density modes on the circle are followed."""


def mode_experiment(setting: Setting) -> Outcome:
    """V = B = I on the circle: growth of a small density mode k against k^2 I_k(beta)/(beta I_0(beta))."""
    n, size, t = setting.choose(512, 1024), 1e-5, 1.0
    w = AttentionWeights(V=np.eye(2), B=np.eye(2))
    modes = np.array(setting.choose((1, 2, 4, 8, 12), (1, 2, 3, 4, 6, 8, 10, 12, 16), (1, 4, 12)))
    theta = 2 * np.pi * (np.arange(n) + 0.5) / n
    measured: dict[float, list[float]] = {beta: [] for beta in MODE_BETAS}
    for beta in MODE_BETAS:
        for k in modes:
            rho0 = Measure(sphere.from_angles(theta), 1 + size * np.cos(k * theta))
            path = run(w, beta, rho0, [0.0, t], rtol=1e-10)
            angle = sphere.angles(path.points[1]).numpy()
            amplitude = 2 * float((path.mass.numpy() * np.cos(k * angle)).sum())
            measured[beta].append(math.log(amplitude / size) / t)
    return _rates("mode", modes, measured, growth_rate, lambda k, beta: growth_rate(k, beta, 3))


def _rates(
    name: str,
    k: np.ndarray,
    measured: dict[float, list[float]],
    exact: Callable[[int, float], float],
    elsewhere: Callable[[int, float], float],
) -> Outcome:
    """Measured growth rates by beta and mode beside the exact ones, those of another sphere, and k^2/beta."""
    rows = as_rows({name: k} | {f"measured, beta = {beta:g}": rates for beta, rates in measured.items()})

    def error(rate: Callable[[int, float], float]) -> float:
        return max(
            abs(found / rate(int(mode), beta) - 1)
            for beta, rates in measured.items()
            for mode, found in zip(k, rates, strict=True)
        )

    return Outcome(
        error(exact),
        curves={"k": k, "beta": np.array(list(measured)), "measured": np.array(list(measured.values()))},
        table=rows,
        rivals={
            "backward heat": error(lambda mode, beta: mode**2 / beta),
            "another dimension": error(elsewhere),
            "2/e": error(lambda mode, beta: 2 / math.e),
        },
    )


def _rates_figure(outcome: Outcome, title: str, name: str, exact: Callable[[np.ndarray, float], Any]) -> Lines:
    """Measured rates as points on the curves of the formula, which is one for real k, too."""
    k, series = outcome.curves["k"], []
    grid = np.linspace(k[0], k[-1], 121)
    for place, (beta, rates) in enumerate(zip(outcome.curves["beta"], outcome.curves["measured"], strict=True)):
        series.append(Series(grid, exact(grid, beta), f"β = {beta:g}", colour=place))
        series.append(Series(k, rates, "" if place else "measured", "points", colour=place))
    series.append(Series(grid[[0, -1]], np.full(2, 2 / math.e), "2/e", "dotted", colour=len(series)))
    return Lines(title, name, "growth rate", series)


def mode_figure(outcome: Outcome) -> Lines:
    """Growth rates."""
    return _rates_figure(
        outcome,
        "Growth of density modes on the circle, V = B = I: k² I_k(β)/(β I₀(β))",
        "mode k",
        lambda k, beta: k**2 * special.ive(k, beta) / (beta * special.ive(0, beta)),
    )


HARMONIC_BETAS = (2.0, 8.0, 32.0)
"""Inverse temperatures at which harmonics on S^2 are followed."""


def identity_experiment(setting: Setting) -> Outcome:
    """V = B = I on S^2: rate of a small perturbation by the Legendre polynomial of degree k, from the field."""
    points, weight = sphere.product_gauss(setting.choose(60, 90))
    degrees, size = np.arange(1, 9), 1e-6
    z = points[:, 2].numpy()
    measured: dict[float, list[float]] = {beta: [] for beta in HARMONIC_BETAS}
    for beta in HARMONIC_BETAS:
        flow = SelfAttention(AttentionWeights(V=np.eye(3), B=np.eye(3)), beta)
        for k in degrees:
            wave = special.eval_legendre(k, z)
            slope_of_wave = k * (z * wave - special.eval_legendre(k - 1, z)) / (z**2 - 1)
            mass = torch.from_numpy(weight.numpy() * (1 + size * wave))
            velocity = flow.velocity(0.0, points, mass)[:, 2].numpy()
            growth = float((mass.numpy() * slope_of_wave * velocity).sum())
            measured[beta].append(growth * (2 * k + 1) / size)
    return _rates("degree", degrees, measured, lambda k, beta: growth_rate(k, beta, 3), growth_rate)


def identity_figure(outcome: Outcome) -> Lines:
    """Growth rates by degree."""
    return _rates_figure(
        outcome,
        "Growth of harmonics on S², V = B = I: k(k+1) I_{k+½}(β)/(β I_½(β))",
        "degree k",
        lambda k, beta: k * (k + 1) * special.ive(k + 0.5, beta) / (beta * special.ive(0.5, beta)),
    )


CLAIMS = (
    Claim(
        "great-circle-modes",
        f"Inside E density modes grow at k^2 I_k(beta)/(beta I_0(beta)), at most 2/e whatever beta is (beta = "
        f"{listed(MODE_BETAS)}).",
        mode_experiment,
        expected=0.0,
        tolerance=1e-3,
        reason="linear response to a perturbation of 1e-5; the next order is 1e-4",
        source=ESTIMATE,
        figure=mode_figure,
        theme=THEME,
        unit="largest relative error",
        effort=3,
        rivals={
            "backward heat": "Modes grow like those of a backward heat equation, at k^2/beta.",
            "another dimension": "Modes grow at the rate of harmonics on S^2.",
            "2/e": "All modes grow at 2/e.",
        },
    ),
    Claim(
        "identity-weights",
        "For V = B = I on S^2 harmonics of degree k grow at k(k+1) I_{k+1/2}(beta)/(beta I_{1/2}(beta)) "
        f"(beta = {listed(HARMONIC_BETAS)}).",
        identity_experiment,
        expected=0.0,
        tolerance=1e-5,
        reason="linear response to a perturbation of 1e-6 on a product Gauss rule",
        source=ESTIMATE,
        figure=identity_figure,
        theme=THEME,
        unit="largest relative error",
        rivals={
            "backward heat": "Harmonics grow at k^2/beta.",
            "another dimension": "Harmonics grow at the rate of density modes on the circle.",
            "2/e": "All harmonics grow at 2/e.",
        },
    ),
)
