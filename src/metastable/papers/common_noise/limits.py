"""Claims about limits: random transformers of depth L and width m, the law of a token, common against own noise."""

from __future__ import annotations

import math

import numpy as np
import torch

from metastable.drawing import Lines, Series
from metastable.flows import CommonNoise
from metastable.measure import Ensemble
from metastable.papers.agreement import agreement_figure
from metastable.papers.claim import Outcome, Setting, as_rows
from metastable.papers.common_noise.one_layer import kept_by_layers
from metastable.papers.common_noise.pairs import LEFT_BY_STEPS, extrapolated, mean_and_error
from metastable.papers.own_error import OwnError, with_systematic
from metastable.papers.reading import fine, slope
from metastable.papers.verdict import ESTIMATE
from metastable.solve import solve
from metastable.theory import TwoPointMotion

PAPER = "arXiv:2604.26898"
THEME = "Limits of random transformers"
DIMENSION, ACTIVATION, DEPTH_TIME = 8, "relu", 0.5
"""Of the transformers: here the bias of a layer is large, while e^{-7/8} = 0.42 of the start is remembered."""
DEPTHS = (4, 8, 16)
DEPTH_WIDTHS = (4, 8)
DEPTH_SAMPLES = (15_000, 100_000, 15_000)
WIDTHS = (4, 8, 16)
WIDTH_DEPTH, WIDTH_TIME = 2, 1.0
WIDTH_SAMPLES = (30_000, 200_000, 30_000)
HEAT = (("relu", 3), ("linear", 4), ("gelu", 6))
HEAT_SAMPLES = (4000, 30_000, 2000)
HEAT_STEPS = 16
"""Of the middle run, in which d kappa(1) h = 1/16."""


def remembered(width: int | None, depth: int, t: float, samples: int, seed: int) -> tuple[float, float]:
    """E<x_L, x_0> of one token after L random layers of this width, and its standard error."""
    points = torch.zeros(samples, 1, DIMENSION, dtype=torch.float64)
    points[:, :, 0] = 1.0
    flow = CommonNoise(activation=ACTIVATION, width=width)
    end = solve(flow, Ensemble(points), t, step=t / depth, seed=seed, method="layers").end.points
    return mean_and_error(end[:, 0, 0].numpy())


def limit_value() -> float:
    """E<x_T, x_0> of the limit, e^{-(d-1) kappa(1) T/2}, at the time of the depths."""
    return math.exp(-(DIMENSION - 1) * TwoPointMotion(ACTIVATION, DIMENSION).covariance.one * DEPTH_TIME / 2)


