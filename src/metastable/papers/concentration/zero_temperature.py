"""Claims about the zero-temperature flow x' = P_x V B^T x/|B^T x|: its limit, its rate, its closed forms."""

from __future__ import annotations

import math

import numpy as np
import torch

from metastable import meanfield, sphere
from metastable.drawing import Lines, Series
from metastable.flows import ZeroTemperature
from metastable.meanfield import Uniform
from metastable.measure import Measure
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.concentration.families import commuting, plain, sheared
from metastable.papers.concentration.measuring import slope
from metastable.papers.concentration.sources import ESTIMATE, PAPER
from metastable.solve import solve
from metastable.theory import distance_to_limit, limit_map, spectrum
from metastable.weights import AttentionWeights

THEME = "Zero temperature"


def random_symmetric(d: int, seed: int) -> AttentionWeights:
    """Random weights with M = V B^T symmetric, eigenvalues 2, 1, ... below, and B = I + 0.4 Gaussian."""
    generator = np.random.default_rng(seed)
    axes = np.linalg.qr(generator.normal(size=(d, d)))[0]
    eigenvalues = np.concatenate([[2.0], np.sort(generator.uniform(-1, 1, d - 1))[::-1]])
    M = axes @ np.diag(eigenvalues) @ axes.T
    B = np.eye(d) + 0.4 * generator.normal(size=(d, d)) / math.sqrt(d)
    return AttentionWeights(V=M @ np.linalg.inv(B.T), B=B)


def subsphere_nodes(d: int, k: int, reach: float, step: float = 0.05) -> Measure:
    """The uniform law on S^{d-1} seen from its first k axes: nodes in the angle to E = span(e_1..e_k) (Z6).

    The zero-temperature flow of a two-level M keeps every token in the plane of its projections, so one angle per
    token is all there is: z = cos(theta), z^2 ~ Beta(k/2, (d-k)/2), on a grid in y = log tan(theta).
    """
    y = np.arange(-reach, reach, step)
    near, far = 1 / np.sqrt(1 + np.exp(2 * y)), 1 / np.sqrt(1 + np.exp(-2 * y))
    points = np.zeros((len(y), d))
    points[:, 0], points[:, -1] = near, far
    return Measure(points, near**k * far ** (d - k))


def two_level(d: int, k: int) -> AttentionWeights:
    """V = diag(2 on E, 1 elsewhere), B = I."""
    return AttentionWeights(V=np.diag([2.0] * k + [1.0] * (d - k)), B=np.eye(d))


def limit_experiment(setting: Setting) -> Outcome:
    """Integrate the flow from iid tokens and compare with Pi, in several dimensions."""
    worst, rows = 0.0, []
    curves: dict[str, np.ndarray] = {}
    for d in setting.choose((2, 3, 5), (2, 3, 4, 5, 8, 16)):
        w = random_symmetric(d, setting.seed + d)
        x0 = sphere.uniform(setting.choose(200, 1000), d, seed=setting.seed + d)
        t = 32 / spectrum(w).g_in
        times = np.linspace(0, t, 33)
        path = solve(ZeroTemperature(w), x0, t=t, times=times, method="adaptive", rtol=1e-9, atol=1e-11)
        gap = torch.linalg.vector_norm(path.points - limit_map(w)(x0), dim=2)
        rms = gap.square().mean(1).sqrt().numpy()
        worst = max(worst, float(rms[-1]))
        rows.append({"d": d, "n": len(x0), "t": t, "rms |x(t) - Pi(x_0)|": float(rms[-1])})
        curves |= {f"t{d}": times, f"rms{d}": rms}
    return Outcome(worst, curves=curves, table=rows)


def limit_figure(outcome: Outcome) -> Lines:
    """Approach to the limit in every dimension."""
    dims = sorted(int(name[1:]) for name in outcome.curves if name.startswith("t"))
    series = [Series(outcome.curves[f"t{d}"], outcome.curves[f"rms{d}"], f"d = {d}") for d in dims]
    return Lines(
        "Zero-temperature flow: distance to Π(x₀)",
        "time t",
        "rms |x(t) − Π(x₀)|",
        series,
        log_y=True,
        y_floor=1e-12,
    )


