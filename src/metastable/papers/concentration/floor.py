"""Claims about finite beta at moderate times: error in beta, floor of W2, its collapse, its plateau."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from metastable.drawing import Lines, Series, shaded
from metastable.meanfield import Harmonics, Skewed, Uniform, nodes, reference_skew
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.concentration.families import plain, sheared
from metastable.papers.concentration.measuring import distance_curve, distances, mean_field, run, slope
from metastable.papers.concentration.sources import ESTIMATE
from metastable.theory import limit, zero_temperature

THEME = "Error and floor in beta"
TILT = 0.5
"""a of the density (1 + a cos)/2pi on which the mass that changes sides is counted."""


def error_experiment(setting: Setting) -> Outcome:
    """rms |x_beta(t) - x_0(t)| over tokens that start together, at fixed t, against beta; it bounds W2."""
    betas = np.array(setting.choose((50.0, 100.0, 200.0), (50.0, 100.0, 200.0, 400.0, 800.0)))
    w, times = sheared(0.5), np.array([0.0, 1.0, 2.0])
    errors = []
    for beta in betas:
        path = mean_field(w, beta, Uniform(2), times, tol=1e-5)
        gap = path.points[1:] - zero_temperature(w, path.points[0], times[1:])
        errors.append(((gap**2).sum(2) @ path.mass).sqrt().numpy())
    table = np.array(errors)
    slopes = [slope(np.log(betas), np.log(table[:, i])) for i in range(2)]
    rows = as_rows({"t": times[1:], "slope": slopes})
    return Outcome(
        max(slopes, key=lambda value: abs(value + 1)),
        curves={"beta": betas, "t = 1": table[:, 0], "t = 2": table[:, 1]},
        table=rows,
    )


def error_figure(outcome: Outcome) -> Lines:
    """Error against beta with the slope -1 and the theorem's sqrt(log(beta+1)/beta)."""
    beta = outcome.curves["beta"]
    series = [Series(beta, outcome.curves[k], k, "points") for k in ("t = 1", "t = 2")]
    anchor = outcome.curves["t = 2"][0] * beta[0]
    series.append(Series(beta, anchor / beta, "slope −1", "dashed"))
    series.append(Series(beta, np.sqrt(np.log(beta + 1) / beta), "√(log(β+1)/β)", "dotted"))
    return Lines(
        "Error of the zero-temperature limit at fixed time",
        "inverse temperature β",
        "rms |x_β(t) − x₀(t)|",
        series,
        log_x=True,
        log_y=True,
    )


