"""The claim about n in the main theorem when dim E = 2: points on a great circle, whose density modes grow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from metastable.drawing import Lines, Series
from metastable.flows import SelfAttention
from metastable.measure import Ensemble
from metastable.papers.chaos.sampling import Mean, pooled, uniform_contexts, with_fewer
from metastable.papers.claim import Outcome, Setting
from metastable.papers.own_error import OwnError, with_systematic
from metastable.papers.reading import beside, spanned
from metastable.papers.verdict import ESTIMATE
from metastable.solve import solve
from metastable.theory import clustering_time, sampled_circle_distance
from metastable.weights import AttentionWeights

THEME = "Finite context in the main theorem"


class Case(NamedTuple):
    """V = 1 on the circle and `beside` it, B = I, on S^{d-1}."""

    d: int
    beta: float
    beside: float = -3.0

    @property
    def flow(self) -> SelfAttention:
        """The flow."""
        V = np.diag([1.0, 1.0] + [self.beside] * (self.d - 2))
        return SelfAttention(AttentionWeights(V=V, B=np.eye(self.d)), self.beta)


CASES = (Case(2, 4.0), Case(2, 16.0), Case(3, 4.0), Case(3, 8.0), Case(3, 16.0, -1.0))
COUNTS = (32, 64, 128), (32, 64, 128, 256), (24, 48, 96)
DRAWS = 240, 2000, 200
"""Tokens, and samples of each number."""
SHARES = (0.0, 0.125, 0.25)
"""Times in units of ln sqrt(n)/sigma_max: up to the end of the range."""
NEXT_POWER = -0.75
"""Of n in what modes of finite size change: their squares, e^{2 sigma_max t}/n, are n^{-3/4} at the end of the
range, and less before."""


def along(points: Tensor) -> np.ndarray:
    """Geodesic W2^2 (draws,) between the angles of tokens in the plane of E and the uniform law on the circle."""
    n = points.shape[-2]
    angle = np.sort(np.arctan2(points[..., 1].numpy(), points[..., 0].numpy()), axis=-1)
    return np.asarray((angle - 2 * math.pi * np.arange(n) / n).var(axis=-1) + (2 * math.pi / n) ** 2 / 12)


def circle_experiment(setting: Setting) -> Outcome:
    """Measured W2^2 along E over the formula at the last two times, in the mean over cases, numbers and times."""
    counts = setting.choose(*COUNTS)
    sizes = with_fewer(counts, [setting.choose(*DRAWS)] * len(counts))[1:]
    rows: list[dict[str, float]] = []
    ratios: dict[int, list[Mean]] = {n: [] for n, _ in sizes}
    rivals: dict[str, list[Mean]] = {"tokens at rest": [], "no dependence on n": [], "n^(-1/2)": []}
    curves: dict[str, np.ndarray] = {}
    for place, case in enumerate(CASES):
        for n, draws in sizes:
            times = np.array(SHARES) * clustering_time(n, case.beta)
            tokens = Ensemble(uniform_contexts(draws, n, case.d, setting.seeds(1, 95, place, n)[0]))
            path = solve(case.flow, tokens, t=float(times[-1]), times=times, rtol=1e-3, atol=1e-3)
            found = [Mean.of(along(points)) for points in path.points]
            formula = np.asarray(sampled_circle_distance(times, case.beta, n))
            for t, mean, expected in list(zip(times, found, formula, strict=True))[1:]:
                ratios[n].append(Mean(*(value / expected for value in mean)))
                if n < counts[0]:
                    continue
                least = expected * n / counts[0]
                others = (math.pi**2 / (3 * n), least, least * math.sqrt(counts[0] / n))
                for name, other in zip(rivals, others, strict=True):
                    rivals[name].append(Mean(*(value / other for value in mean)))
                rows.append({"d": case.d, "beta": case.beta, "n": n, "t": float(t), "E W2^2": mean.value})
                rows[-1] |= {"standard error": mean.error, "formula": float(expected)}
            if place == 0 and n >= counts[0]:
                curves |= {f"t {n}": times, f"measured {n}": np.array([m.value for m in found])}
                curves[f"error {n}"] = np.array([m.error for m in found])
    outcome = Outcome(
        *_pooled([one for n in counts for one in ratios[n]]),
        rivals={name: _pooled(values) for name, values in rivals.items()},
        curves=curves,
        table=rows,
        note="the mean over the cases of the table",
    )
    return with_systematic(outcome, finite_modes({n: Mean(*_pooled(found)) for n, found in ratios.items()}, counts))


def finite_modes(ratios: Mapping[int, Mean], counts: Sequence[int]) -> float:
    """Mean over the counts of |b| n^NEXT_POWER, in ratios 1 + a + b n^NEXT_POWER to all numbers of tokens, with two
    standard errors of b."""
    (value, error), n = np.array(list(ratios.values())).T, np.array(list(ratios), dtype=float)
    (b, _), covariance = np.polyfit(n**NEXT_POWER, value, 1, w=1 / error, cov="unscaled")
    largest = abs(b) + 2 * math.sqrt(covariance[0, 0])
    return float(largest * np.mean(np.array(counts, dtype=float) ** NEXT_POWER))


def _pooled(ratios: list[Mean]) -> tuple[float, float]:
    """Mean and standard error; the two times of a run share their samples, and count as one."""
    value, error = pooled(ratios)
    return value, error * math.sqrt(len(SHARES) - 1)


def circle_figure(outcome: Outcome) -> Lines:
    """W2^2 against time."""
    curves = outcome.curves
    counts = [int(name.removeprefix("t ")) for name in curves if name.startswith("t ")]
    beta = CASES[0].beta
    dots, lines = [], []
    for i, n in enumerate(counts):
        t, value, error = (curves[f"{key} {n}"] for key in ("t", "measured", "error"))
        grid = np.linspace(0, t[-1], 61)
        dots.append(Series(t, value, f"n = {n}", "points", colour=i, error=error))
        lines.append(Series(grid, np.asarray(sampled_circle_distance(grid, beta, n)), "", colour=i))
    title = f"n iid tokens on the circle, V = I, β = {beta:g}; lines: formula"
    return Lines(title, "time t", "E W₂(ρ_tⁿ, σ)²", beside(dots, lines), log_y=True)


CLAIMS = (
    OwnError(
        "finite-context-circle",
        lambda setting: (
            "When dim E = 2, n iid tokens of a law that is uniform along E are on average W2^2 = (2/n) sum_k e^(2 "
            "sigma_k t)/k^2 away from Pi#rho_0 along E, pi^2/(3n) at first: circle and S^2, beta from 4 to 16, n "
            f"{spanned(setting.choose(*COUNTS))}, until a quarter of ln sqrt(n)/sigma_max."
        ),
        circle_experiment,
        expected=1.0,
        reason="modes of finite size, of the order n^(-3/4) at the end of the range: fitted with half of the "
        "smallest n, too, with two standard errors of the fit",
        source=ESTIMATE,
        figure=circle_figure,
        theme=THEME,
        unit="measured / formula, in the mean",
        effort=5,
        rivals={
            "tokens at rest": "Sampling alone counts, pi^2/(3n).",
            "no dependence on n": "The distance is that of the smallest n.",
            "n^(-1/2)": "W2^2 falls like n^(-1/2), as for two points.",
        },
    ),
)