def rate_experiment(setting: Setting) -> Outcome:
    """Exponent of W2 for densities that are positive on E^perp, dim E = 1, on a late window."""
    rows, ratios = [], []
    curves: dict[str, np.ndarray] = {}
    for name, w in (("I", plain()), ("G(0.5)", sheared(0.5)), ("G(1)", sheared(1.0)), ("C", commuting())):
        s = spectrum(w)
        c = min(s.g_in, s.g_out / 2)
        times = np.linspace(0, 12 / c, 61)
        rho0 = meanfield.nodes(Uniform(2), 2, 4000, kind="graded", axis=[1.0, 0.0], depth=s.g_out * times[-1] + 8)
        w2 = np.asarray(distance_to_limit(w, rho0, times))
        late = times >= 6 / c
        measured = -slope(times[late], np.log(w2[late]))
        ratios.append(measured / c)
        rows.append({"weights": name, "gap": s.gap, "expected c": c, "measured c": measured})
        curves |= {f"t {name}": times * c, f"w {name}": w2}
    worst = max(ratios, key=lambda ratio: abs(ratio - 1))
    return Outcome(worst, curves=curves, table=rows, note="the ratio farthest from 1 of the four families")


def rate_figure(outcome: Outcome) -> Lines:
    """All families against c t, with the slope -1."""
    names = [key[2:] for key in outcome.curves if key.startswith("t ")]
    series = [Series(outcome.curves[f"t {n}"], outcome.curves[f"w {n}"], f"family {n}") for n in names]
    guide = np.linspace(0, 12, 2)
    series.append(Series(guide, np.exp(-guide), "exp(−c t)", "dashed"))
    return Lines("Decay of W₂ at zero temperature", "c t", "W₂(ρ_t, Π#ρ₀)", series, log_y=True)


def full_gap_experiment(setting: Setting) -> Outcome:
    """The same for dim E = 3 in R^4, where the slow tokens near E^perp no longer decide."""
    w, rho0 = two_level(4, 3), subsphere_nodes(4, 3, 60.0)
    times = np.linspace(0, 24, 61)
    w2 = np.asarray(distance_to_limit(w, rho0, times))
    late = times >= 12
    half = np.asarray(distance_to_limit(two_level(4, 1), subsphere_nodes(4, 1, 60.0), times))
    return Outcome(-slope(times[late], np.log(w2[late])), curves={"t": times, "k = 3": w2, "k = 1": half})


def full_gap_figure(outcome: Outcome) -> Lines:
    """k = 3 beside k = 1."""
    t = outcome.curves["t"]
    series = [Series(t, outcome.curves[k], f"dim E: {k}") for k in ("k = 1", "k = 3")]
    series += [Series(t, np.exp(-t / 2), "exp(−g t/2)", "dashed"), Series(t, np.exp(-t), "exp(−g t)", "dotted")]
    return Lines("Rate of W₂ in R⁴ against dim E, gap g = 1", "time t", "W₂(ρ_t, Π#ρ₀)", series, log_y=True)


CLOSED_FORM_W2 = {
    (2, 1): (0.6041589962, 0.3948144468, 0.1516240925, 0.0206642634),
    (3, 1): (0.7334049650, 0.4882682091, 0.1896639658, 0.0258978814),
    (3, 2): (0.3784874064, 0.1879004790, 0.0361138375, 0.0009420646),
}
"""W2 of the uniform law to its limit at gap * t = 1, 2, 4, 8 by the closed forms Z6, for (d, dim E)."""


def closed_form_experiment(setting: Setting) -> Outcome:
    """Integrate the flow on quadrature nodes of the uniform law; compare with closed forms."""
    worst, rows = 0.0, []
    times = np.array([0.0, 1.0, 2.0, 4.0, 8.0])
    curves: dict[str, np.ndarray] = {"t": times[1:]}
    for (d, k), exact in CLOSED_FORM_W2.items():
        flow, rho0 = ZeroTemperature(two_level(d, k)), subsphere_nodes(d, k, 36.0)
        path = solve(flow, rho0, t=8.0, times=times, method="adaptive", rtol=1e-10, atol=1e-12)
        onto = torch.linalg.vector_norm(path.points[..., :k], dim=2)
        off = torch.linalg.vector_norm(path.points[..., k:], dim=2)
        w2 = torch.sqrt((2 * off**2 / (1 + onto)) @ rho0.mass).numpy()[1:]
        error = float(np.abs(w2 - exact).max())
        worst = max(worst, error)
        rows.append({"d": d, "dim E": k, "largest error": error})
        curves |= {f"measured {d} {k}": w2, f"exact {d} {k}": np.array(exact)}
    return Outcome(worst, curves=curves, table=rows)


