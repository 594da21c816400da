"""Claims about the zero-temperature flow x' = P_x V B^T x/|B^T x|: limit, closed forms, Lyapunov function."""

from __future__ import annotations

import math

import numpy as np
import torch

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import ZeroTemperature
from metastable.measure import Measure
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.concentration.sources import ESTIMATE, PAPER
from metastable.solve import solve
from metastable.spectral import dominant
from metastable.theory import limit_map, spectrum, uniform_distance
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
    rows: list[dict[str, float]] = []
    curves: dict[str, np.ndarray] = {}
    for d in setting.choose((2, 3, 5), (2, 3, 4, 5, 8, 16)):
        w = random_symmetric(d, setting.seed + d)
        x0 = sphere.uniform(setting.choose(200, 1000, 100), d, seed=setting.seed + d)
        t = 32 / spectrum(w).g_in
        times = np.linspace(0, t, 33)
        path = solve(ZeroTemperature(w), x0, t=t, times=times, method="adaptive", rtol=1e-9, atol=1e-11)
        targets = {
            "V B^T": limit_map(w)(x0),
            "V": onto(w.V, x0),
            "B^T V": onto(w.B.T @ w.V, x0),
            "rest": x0,
        }
        rms = {name: _rms(path.points - target) for name, target in targets.items()}
        rows.append({"d": d, "n": len(x0), "t": t} | {f"to {name}": float(r[-1]) for name, r in rms.items()})
        curves |= {f"t{d}": times, f"rms{d}": rms["V B^T"]}
    worst = {name: max(row[f"to {name}"] for row in rows) for name in targets}
    rivals = {"space of V": worst["V"], "space of B^T V": worst["B^T V"], "at rest": worst["rest"]}
    return Outcome(worst["V B^T"], curves=curves, table=rows, rivals=rivals)


