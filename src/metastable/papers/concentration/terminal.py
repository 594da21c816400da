"""Claims about how the concentrated phase begins and ends: crossing, exit, departure, terminal space, rotation."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from metastable import sphere
from metastable.drawing import Lines, Series, shaded
from metastable.meanfield import Uniform
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.concentration.families import commuting, competing, sheared
from metastable.papers.concentration.measuring import distance_curve, first_crossing, run, slope
from metastable.papers.concentration.sources import ESTIMATE, PAPER
from metastable.solve import Path
from metastable.theory import spectrum
from metastable.weights import AttentionWeights

THEME = "Times of the phases"


def median_width(path: Path) -> np.ndarray:
    """Median of |x_2/x_1| at every saved time: the width of the clusters at +-e1, blind to the slow tail."""
    return (path.points[..., 1] / path.points[..., 0]).abs().median(dim=1).values.numpy()


def crossing_experiment(setting: Setting) -> Outcome:
    """Time at which the clusters are as narrow as the attention kernel, against log beta."""
    betas = np.array(setting.choose((50.0, 200.0, 800.0), (25.0, 50.0, 100.0, 200.0, 400.0, 800.0, 1600.0)))
    n, w = setting.choose(400, 1600), commuting()
    expected = 1 / (2 * spectrum(w).g_in)
    curves: dict[str, np.ndarray] = {"beta": betas}
    crossings = []
    for beta in betas:
        times = np.linspace(0, 1.25 * expected * math.log(3 * beta) + 1, 161)
        width = median_width(run(w, beta, sphere.equispaced(n), times, rtol=1e-6))
        level = 1 / math.sqrt(3 * beta)
        at = np.log(width / level)
        crossings.append(first_crossing(times, -at, 0.0))
        curves |= {f"t {beta:g}": times, f"width {beta:g}": width}
    predicted = expected * np.log(3 * betas)
    curves |= {"crossing": np.array(crossings), "predicted": predicted}
    rows = as_rows({"beta": betas, "measured t_x": crossings, "log(beta B_1)/(2c)": predicted})
    return Outcome(slope(np.log(betas), crossings) / expected, curves=curves, table=rows)


def crossing_figure(outcome: Outcome) -> Lines:
    """t_x against beta."""
    beta = outcome.curves["beta"]
    return Lines(
        "Concentration time: cluster width reaches (βB₁)^(−1/2)",
        "inverse temperature β",
        "time t_x",
        [
            Series(beta, outcome.curves["crossing"], "tokens (median width)", "points"),
            Series(beta, outcome.curves["predicted"], "log(βB₁)/(2c)", "dashed"),
        ],
        log_x=True,
    )


def cluster_exits(path: Path, times: np.ndarray) -> list[float]:
    """Exit time of the clusters that formed at +e1 and -e1: the mean of their tokens in direction e2 passes 1/2."""
    exits = []
    for sign in (1.0, -1.0):
        members = path.points[0][:, 0] * sign > 0
        offset = path.points[:, members, 1].mean(1).abs().numpy()
        exits.append(first_crossing(times, offset, 0.5))
    return exits


def exit_experiment(setting: Setting) -> Outcome:
    """Iid tokens from the uniform law; the offset that grows comes from sampling alone."""
    w = competing()
    n, beta, t_end = setting.choose(300, 600), setting.choose(50.0, 100.0), 22.0
    c = spectrum(w).g_in
    crossing = math.log(4 * beta) / (2 * c)
    predicted = crossing + math.log(0.5 * math.sqrt(4 * beta) * math.sqrt(n / 2))
    times = np.linspace(0, t_end, 111)
    exits, offsets = [], []
    for k in range(setting.choose(5, 9)):
        path = run(w, beta, sphere.uniform(n, 2, seed=setting.seed + 100 + k), times, rtol=1e-6)
        # A cluster that has not left counts with the end of the run, which can only be too early.
        exits.append(np.nan_to_num(cluster_exits(path, times), nan=t_end).mean())
        offsets.append((2 * (1 - path.points[..., 0].abs()) @ path.mass).sqrt().numpy())
    spread = float(np.std(exits, ddof=1)) * 1.2533 / math.sqrt(len(exits))
    rows = [{"seed": setting.seed + 100 + k, "exit": t} for k, t in enumerate(exits)]
    return Outcome(
        float(np.median(exits)) - predicted,
        uncertainty=spread,
        curves={"t": times, "distance": np.array(offsets), "predicted": np.array([crossing, predicted])},
        table=rows,
        note=f"median of {len(exits)} seeds {np.median(exits):.2f}, predicted {predicted:.2f}",
    )


def exit_figure(outcome: Outcome) -> Lines:
    """Distance to E of every seed, with the predicted crossing and exit."""
    t, rows = outcome.curves["t"], outcome.curves["distance"]
    series = shaded([(t, row) for row in rows], [f"seed {k}" for k in range(len(rows))], darkest=len(rows))
    for at, label in zip(outcome.curves["predicted"], ("predicted t_x", "predicted exit"), strict=True):
        series.append(Series([at, at], [rows.min(), rows.max()], label, "dashed"))
    return Lines(
        "Exit of iid tokens, V = diag(1, 2), B = diag(4, 1)", "time t", "distance D_E to E", series, log_y=True
    )


def departure_experiment(setting: Setting) -> Outcome:
    """Mean field of G(0.5): time at which W2 is half-way to the terminal law, against beta."""
    w = sheared(0.5)
    s = spectrum(w)
    expected = s.delta / s.g_out
    betas = np.array(setting.choose((32.0, 64.0, 96.0), (32.0, 48.0, 64.0, 80.0, 96.0, 112.0, 128.0)))
    curves: dict[str, np.ndarray] = {"beta": betas}
    times_out = []
    for beta in betas:
        times = np.linspace(0, expected * beta + 2, 81)
        w2 = distance_curve(w, beta, Uniform(2), times)
        after = int(np.argmin(w2))
        times_out.append(first_crossing(times[after:], w2[after:], TERMINAL_W2 / 2))
        curves |= {f"t {beta:g}": times, f"W2 {beta:g}": w2}
    predicted = expected * betas
    curves |= {"out": np.array(times_out), "predicted": predicted}
    rows = as_rows({"beta": betas, "measured t_out": times_out, "beta Delta/g_out": predicted})
    return Outcome(slope(betas, times_out) / expected, curves=curves, table=rows)


TERMINAL_W2 = math.sqrt(2 - 4 / math.sqrt(5))
"""W2 between Pi#rho_0 (atoms at +-e1) and the terminal law of G(0.5), atoms at +-(1, -0.5)/|.|."""


