"""Claims about whole curves: W2(rho_t, Pi#rho_0) against t for all beta, beside tokens and on S^2."""

from __future__ import annotations

import math

import numpy as np
import torch

from metastable import sphere
from metastable.drawing import Lines, Series, shaded
from metastable.meanfield import Skewed, nodes, reference_skew
from metastable.measure import Measure
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.concentration.families import sheared
from metastable.papers.concentration.measuring import distance_curve, distances, run, slope
from metastable.papers.concentration.sources import ESTIMATE, PAPER
from metastable.theory import distance_to_limit, forecast, limit, spectrum
from metastable.weights import AttentionWeights

THEME = "The curve W2(t)"
STABILITY, DECAY = 1.0, 0.5
"""C and c with which the theorem's bound is drawn for G(0.5): the spread of M, and min(g_in, g_out/2)."""


def theorem_curve(beta: float, times: np.ndarray) -> np.ndarray:
    """sqrt(log(beta+1)/beta) e^{Ct} + e^{-ct}, the shape of the theorem's bound."""
    return math.sqrt(math.log(beta + 1) / beta) * np.exp(STABILITY * times) + np.exp(-DECAY * times)


def curves_experiment(setting: Setting) -> Outcome:
    """Mean field of G(0.5) from the skewed law; tokens beside it; the constant in front of the theorem's bound."""
    w, law = sheared(0.5), reference_skew()
    betas = np.array(setting.choose((4.0, 64.0, 1024.0), (4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0)))
    times = np.linspace(0, setting.choose(6.0, 12.0), 49)
    curves: dict[str, np.ndarray] = {"t": times, "beta": betas}
    rows, constant, at_rest = [], 0.0, 0.0
    n = setting.choose(500, 2000)
    tokens = law.sample(n, seed=setting.seed + 7)
    dense = nodes(law, 2, 1000, kind="graded", axis=[1.0, 0.0], depth=12.0)
    for beta in betas:
        w2 = distance_curve(w, beta, law, times)
        predicted = forecast(w, beta, dense, deterministic=True)
        inside = np.where(times <= max(predicted.valid_until, times[1]), np.asarray(predicted.curve(times)), np.nan)
        curves[f"forecast {beta:g}"] = inside
        path = run(w, beta, tokens, times, rtol=1e-6)
        curves |= {f"mean field {beta:g}": w2, f"tokens {beta:g}": distances(path, limit(w, tokens))}
        constant = max(constant, float((w2 / theorem_curve(beta, times)).max()))
        at_rest = max(at_rest, float((w2[0] / theorem_curve(beta, times)).max()))
        least = int(np.argmin(w2))
        rows.append(
            {
                "beta": beta,
                "smallest W2": w2[least],
                "at t": times[least],
                "W2 at the end": w2[-1],
                f"smallest W2 of {n} iid tokens": curves[f"tokens {beta:g}"].min(),
            }
        )
    bound = predicted.bound(t=5.0, frames=21)
    curves |= {"bound t": bound.times.numpy(), "bound": bound.values.numpy()}
    finer = nodes(law, 2, 4000, kind="graded", axis=[1.0, 0.0], depth=20.0)
    curves["zero temperature"] = np.asarray(distance_to_limit(w, finer, times))
    note = f"C = {STABILITY:g}, c = {DECAY:g}; K = {constant:.4g}, and {at_rest:.4g} for a law that does not move"
    return Outcome(constant / at_rest, curves=curves, table=rows, note=note)