def onto(matrix: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """Qx/|Qx| with the spectral projector Q on the dominant space of a matrix."""
    image = points @ dominant(matrix).projector.T
    return image / torch.linalg.vector_norm(image, dim=1, keepdim=True)


def _rms(gap: torch.Tensor) -> np.ndarray:
    return gap.square().sum(2).mean(1).sqrt().numpy()


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


CLOSED = ((2, 1), (3, 1), (3, 2))
"""(d, dim E) with a closed form: the circle, and S^2 with a point pair or a great circle."""


def closed_form_experiment(setting: Setting) -> Outcome:
    """Integrate the flow on quadrature nodes of the uniform law; compare with closed forms."""
    times = np.array([0.0, 1.0, 2.0, 4.0, 8.0])
    rows, curves = [], {"t": times[1:]}
    for d, k in CLOSED:
        flow, rho0 = ZeroTemperature(two_level(d, k)), subsphere_nodes(d, k, 36.0)
        path = solve(flow, rho0, t=8.0, times=times, method="adaptive", rtol=1e-10, atol=1e-12)
        near = torch.linalg.vector_norm(path.points[1:, :, :k], dim=2)
        off = torch.linalg.vector_norm(path.points[1:, :, k:], dim=2)
        w2 = torch.sqrt((2 * off**2 / (1 + near)) @ rho0.mass).numpy()
        arcs = torch.sqrt(torch.atan2(off, near) ** 2 @ rho0.mass).numpy()
        exact = np.asarray(uniform_distance(d, k, times[1:]))
        errors = {
            "largest error": w2 - exact,
            "with the circle's form": w2 - np.asarray(uniform_distance(2, 1, times[1:])),
            "with half the gap": w2 - np.asarray(uniform_distance(d, k, times[1:] / 2)),
            "with arcs for chords": arcs - exact,
        }
        rows.append({"d": d, "dim E": k} | {name: float(np.abs(e).max()) for name, e in errors.items()})
        curves[f"measured {d} {k}"] = w2
    worst = {name: max(row[name] for row in rows) for name in errors}
    return Outcome(
        worst["largest error"],
        curves=curves,
        table=rows,
        rivals={
            "one form for all": worst["with the circle's form"],
            "half the gap": worst["with half the gap"],
            "geodesic": worst["with arcs for chords"],
        },
    )


def closed_form_figure(outcome: Outcome) -> Lines:
    """Closed forms as lines, the integrated flow as points."""
    t = outcome.curves["t"]
    grid = np.linspace(0, t[-1], 161)
    series = []
    for place, (d, k) in enumerate(CLOSED):
        exact = np.asarray(uniform_distance(d, k, grid))
        series.append(Series(grid, exact, f"closed form, d = {d}, dim E = {k}", colour=place))
        label = f"integrated, d = {d}, dim E = {k}"
        series.append(Series(t, outcome.curves[f"measured {d} {k}"], label, "points", colour=place))
    return Lines("Uniform law at zero temperature, B = I", "gap · t", "W₂(ρ_t, Π#ρ₀)", series, log_y=True)


def lyapunov_experiment(setting: Setting) -> Outcome:
    """tan(angle to E) of every token against its guaranteed decay, and against faster ones."""
    times = np.linspace(0, 6, 25)
    curves: dict[str, np.ndarray] = {"t": times}
    rows = []
    for d in (2, 3, 5):
        w = random_symmetric(d, setting.seed + 10 + d)
        s = spectrum(w)
        x0 = sphere.uniform(setting.choose(200, 1000, 100), d, seed=setting.seed + d)
        path = solve(ZeroTemperature(w), x0, t=6.0, times=times, method="adaptive", rtol=1e-10, atol=1e-12)
        near = path.points @ s.projector.T
        tangent = torch.linalg.vector_norm(path.points - near, dim=2) / torch.linalg.vector_norm(near, dim=2)
        least = float(torch.linalg.svdvals(w.B)[-1])
        rates = {"g/|B|": s.gap / w.B_norm, "1.5 g/|B|": 1.5 * s.gap / w.B_norm, "g/least": s.gap / least}
        ratios = {
            name: (tangent / tangent[0] * torch.exp(rate * torch.from_numpy(times))[:, None]).amax(1).numpy()
            for name, rate in rates.items()
        }
        rows.append({"d": d} | {f"largest ratio, {name}": float(r.max()) for name, r in ratios.items()})
        curves[f"d = {d}"] = ratios["g/|B|"]
    worst = {name: max(row[f"largest ratio, {name}"] for row in rows) for name in rates}
    return Outcome(
        worst["g/|B|"],
        curves=curves,
        table=rows,
        rivals={"half as fast again": worst["1.5 g/|B|"], "smallest singular value": worst["g/least"]},
    )


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
        reason="a token at 1/n from E^perp is n e^{-32} away at the end, 1e-11; the integrator is good to 1e-8",
        source=PAPER,
        figure=limit_figure,
        theme=THEME,
        unit="rms distance",
        effort=3,
        rivals={
            "space of V": "Tokens converge to the dominant eigenspace of V.",
            "space of B^T V": "The order of the factors does not matter: B^T V has the same eigenvalues.",
            "at rest": "Tokens stay where they are.",
        },
    ),
    Claim(
        "zero-temperature-closed-forms",
        "W2 of the uniform law to its limit follows closed forms on the circle and on S^2 (point pair, great "
        "circle).",
        closed_form_experiment,
        expected=0.0,
        tolerance=1e-7,
        reason="nodes and integrator are good to 1e-9 each, a hundredfold below",
        source=ESTIMATE,
        figure=closed_form_figure,
        theme=THEME,
        unit="error of W2",
        effort=2,
        rivals={
            "one form for all": "The closed form of the circle holds on S^2, too.",
            "half the gap": "The same forms with s = e^{-gt/2}.",
            "geodesic": "The forms are those of geodesic W2.",
        },
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
        rivals={
            "half as fast again": "The guaranteed rate is 1.5 g/||B||.",
            "smallest singular value": "The guaranteed rate is g over the smallest singular value of B.",
        },
    ),
)