def departure_figure(outcome: Outcome) -> Lines:
    """W2 against t for the betas."""
    betas = outcome.curves["beta"]
    curves = [(outcome.curves[f"t {b:g}"], outcome.curves[f"W2 {b:g}"]) for b in betas]
    series = shaded(curves, [f"β = {b:g}" for b in betas])
    for at, b in zip(outcome.curves["predicted"], betas, strict=True):
        series.append(Series([at, at], [0.01, 1.0], f"βΔ/g_out at β = {b:g}", "dotted"))
    return Lines(
        "Departure of the mean field, sheared weights G(0.5)", "time t", "W₂(ρ_t, Π#ρ₀)", series, log_y=True
    )


def terminal_experiment(setting: Setting) -> Outcome:
    """Distance to the top direction of V at late times: how small it gets, and how fast."""
    curves: dict[str, np.ndarray] = {}
    rates, last = [], []
    cases: dict[str, tuple[AttentionWeights, float, Tensor, float]] = {
        "G(0.5)": (sheared(0.5), 64.0, sphere.equispaced(200), 26.0),
        "C": (commuting(), 30.0, sphere.uniform(200, 2, seed=setting.seed + 1), 34.0),
    }
    if not setting.quick:
        cases["S^2"] = (competing(3), 50.0, sphere.uniform(400, 3, seed=setting.seed + 2), 36.0)
    rows = []
    for name, (w, beta, x0, t_end) in cases.items():
        V = spectrum(w).V
        times = np.linspace(0, t_end, 105)
        path = run(w, beta, x0, times, rtol=1e-9)
        onto = path.points @ (V.space @ V.space.T)
        distance = torch.linalg.vector_norm(path.points - onto, dim=2).amax(1).numpy()
        window = (distance < 1e-2) & (distance > 1e-7) & (times > times[int(np.argmax(distance))])
        rate = -slope(times[window], np.log(distance[window])) / V.gap
        rates.append(rate)
        last.append(distance[-1])
        rows.append(
            {"weights": name, "measured rate / (mu_1 - mu_2)": rate, "farthest token at the end": distance[-1]}
        )
        curves |= {f"t {name}": times, f"distance {name}": distance}
    note = f"farthest token from the top space of V at the end: {max(last):.1e}"
    return Outcome(max(rates, key=lambda r: abs(r - 1)), curves=curves, table=rows, note=note)