def curves_figure(outcome: Outcome) -> Lines:
    """All betas on one logarithmic plot: mean field, tokens, zero temperature, bound."""
    t, betas = outcome.curves["t"], outcome.curves["beta"]
    series = []
    for kind, words, style in (
        ("mean field", "", "line"),
        ("tokens", "iid tokens, ", "dotted"),
        ("forecast", "forecast, ", "dashed"),
    ):
        curves = [(t, outcome.curves[f"{kind} {b:g}"]) for b in betas]
        series += shaded(curves, [f"{words}β = {b:g}" for b in betas], style)
    series.append(Series(t, outcome.curves["zero temperature"], "zero temperature (β = ∞)", "dashed"))
    last = float(betas[-1])
    label = f"rigorous bound along a run, β = {last:g}"
    series.append(Series(outcome.curves["bound t"], outcome.curves["bound"], label, "steps"))
    shape = np.minimum(theorem_curve(last, t), 2.0)
    series.append(Series(t, shape, f"shape of the theorem's bound, β = {last:g}", "steps"))
    return Lines(
        "Distance to the concentrated law, sheared weights G(0.5), skewed data",
        "time t",
        "W₂(ρ_t, Π#ρ₀), chordal",
        series,
        log_y=True,
        y_floor=5e-3,
    )


def decay_experiment(setting: Setting) -> Outcome:
    """Largest deviation from the zero-temperature curve while that is far above the floor."""
    w, law, beta = sheared(0.5), reference_skew(), setting.choose(256.0, 4096.0)
    times = np.linspace(0, setting.choose(3.0, 6.0), 25)
    w2 = distance_curve(w, beta, law, times)
    dense = nodes(law, 2, 4000, kind="graded", axis=[1.0, 0.0], depth=16.0)
    zero = np.asarray(distance_to_limit(w, dense, times))
    return Outcome(float(np.abs(w2 / zero - 1).max()), curves={"t": times, "finite": w2, "zero": zero})


def decay_figure(outcome: Outcome) -> Lines:
    """Both curves."""
    t = outcome.curves["t"]
    series = [
        Series(t, outcome.curves["finite"], "finite β, mean field"),
        Series(t, outcome.curves["zero"], "zero temperature", "dashed"),
    ]
    return Lines("Decay before the floor, G(0.5), skewed data", "time t", "W₂(ρ_t, Π#ρ₀)", series, log_y=True)


def sphere_floor_experiment(setting: Setting) -> Outcome:
    """Floor on S^2, E a point pair, B = I, f_0 = 1 + a <e1, x>: measured against 2 sqrt(l1 a/(4 g beta))."""
    w = AttentionWeights(V=np.diag([2.0, 1.0, 1.0]), B=np.eye(3))
    tilt, law = 0.5, Skewed([1.0, 0.0, 0.0], 0.5)
    betas = np.array(setting.choose((24.0,), (4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0)))
    # Zero temperature, sqrt(2) e^{-t/2}, has to fall below the floor of the largest beta.
    end = setting.choose(9.0, 12.0)
    times = np.linspace(0, end, int(4 * end) + 1)
    rows, ratios = [], []
    curves: dict[str, np.ndarray] = {"t": times, "beta": betas}
    for beta in betas:
        # The width of the kernel, beta^{-1/2}, sets the spacing in both directions.
        n = max(int(setting.choose(90, 40 if beta <= 1024 else 20) * beta), 2000)
        rho0 = nodes(law, 3, n, kind="graded", axis=[1.0, 0.0, 0.0], depth=end - 2)
        # The nodes nearest the equator decide the mass on either side; Pi#rho_0 has the exact one.
        plus = 0.5 + tilt / 4
        axis = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]], dtype=torch.float64)
        path = run(w, beta, rho0, times, rtol=1e-5, attention_rtol=1e-6)
        w2 = distances(path, Measure(axis, [plus, 1 - plus]))
        predicted = 2 * math.sqrt(2 * tilt / (4 * beta))
        ratios.append(float(w2[-1] / predicted))
        rows.append({"beta": beta, "nodes": rho0.n, f"W2 at t = {end:g}": w2[-1], "predicted floor": predicted})
        curves |= {f"W2 {beta:g}": w2, f"floor {beta:g}": np.array([predicted])}
    return Outcome(ratios[-1], curves=curves, table=rows)


