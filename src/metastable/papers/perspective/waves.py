"""Claims about the uniform state: how fast its waves grow, and into how many clusters it breaks."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import SelfAttention
from metastable.measure import Measure
from metastable.observe import cluster_count
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.perspective.sources import ESTIMATE, WAVES
from metastable.papers.perspective.tokens import NAMES, attention, identity
from metastable.papers.reading import fine, listed, slope, spanned
from metastable.solve import solve
from metastable.theory import fastest_mode, growth_rate

THEME = "Waves of the uniform state"
SIZE = 1e-5
"""Size of the first wave: what is linear in it has an error of second order."""
NODES = 256
"""Equispaced tokens of the circle: waves up to 12 are exact to far below the size of the wave squared."""


def wave_betas(setting: Setting) -> tuple[float, ...]:
    """Inverse temperatures at which waves grow."""
    return tuple(setting.choose((1.0, 4.0, 12.0), (0.5, 1.0, 4.0, 8.0, 12.0)))


def wave_experiment(setting: Setting) -> Outcome:
    """Growth of the density wave 1 + e cos k theta on the circle over the exact rate, for both flows."""
    modes = np.array(setting.choose((1, 2, 4, 7), tuple(range(1, 11)), (1, 3, 6)))
    theta = 2 * np.pi * (np.arange(NODES) + 0.5) / NODES
    measured: dict[tuple[float, bool], list[float]] = {}
    for beta in wave_betas(setting):
        for normalized in (True, False):
            t = 0.5 / (1.0 if normalized else math.exp(beta))
            measured[beta, normalized] = []
            for k in modes:
                rho0 = Measure(sphere.from_angles(theta), 1 + SIZE * np.cos(k * theta))
                end = solve(attention(2, beta, normalized), rho0, t, rtol=1e-11, atol=1e-13).end
                angle = sphere.angles(end.points).numpy()
                amplitude = 2 * float((end.mass.numpy() * np.cos(k * angle)).sum())
                measured[beta, normalized].append(math.log(amplitude / SIZE) / t)

    def error(rate: Callable[[int, float, bool], float]) -> list[float]:
        """By the largest rate of a flow: slow waves are small against the rounding of fast ones."""
        return [
            float(np.abs(np.array(rates) - [rate(int(k), beta, which) for k in modes]).max() / max(rates))
            for (beta, which), rates in measured.items()
        ]

    def exact(k: int, beta: float, normalized: bool) -> float:
        return growth_rate(k, beta, normalized=normalized)

    return Outcome(
        max(error(exact)),
        curves={"k": modes.astype(float)}
        | {f"{beta:g} {NAMES[which]}": np.array(rates) for (beta, which), rates in measured.items()},
        table=as_rows(
            {"k": modes} | {f"beta = {beta:g}, {NAMES[which]}": rates for (beta, which), rates in measured.items()}
        ),
        rivals={
            "the other normalisation": min(error(lambda k, beta, which: exact(k, beta, not which))),
            "another dimension": min(error(lambda k, beta, which: growth_rate(k, beta, 3, which))),
            "backward heat": min(error(lambda k, beta, which: k**2 / beta)),
        },
    )


def wave_figure(outcome: Outcome) -> Lines:
    """Measured rates as points on the curves of the formulas."""
    k, series = outcome.curves["k"], []
    grid = np.linspace(k[0], k[-1], 121)
    for place, (name, rates) in enumerate((n, r) for n, r in outcome.curves.items() if n != "k"):
        beta = float(name.split()[0])
        exact = grid**2 * special.ive(grid, beta) / beta * math.exp(beta)
        if "softmax" in name:
            exact /= special.iv(0, beta)
        series.append(Series(grid, exact, f"β = {name}", colour=place))
        series.append(Series(k, rates, "" if place else "measured", "points", colour=place))
    return Lines(
        "Waves of the uniform law on the circle, V = B = I", "wave number k", "growth rate", series, log_y=True
    )


def cluster_betas(setting: Setting) -> np.ndarray:
    """Inverse temperatures at which clusters are counted."""
    return np.array(setting.choose((12.0, 50.0, 200.0), (25.0, 50.0, 100.0, 200.0, 400.0), (12.0, 50.0, 200.0)))


SETTLED = 12.0
"""Time of counting: waves of 40 sqrt(beta) tokens grow to clusters until about 5, clusters merge much later."""
PER_WIDTH = 40
"""Tokens per width beta^{-1/2} of the attention of one token: enough of them to be a density."""


def cluster_experiment(setting: Setting) -> Outcome:
    """Exponent in beta of the number of clusters that uniform tokens on the circle have at time 12."""
    betas, draws = cluster_betas(setting), setting.choose(8, 16, 6)
    counts = np.zeros((draws, len(betas)))
    for place, beta in enumerate(betas):
        n = int(PER_WIDTH * math.sqrt(beta))
        for draw, seed in enumerate(setting.seeds(draws, n)):
            rho0 = sphere.uniform(n, 2, seed=seed)
            end = solve(SelfAttention(identity(2), beta), rho0, SETTLED, rtol=1e-4, atol=1e-6).end
            counts[draw, place] = cluster_count(end, angle=0.3 / math.sqrt(beta))
    exponents = [slope(np.log(betas), np.log(row)) for row in counts]
    mean, fastest = counts.mean(0), [fastest_mode(beta)[0] for beta in betas]
    return Outcome(
        float(np.mean(exponents)),
        uncertainty=float(np.std(exponents, ddof=1) / math.sqrt(draws)),
        curves={"beta": betas, "clusters": mean},
        table=as_rows(
            {"beta": betas, "clusters": mean, "fastest wave": fastest, "sqrt(2 beta)": np.sqrt(2 * betas)}
        ),
        rivals={
            "one per unit of beta": 1.0,
            "whatever beta": 0.0,
            "cells of the sphere": 1 / 3,
        },
    )


def cluster_figure(outcome: Outcome) -> Lines:
    """Number of clusters against beta."""
    beta, found = outcome.curves["beta"], outcome.curves["clusters"]
    grid = fine(beta)
    return Lines(
        "Clusters of uniform tokens on the circle, t = 12",
        "inverse temperature β",
        "number of clusters",
        [Series(beta, found, "tokens", "points", colour=0), Series(grid, np.sqrt(2 * grid), "√(2β)", colour=0)],
        log_x=True,
        log_y=True,
    )


CLAIMS = (
    Claim(
        "waves-of-both-flows",
        lambda setting: (
            "On the circle the wave k of the uniform law grows at k^2 I_k(beta)/(beta I_0(beta)) (softmax) and at "
            f"k^2 I_k(beta)/beta (unnormalised), beta = {listed(wave_betas(setting))}."
        ),
        wave_experiment,
        expected=0.0,
        tolerance=1e-4,
        reason="linear response to a wave of 1e-5; the next order is its square, 1e-10 over a wave of 1e-5",
        source=ESTIMATE,
        figure=wave_figure,
        theme=THEME,
        unit="largest error by the fastest rate",
        effort=2,
        rivals={
            "the other normalisation": "Both flows have the same rates.",
            "another dimension": "Waves grow like harmonics on S^2.",
            "backward heat": "Waves grow at k^2/beta, as under a backward heat equation.",
        },
    ),
    Claim(
        "number-of-clusters",
        lambda setting: (
            "Uniform tokens on the circle break into a number of clusters that grows like beta^(1/2), as "
            "sqrt(2 beta) "
            f"does (beta {spanned(cluster_betas(setting))})."
        ),
        cluster_experiment,
        expected=0.5,
        tolerance=0.12,
        reason="counts differ by one or two of 5 to 25 from the wave number, which is 0.1 in the exponent",
        source=WAVES,
        figure=cluster_figure,
        theme=THEME,
        unit="exponent of beta",
        effort=4,
        rivals={
            "one per unit of beta": "Their number is proportional to beta.",
            "whatever beta": "Their number does not depend on beta.",
            "cells of the sphere": "Their number grows like beta^(1/3).",
        },
    ),
)