def floors(setting: Setting) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Smallest W2 over time of the skewed law, B = I, for each beta; and the curves."""
    betas = np.array(setting.choose((25.0, 80.0), (25.0, 50.0, 100.0, 200.0, 400.0)))
    times = np.linspace(0, setting.choose(8, 11), 37)
    curves = {f"W2 {beta:g}": distance_curve(plain(), beta, reference_skew(), times) for beta in betas}
    least = np.array([curves[f"W2 {beta:g}"].min() for beta in betas])
    return betas, least, {"t": times, "beta": betas, "floor": least, **curves}


def floor_experiment(setting: Setting) -> Outcome:
    """Exponent of the floor in beta."""
    betas, least, curves = floors(setting)
    rows = as_rows({"beta": betas, "floor": least, "floor/sqrt(log(beta+1)/beta)": least / _theorem(betas)})
    return Outcome(slope(np.log(betas), np.log(least)), curves=curves, table=rows)


def floor_figure(outcome: Outcome) -> Lines:
    """Floor against beta."""
    beta, least = outcome.curves["beta"], outcome.curves["floor"]
    return Lines(
        "Floor of W₂ for skewed data, V = diag(2, 1), B = I",
        "inverse temperature β",
        "min over t of W₂(ρ_t, Π#ρ₀)",
        [
            Series(beta, least, "mean field", "points"),
            Series(beta, least[0] * np.sqrt(beta[0] / beta), "slope −1/2", "dashed"),
            Series(beta, _theorem(beta), "√(log(β+1)/β)", "dotted"),
        ],
        log_x=True,
        log_y=True,
    )


def floor_mass_experiment(setting: Setting) -> Outcome:
    """Delta p: mass that ends in the cluster at +e1 beyond what Pi sends there, times beta."""
    betas = np.array(setting.choose((50.0, 100.0), (50.0, 100.0, 200.0, 400.0)))
    predicted = 2 * TILT / (2 * math.pi)  # beta * Delta p = l1 a/(2 pi g), l1 = 2, g = 1
    values = []
    for beta in betas:
        path = mean_field(plain(), beta, Skewed([1.0, 0.0], TILT), np.array([0.0, 8.0]))
        plus = float(path.mass[path.points[1][:, 0] > 0].sum())
        values.append(beta * (plus - 0.5 - TILT / math.pi))
    ratio = np.array(values) / predicted
    rows = as_rows({"beta": betas, "beta Delta p": values, "predicted": [predicted] * len(betas)})
    return Outcome(float(ratio[-1]), curves={"beta": betas, "ratio": ratio}, table=rows)


def floor_mass_figure(outcome: Outcome) -> Lines:
    """Ratio of measured to predicted Delta p."""
    beta = outcome.curves["beta"]
    return Lines(
        "Mass that changes sides: Δp = λ₁a/(2πgβ)",
        "inverse temperature β",
        "measured Δp / predicted",
        [
            Series(beta, outcome.curves["ratio"], "mean field", "points"),
            Series(beta, np.ones_like(beta), "prediction", "dashed"),
        ],
        log_x=True,
    )


def collapse_experiment(setting: Setting) -> Outcome:
    """Floor of symmetric data relative to that of skewed data, same beta, same times."""
    beta, n = 64.0, setting.choose(1600, 4000)
    times = np.linspace(0, 12, 49)
    laws = {"skewed": reference_skew(), "symmetric": Harmonics(cosine=(0.0, 0.5))}
    curves: dict[str, np.ndarray] = {"t": times}
    for name, law in laws.items():
        rho0 = nodes(law, 2, n, kind="graded", axis=[1.0, 0.0], depth=16.0)
        curves[name] = distances(run(plain(), beta, rho0, times, rtol=1e-6), limit(plain(), rho0))
    return Outcome(float(curves["symmetric"].min() / curves["skewed"].min()), curves=curves)


def collapse_figure(outcome: Outcome) -> Lines:
    """Both curves."""
    t = outcome.curves["t"]
    series = [Series(t, outcome.curves[k], f"{k} law") for k in ("skewed", "symmetric")]
    return Lines("The floor collapses for symmetric data, B = I", "time t", "W₂(ρ_t, Π#ρ₀)", series, log_y=True)


def symmetric_floor_experiment(setting: Setting) -> Outcome:
    """Offset of the cluster from e1 for the uniform law under G(0.5): its median of x_2/x_1 after concentration."""
    betas = np.array(setting.choose((200.0, 400.0), (200.0, 400.0, 800.0, 1600.0)))
    w, times = sheared(0.5), np.linspace(0, 7, 29)
    offsets = []
    for beta in betas:
        rho0 = nodes(Uniform(2), 2, int(70 * math.sqrt(beta)), kind="graded", axis=[1.0, 0.0], depth=10.0)
        path = run(w, beta, rho0, times, rtol=1e-7)
        offsets.append([abs(_median_ratio(x, path.mass)) for x in path.points])
    table = np.array(offsets)
    last = table[:, -1]
    rows = as_rows({"beta": betas, "offset at t = 7": last, "beta * offset": betas * last})
    curves = {"t": times, "beta": betas, "offset": table}
    return Outcome(slope(np.log(betas), np.log(last)), curves=curves, table=rows)


def _median_ratio(points: Tensor, mass: Tensor) -> float:
    """Median of x_2/x_1 in the half x_1 > 0, interpolated between nodes."""
    half = points[:, 0] > 0
    ratio = (points[half, 1] / points[half, 0]).numpy()
    weight = mass[half].numpy()
    order = np.argsort(ratio)
    level = np.cumsum(weight[order]) - weight[order] / 2
    return float(np.interp(weight.sum() / 2, level, ratio[order]))


def symmetric_floor_figure(outcome: Outcome) -> Lines:
    """beta times the offset in time."""
    t, betas = outcome.curves["t"], outcome.curves["beta"]
    scaled = [(t, b * row) for b, row in zip(betas, outcome.curves["offset"], strict=True)]
    series = shaded(scaled, [f"β = {b:g}" for b in betas])
    return Lines("Offset of the clusters from E, uniform law, G(0.5)", "time t", "β · |tan of the offset|", series)


def plateau_experiment(setting: Setting) -> Outcome:
    """Largest over smallest W2 long after concentration, V and V B^T sharing their dominant space."""
    beta = 64.0
    times = np.concatenate([np.linspace(0, 15, 31), np.linspace(20, setting.choose(60, 200), 9)])
    rho0 = nodes(reference_skew(), 2, setting.choose(800, 2000), kind="graded", axis=[1.0, 0.0], depth=20.0)
    w2 = distances(run(plain(), beta, rho0, times, rtol=1e-6), limit(plain(), rho0))
    late = times >= 15
    return Outcome(float(w2[late].max() / w2[late].min()), curves={"t": times, "W2": w2})


def plateau_figure(outcome: Outcome) -> Lines:
    """The curve."""
    series = [Series(outcome.curves["t"], outcome.curves["W2"], "β = 64, skewed law")]
    return Lines("Metastable plateau, V = diag(2, 1), B = I", "time t", "W₂(ρ_t, Π#ρ₀)", series, log_y=True)


def _theorem(beta: np.ndarray) -> np.ndarray:
    return np.sqrt(np.log(beta + 1) / beta)


CLAIMS = (
    Claim(
        "error-in-beta",
        "At fixed t and for a smooth law tokens at inverse temperature beta are 1/beta away from the "
        "zero-temperature flow, closer than the theorem's sqrt(log(beta+1)/beta).",
        error_experiment,
        expected=-1.0,
        tolerance=0.1,
        reason="exponent fitted on beta in [50, 800], where the next order in 1/beta still shows",
        source=ESTIMATE,
        figure=error_figure,
        theme=THEME,
        unit="exponent of beta",
        effort=6,
    ),
    Claim(
        "floor-exponent",
        "For skewed data W2 to Pi#rho_0 does not fall below a floor that scales like beta^{-1/2}: the theorem's "
        "power of beta is attained.",
        floor_experiment,
        expected=-0.5,
        tolerance=0.05,
        reason="exponent fitted on beta in [25, 400]; next order is 1/beta",
        source=ESTIMATE,
        figure=floor_figure,
        theme=THEME,
        unit="exponent of beta",
        effort=15,
    ),
    Claim(
        "floor-mass",
        "The floor is mass that crosses the shifted separatrix: Delta p = l1 a/(2 pi g beta) for the density "
        "f_0 = (1 + a cos)/2pi.",
        floor_mass_experiment,
        expected=1.0,
        tolerance=0.05,
        reason="first order in 1/beta, checked at the largest beta",
        source=ESTIMATE,
        figure=floor_mass_figure,
        theme=THEME,
        unit="measured / predicted",
        effort=5,
    ),
    Claim(
        "floor-collapse",
        "For antipodally symmetric data the two crossings cancel and the floor disappears (B = I).",
        collapse_experiment,
        expected=0.1,
        tolerance=0.0,
        reason="the skewed floor is of order beta^{-1/2}; without it only e^{-gt/2} is left at the end",
        source=ESTIMATE,
        figure=collapse_figure,
        relation="at most",
        theme=THEME,
        unit="floor symmetric / skewed",
        effort=5,
    ),
    Claim(
        "symmetric-floor-exponent",
        "When B^T e is not parallel to e, symmetric data keep a floor too, of order 1/beta: the distance of the "
        "clusters from E.",
        symmetric_floor_experiment,
        expected=-1.0,
        tolerance=0.1,
        reason="exponent on beta >= 200; the next order, beta^{-2}, still shows there",
        source=ESTIMATE,
        figure=symmetric_floor_figure,
        theme=THEME,
        unit="exponent of beta",
        effort=4,
    ),
    Claim(
        "plateau",
        "After concentration the law stays: when V and V B^T share their dominant space, W2 stays at its floor.",
        plateau_experiment,
        expected=1.0,
        tolerance=0.05,
        reason="what is left of the decay at t = 15 is e^{-7.5}, 1% of the floor",
        source=ESTIMATE,
        figure=plateau_figure,
        theme=THEME,
        unit="largest / smallest W2 for t >= 15",
        effort=4,
    ),
)