def sphere_floor_figure(outcome: Outcome) -> Lines:
    """Curves and floors."""
    t, betas = outcome.curves["t"], outcome.curves["beta"]
    measured = shaded([(t, outcome.curves[f"W2 {b:g}"]) for b in betas], [f"β = {b:g}" for b in betas])
    floors = [(t, np.full_like(t, outcome.curves[f"floor {b:g}"][0])) for b in betas]
    predicted = shaded(floors, [f"predicted floor, β = {b:g}" for b in betas], "dashed")
    series = [one for pair in zip(measured, predicted, strict=True) for one in pair]
    return Lines("Graded nodes on S², V = diag(2, 1, 1), B = I", "time t", "W₂(ρ_t, Π#ρ₀)", series, log_y=True)


def token_limit_experiment(setting: Setting) -> Outcome:
    """Time at which n equispaced tokens are nearest to Pi#rho_0, against log n."""
    w, beta = sheared(0.5), 1024.0
    counts = np.array(setting.choose((250, 500, 1000), (250, 500, 1000, 2000, 4000)))
    times = np.linspace(0, 10, 81)
    curves: dict[str, np.ndarray] = {"t": times, "n": counts}
    best, rows = [], []
    for n in counts:
        x0 = sphere.equispaced(int(n))
        w2 = distances(run(w, beta, x0, times, rtol=1e-6), limit(w, x0))
        best.append(times[int(np.argmin(w2))])
        rows.append({"n": int(n), "smallest W2": w2.min(), "at t": best[-1]})
        curves[f"W2 {n}"] = w2
    return Outcome(slope(np.log(counts), best) * spectrum(w).g_out, curves=curves, table=rows)


def token_limit_figure(outcome: Outcome) -> Lines:
    """W2 of n tokens."""
    t, counts = outcome.curves["t"], outcome.curves["n"]
    series = shaded([(t, outcome.curves[f"W2 {n}"]) for n in counts], [f"n = {n}" for n in counts])
    return Lines("n equispaced tokens, G(0.5), β = 1024", "time t", "W₂(ρ_t, Π#ρ₀)", series, log_y=True)


CLAIMS = (
    Claim(
        "theorem-bound",
        "W2(rho_t, Pi#rho_0) is below K (sqrt(log(beta+1)/beta) e^{Ct} + e^{-ct}) with one K for all beta and t: "
        "the shape is the paper's theorem, C = 1 and c = 1/2 are metastable's estimates for these weights.",
        curves_experiment,
        expected=0.85,
        tolerance=0.0,
        reason="any law needs some K; one that stays at rho_0 needs all of it, one that falls like e^{-ct} less",
        source=PAPER,
        figure=curves_figure,
        relation="at most",
        theme=THEME,
        unit="K / K of a law at rest",
        effort=20,
    ),
    Claim(
        "decay-like-zero-temperature",
        "Before the floor W2 falls along the zero-temperature curve.",
        decay_experiment,
        expected=0.0,
        tolerance=0.15,
        reason="the correction is of order 1/beta in position and grows with t",
        source=ESTIMATE,
        figure=decay_figure,
        theme=THEME,
        unit="largest relative deviation",
        effort=6,
    ),
    Claim(
        "floor-on-the-sphere",
        "On S^2 with E a point pair the floor for f_0 = 1 + a <e1, x> is 2 sqrt(l1 a/(4 g beta)).",
        sphere_floor_experiment,
        expected=1.0,
        tolerance=0.1,
        reason="first order in 1/beta at beta = 24 (quick) or 4096, and 20 nodes and more per 1/beta of area",
        source=ESTIMATE,
        figure=sphere_floor_figure,
        theme=THEME,
        unit="measured / predicted",
        effort=8,
    ),
    Claim(
        "tokens-run-out",
        "n tokens follow the mean field up to t = (log n - O(1))/(k g_out); then the tail near E^perp is empty.",
        token_limit_experiment,
        expected=1.0,
        tolerance=0.3,
        reason="the minimum over t is flat, and its time is known to a step of 0.125",
        source=ESTIMATE,
        figure=token_limit_figure,
        theme=THEME,
        unit="slope in log n * g_out",
        effort=8,
    ),
)