def power(counts: np.ndarray, gaps: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
    """Exponent of a power law through the gaps, and its standard error."""
    x = np.log(counts)
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    return slope(x, np.log(np.abs(gaps))), float(np.sqrt(((weights * errors / gaps) ** 2).sum()))


def depth_experiment(setting: Setting) -> Outcome:
    """Exponent of L in the distance of E<x_L, x_0> to its limit, mean over two small widths."""
    samples, counts = setting.choose(*DEPTH_SAMPLES), np.array(DEPTHS, dtype=float)
    exponents, errors, bends, rows = [], [], [], []
    curves: dict[str, np.ndarray] = {"L": counts, "fine": fine(counts)}
    for k, width in enumerate(DEPTH_WIDTHS):
        found, error = (
            np.array(row)
            for row in zip(
                *(
                    remembered(width, depth, DEPTH_TIME, samples, setting.seeds(1, 70, k, depth)[0])
                    for depth in DEPTHS
                ),
                strict=True,
            )
        )
        gap = found - limit_value()
        exponent, uncertainty = power(counts, gap, error)
        exponents.append(exponent)
        errors.append(uncertainty)
        exact = [kept_by_layers(width, depth, DEPTH_TIME, DIMENSION) - limit_value() for depth in DEPTHS]
        bends.append(power(counts, np.array(exact), error)[0] + 1)
        name = f"m = {width}"
        rows += as_rows({"width": [name] * len(counts), "L": DEPTHS, "gap": gap, "standard error": error})
        level = math.exp(float(np.mean(np.log(np.abs(gap)) + np.log(counts))))
        curves |= {f"gap {name}": gap, f"error {name}": error, f"law {name}": level / curves["fine"]}
    outcome = power_outcome(float(np.mean(exponents)), math.hypot(*errors) / len(errors), curves, rows)
    return with_systematic(outcome, float(np.mean(bends)))


def power_outcome(
    exponent: float, error: float, curves: dict[str, np.ndarray], rows: list[dict[str, object]]
) -> Outcome:
    """The outcome of a claim that a gap falls like the inverse."""
    rivals = {"inverse root": (-0.5, error), "no limit": (0.0, error), "inverse square": (-2.0, error)}
    return Outcome(exponent, error, rivals=rivals, curves=curves, table=rows)


def width_experiment(setting: Setting) -> Outcome:
    """Exponent of m in the distance of E<x_L, x_0> to that of infinite width, at one depth."""
    samples, counts = setting.choose(*WIDTH_SAMPLES), np.array(WIDTHS, dtype=float)
    seeds = setting.seeds(len(WIDTHS) + 1, 80)
    wide, wide_error = remembered(None, WIDTH_DEPTH, WIDTH_TIME, samples, seeds[-1])
    found, error = (
        np.array(row)
        for row in zip(
            *(
                remembered(m, WIDTH_DEPTH, WIDTH_TIME, samples, seed)
                for m, seed in zip(WIDTHS, seeds, strict=False)
            ),
            strict=True,
        )
    )
    gap, noise = found - wide, np.hypot(error, wide_error)
    exponent, uncertainty = power(counts, gap, noise)
    level = math.exp(float(np.mean(np.log(np.abs(gap)) + np.log(counts))))
    name = f"L = {WIDTH_DEPTH}"
    curves = {"m": counts, "fine": fine(counts), f"gap {name}": gap, f"error {name}": noise}
    curves[f"law {name}"] = level / curves["fine"]
    rows = as_rows({"m": WIDTHS, "gap to m = ∞": gap, "standard error": noise})
    limit = kept_by_layers(None, WIDTH_DEPTH, WIDTH_TIME, DIMENSION)
    exact = np.array([kept_by_layers(m, WIDTH_DEPTH, WIDTH_TIME, DIMENSION) - limit for m in WIDTHS])
    return with_systematic(power_outcome(exponent, uncertainty, curves, rows), power(counts, exact, noise)[0] + 1)


def gap_figure(outcome: Outcome) -> Lines:
    """Gaps with their law."""
    curves = outcome.curves
    letter = "L" if "L" in curves else "m"
    names = [name.removeprefix("gap ") for name in curves if name.startswith("gap ")]
    series = []
    for i, name in enumerate(names):
        series.append(
            Series(curves[letter], curves[f"gap {name}"], name, "points", colour=i, error=curves[f"error {name}"])
        )
        series.append(Series(curves["fine"], curves[f"law {name}"], f"1/{letter}, {name}", "dashed", colour=i))
    what = "depth L" if letter == "L" else "width m"
    title = f"Approach to the limit of random transformers in the {what}, ReLU, d = 8"
    marks = {float(x): f"{x:g}" for x in curves[letter]}
    y_label = "E⟨x_T, x_0⟩ less its limit"
    return Lines(title, what, y_label, series, log_x=True, log_y=True, x_ticks=marks)


def heat_experiment(setting: Setting) -> Outcome:
    """Decay of the first two harmonics of the law of a token over kappa(1) l(l+d-2)/2, by both methods."""
    ratios, errors, steps, rows = [], [], [], []
    others: dict[str, list[float]] = {"flat space": [], "half the Itô term": []}
    by_degree: dict[str, list[tuple[float, float, float]]] = {}
    samples = setting.choose(*HEAT_SAMPLES)
    for k, (activation, d) in enumerate(HEAT):
        one = TwoPointMotion(activation, d).covariance.one
        points = torch.zeros(samples, 1, d, dtype=torch.float64)
        points[:, :, 0] = 1.0
        t = 1.0 / (d * one)
        for j, method in enumerate(("euler-maruyama", "heun")):
            flow, seed = CommonNoise(activation=activation), setting.seeds(1, 90, k, j)[0]
            for l in (1, 2):
                observe = lambda x, l=l, d=d: harmonic(x[:, 0, 0].numpy(), l, d)  # noqa: E731
                found = extrapolated(flow, Ensemble(points), t, t / HEAT_STEPS, seed, observe, method)
                mean, error = mean_and_error(found.values)
                rate, predicted = -math.log(mean) / t, one * l * (l + d - 2) / 2
                ratios.append(rate / predicted)
                errors.append(error / mean / t / predicted)
                steps.append(float(found.left.mean()) / mean / t / predicted)
                others["flat space"].append(rate / (one * l * d / 2))
                others["half the Itô term"].append(rate / (predicted / 2))
                case = {"activation": activation, "d": d, "degree": l, "method": method}
                rows.append(case | {"predicted": predicted, "measured": rate})
                place = (predicted / one, rate / one, error / mean / t / one)
                by_degree.setdefault(f"degree {l}, {method}", []).append(place)
    weights = 1 / np.array(errors) ** 2
    mean, error = float(np.average(ratios, weights=weights)), 1 / math.sqrt(weights.sum() / 2)
    outcome = Outcome(
        mean,
        error,
        rivals={name: (float(np.average(v, weights=weights)), error) for name, v in others.items()},
        curves={
            f"{kind} {name}": np.array(column)
            for name, places in by_degree.items()
            for kind, column in zip(("expected", "measured", "error"), zip(*places, strict=True), strict=True)
        },
        table=rows,
    )
    return with_systematic(outcome, float(np.average(steps, weights=weights)))


def heat_figure(outcome: Outcome) -> Lines:
    """Rates of harmonics beside those of the heat equation."""
    title = "Decay of harmonics of the averaged law of a token"
    return agreement_figure(outcome, title, "l(l+d−2)/2", "measured rate / κ(1)")


def harmonic(u: np.ndarray, degree: int, d: int) -> np.ndarray:
    """The zonal harmonic of degree 1 or 2, one at u = 1."""
    return u if degree == 1 else (d * u**2 - 1) / (d - 1)


POWERS = {
    "inverse root": "It is a fluctuation, of the inverse root.",
    "no limit": "It does not fall.",
    "inverse square": "The first correction cancels.",
}

CLAIMS = (
    OwnError(
        "transformer-depth-limit",
        "Random transformers of a fixed width tend to the stochastic limit as their depth L grows, with an error "
        "like 1/L (E⟨x_T, x_0⟩ of ReLU layers, d = 8, widths 4 and 8, L from 4 to 16).",
        depth_experiment,
        expected=-1.0,
        reason="the next order in 1/L: how far the exponent of the exact E⟨x_T, x_0⟩, a power of one layer's, is "
        "from −1 at these depths",
        source=PAPER + ", with metastable's rate",
        figure=gap_figure,
        theme=THEME,
        unit="exponent of L",
        effort=6,
        rivals=POWERS,
    ),
    OwnError(
        "transformer-width-limit",
        "At a fixed depth they tend to those of infinite width, with a Gaussian field for a layer, with an error "
        "like 1/m (two ReLU layers, d = 8, m from 4 to 16).",
        width_experiment,
        expected=-1.0,
        reason="the next order in 1/m: how far the exponent of the exact E⟨x_T, x_0⟩, a power of one layer's, is "
        "from −1 at these widths",
        source=PAPER + ", with metastable's rate",
        figure=gap_figure,
        theme=THEME,
        unit="exponent of m",
        effort=5,
        rivals=POWERS,
    ),
    OwnError(
        "annealed-law-is-heat",
        "Averaged over the noise the law of a token solves the heat equation ∂ρ = ½κ(1)Δρ: harmonics of degree l "
        "decay with the rate κ(1)l(l+d−2)/2, by Itô's and by Stratonovich's method (l = 1 and 2, d from 3 to 6).",
        heat_experiment,
        expected=1.0,
        reason=LEFT_BY_STEPS,
        source=ESTIMATE,
        figure=heat_figure,
        theme=THEME,
        unit="measured rate / predicted",
        effort=3,
        rivals={
            "flat space": "Rates κ(1)ld/2, without the curvature of the sphere.",
            "half the Itô term": "A correction of κ(1)(d−1)x/4, as if the noise were evaluated half way.",
        },
    ),
)