def closed_form_figure(outcome: Outcome) -> Lines:
    """Closed forms as lines, the integrated flow as points."""
    t = outcome.curves["t"]
    series = []
    for d, k in CLOSED_FORM_W2:
        series.append(Series(t, outcome.curves[f"exact {d} {k}"], f"closed form, d = {d}, dim E = {k}"))
        series.append(Series(t, outcome.curves[f"measured {d} {k}"], f"integrated, d = {d}, dim E = {k}", "points"))
    return Lines("Uniform law at zero temperature, B = I", "gap · t", "W₂(ρ_t, Π#ρ₀)", series, log_y=True)


def lyapunov_experiment(setting: Setting) -> Outcome:
    """tan(angle to E) of every token against its guaranteed decay."""
    worst = 0.0
    curves: dict[str, np.ndarray] = {}
    for d in (2, 3, 5):
        w = random_symmetric(d, setting.seed + 10 + d)
        s = spectrum(w)
        x0 = sphere.uniform(200, d, seed=setting.seed + d)
        times = np.linspace(0, 6, 25)
        path = solve(ZeroTemperature(w), x0, t=6.0, times=times, method="adaptive", rtol=1e-10, atol=1e-12)
        onto = path.points @ s.projector.T
        tangent = torch.linalg.vector_norm(path.points - onto, dim=2) / torch.linalg.vector_norm(onto, dim=2)
        bound = tangent[0] * torch.exp(-s.gap / w.B_norm * torch.from_numpy(times))[:, None]
        ratio = (tangent / bound).amax(1).numpy()
        worst = max(worst, float(ratio.max()))
        curves |= {"t": times, f"d = {d}": ratio}
    return Outcome(worst, curves=curves)


def lyapunov_figure(outcome: Outcome) -> Lines:
    """Largest ratio of tan(angle) to its bound."""
    t = outcome.curves["t"]
    series = [Series(t, outcome.curves[k], k) for k in outcome.curves if k != "t"]
    series.append(Series(t, np.ones_like(t), "bound", "dashed"))
    return Lines("Lyapunov estimate tan ∠(x, E) ≤ tan₀ exp(−g t/‖B‖)", "time t", "largest ratio", series)


CLAIMS = (
    Claim(
        "zero-temperature-limit",
        "At zero temperature every token converges to Pi(x_0), the projection on the dominant eigenspace of V B^T.",
        limit_experiment,
        expected=0.0,
        tolerance=1e-6,
        reason="the worst token needs t = log(n)/g longer than e^{-32}; the integrator is good to 1e-8",
        source=PAPER,
        figure=limit_figure,
        theme=THEME,
        unit="rms distance",
        effort=3,
    ),
    Claim(
        "zero-temperature-rate",
        "W2 decays like e^{-ct} with c = min(g_in, g_out/2) for dim E = 1: half the spectral gap when B = I, "
        "because the tokens near E^perp come late.",
        rate_experiment,
        expected=1.0,
        tolerance=0.02,
        reason="a rate from a log-linear fit of deterministic data is good to 2%",
        source=ESTIMATE,
        figure=rate_figure,
        theme=THEME,
        unit="measured c / c",
    ),
    Claim(
        "zero-temperature-full-gap",
        "For dim E >= 3 the W2 rate is the full spectral gap of V B^T (B = I, uniform law in R^4, dim E = 3).",
        full_gap_experiment,
        expected=1.0,
        tolerance=0.02,
        reason="a rate from a log-linear fit of deterministic data is good to 2%",
        source=ESTIMATE,
        figure=full_gap_figure,
        theme=THEME,
        unit="measured c / g",
    ),
    Claim(
        "zero-temperature-closed-forms",
        "W2 of the uniform law to its limit follows closed forms on the circle and on S^2 (point pair, great "
        "circle).",
        closed_form_experiment,
        expected=0.0,
        tolerance=1e-7,
        reason="nodes and integrator are good to 1e-9; the tabulated values have 10 digits",
        source=ESTIMATE,
        figure=closed_form_figure,
        theme=THEME,
        unit="error of W2",
        effort=2,
    ),
    Claim(
        "zero-temperature-lyapunov",
        "tan of the angle to E falls at least like exp(-g t/||B||) for every token (V B^T symmetric).",
        lyapunov_experiment,
        expected=1.0,
        tolerance=1e-8,
        reason="an inequality; the integrator is good to 1e-9",
        source=ESTIMATE,
        figure=lyapunov_figure,
        relation="at most",
        theme=THEME,
        unit="largest ratio to the bound",
        effort=2,
    ),
)