def terminal_figure(outcome: Outcome) -> Lines:
    """Farthest token from V's top space."""
    names = [k[2:] for k in outcome.curves if k.startswith("t ")]
    series = [Series(outcome.curves[f"t {n}"], outcome.curves[f"distance {n}"], f"weights {n}") for n in names]
    return Lines(
        "Terminal phase: alignment with the top space of V",
        "time t",
        "farthest token from the top space of V",
        series,
        log_y=True,
        y_floor=1e-9,
    )


def rotation_experiment(setting: Setting) -> Outcome:
    """A narrow cluster under V with a complex pair turns with mean angular speed Im(lambda)."""
    w = AttentionWeights(V=[[1.0, -1.0], [0.5, 1.0]], B=np.eye(2))
    omega = spectrum(w).V.frequency
    x0 = sphere.von_mises_fisher(setting.choose(50, 200), [1.0, 0.0], 50.0, seed=setting.seed)
    t_end = setting.choose(40.0, 100.0)
    times = np.linspace(0, t_end, int(20 * t_end) + 1)
    path = run(w, 100.0, x0, times, rtol=1e-8)
    mean = path.points.mean(1)
    angle = np.unwrap(sphere.angles(mean).numpy())
    # Between whole half turns the angle of a non-normal V is not linear: compare over half turns only.
    turns = math.floor((abs(angle[-1] - angle[200])) / math.pi)
    end = first_crossing(times[200:], np.abs(angle[200:] - angle[200]), turns * math.pi)
    measured = turns * math.pi / (end - times[200])
    return Outcome(measured / omega, curves={"t": times, "angle": angle, "omega": np.array([omega])})


def rotation_figure(outcome: Outcome) -> Lines:
    """The angle of the cluster."""
    t = outcome.curves["t"]
    sign = math.copysign(1.0, outcome.curves["angle"][-1])
    series = [
        Series(t, outcome.curves["angle"] / math.pi, "angle of the cluster"),
        Series(t, sign * outcome.curves["omega"][0] * t / math.pi, "Im(λ) t", "dashed"),
    ]
    return Lines("Terminal rotation for a complex pair of V", "time t", "angle / π", series)


CLAIMS = (
    Claim(
        "concentration-time",
        "Concentration takes a time of order log beta: the clusters reach the width of the attention kernel at "
        "t_x = log(beta B_1)/(2c), c = (M_1 - M_2)/B_1; the order is the paper's, the slope 1/(2c) is metastable's "
        "estimate.",
        crossing_experiment,
        expected=1.0,
        tolerance=0.05,
        reason="the last e-fold before the crossing is slower (closure C1), which moves all betas alike",
        source=ESTIMATE,
        figure=crossing_figure,
        theme=THEME,
        unit="slope in log beta / (1/2c)",
        effort=6,
    ),
    Claim(
        "exit-time",
        "Tokens drawn from a symmetric law leave the metastable phase at t_x + ln(sqrt(beta B_1 n/2)/2)/(V_2 - V_1)"
        " when V prefers another direction.",
        exit_experiment,
        expected=0.0,
        tolerance=2.0,
        reason="the logarithm of a Gaussian offset has standard deviation 1.1/(V_2 - V_1); median over seeds",
        source=ESTIMATE,
        figure=exit_figure,
        theme=THEME,
        unit="measured - predicted time",
        effort=8,
    ),
    Claim(
        "departure-linear-in-beta",
        "When B^T e is not parallel to e the mean field leaves the metastable phase at a time linear in beta, with "
        "slope Delta/g_out.",
        departure_experiment,
        expected=1.0,
        tolerance=0.15,
        reason="an estimate by exponential balance; its prefactor changes with beta",
        source=ESTIMATE,
        figure=departure_figure,
        theme=THEME,
        unit="slope / (Delta/g_out)",
        effort=10,
    ),
    Claim(
        "terminal-space",
        "At finite beta and large t all tokens align with the dominant space of V (the paper's terminal phase), at "
        "the rate mu_1 - mu_2 of V (metastable's estimate).",
        terminal_experiment,
        expected=1.0,
        tolerance=0.02,
        reason="a rate from a log-linear fit of deterministic data is good to 2%",
        source=PAPER,
        figure=terminal_figure,
        theme=THEME,
        unit="rate / (mu_1 - mu_2)",
        effort=6,
    ),
    Claim(
        "terminal-rotation",
        "When a complex pair leads V, clusters rotate for ever with mean angular speed Im(lambda).",
        rotation_experiment,
        expected=1.0,
        tolerance=0.02,
        reason="the cluster has shrunk to a point after a few e-folds; whole half turns are counted",
        source=ESTIMATE,
        figure=rotation_figure,
        theme=THEME,
        unit="speed / Im(lambda)",
        effort=2,
    ),
)
