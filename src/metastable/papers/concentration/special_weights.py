"""Claims about special weights: negative, complex, defective and non-symmetric M."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import ZeroTemperature
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.concentration.great_circle import THEME
from metastable.papers.concentration.measuring import run
from metastable.papers.concentration.sources import ESTIMATE
from metastable.papers.reading import farthest
from metastable.solve import solve
from metastable.theory import comoving_target, limit_map, spectrum
from metastable.weights import AttentionWeights

REPELLING = ((-1.0, -2.0), (-1.0, -3.0), (-2.0, -3.0), (-0.5, -2.0))
"""Eigenvalues mu_1 > mu_2 of V, all negative, with |mu_1|/(mu_1 - mu_2) = 1, 1/2, 2, 1/3."""


def negative_experiment(setting: Setting) -> Outcome:
    """All eigenvalues negative: tokens gather at the least negative one and keep a width, whose law is tested."""
    beta, n = _repelling_beta(setting), setting.choose(200, 400)
    rows, curves = [], {"beta": np.array([beta])}
    for mu1, mu2 in REPELLING:
        w = AttentionWeights(V=np.diag([mu1, mu2]), B=np.eye(2))
        times = np.linspace(0, 60 / (mu1 - mu2), 61)  # the width relaxes slowly: 1% is left at half of it
        path = run(w, beta, sphere.equispaced(n), times, rtol=1e-7)
        variance = (path.points[..., 1] ** 2 @ path.mass).numpy()
        last = beta * float(variance[-1])
        rows.append({"mu_1": mu1, "mu_2": mu2, "beta * variance": last, "predicted": -mu1 / (mu1 - mu2)})
        curves |= {f"t {mu1:g} {mu2:g}": times * (mu1 - mu2), f"variance {mu1:g} {mu2:g}": variance}
    rivals = {
        "1/beta": [1.0 for _ in REPELLING],
        "|mu_2| for |mu_1|": [-mu2 / (mu1 - mu2) for mu1, mu2 in REPELLING],
        "1/(gap beta)": [1 / (mu1 - mu2) for mu1, mu2 in REPELLING],
    }
    found = np.array([row["beta * variance"] for row in rows])
    return Outcome(
        farthest(found / [row["predicted"] for row in rows], 1.0),
        curves=curves,
        table=rows,
        rivals={name: farthest(found / values, 1.0) for name, values in rivals.items()},
        note="the ratio farthest from 1 of the four pairs of eigenvalues",
    )


def _repelling_beta(setting: Setting) -> float:
    return float(setting.choose(64.0, 256.0))


def negative_figure(outcome: Outcome) -> Lines:
    """Transverse variance of every pair of eigenvalues, and where it should end."""
    beta = float(outcome.curves["beta"][0])
    series = []
    for place, (mu1, mu2) in enumerate(REPELLING):
        t, label = outcome.curves[f"t {mu1:g} {mu2:g}"], f"μ = {mu1:g}, {mu2:g}"
        series.append(Series(t, outcome.curves[f"variance {mu1:g} {mu2:g}"], label, colour=place))
        level = np.full(2, -mu1 / ((mu1 - mu2) * beta))
        series.append(Series(t[[0, -1]], level, "" if place else "|μ₁|/((μ₁−μ₂)β)", "dashed", colour=place))
    return Lines(
        f"Negative eigenvalues, B = I, β = {beta:g}", "(μ₁ − μ₂) t", "transverse variance", series, log_y=True
    )


def oblique_experiment(setting: Setting) -> Outcome:
    """Share of tokens that the flow takes to Pi(x_0) with the oblique projector, and with the orthogonal one."""
    generator = np.random.default_rng(setting.seed + 5)
    rows, dims, n = [], (2, 3, 5), setting.choose(400, 2000, 200)
    for d in dims:
        w = oblique_weights(d, generator)
        x0 = sphere.uniform(n, d, seed=setting.seed + d)
        end = solve(ZeroTemperature(w), x0, t=60 / spectrum(w).g_in, method="adaptive", rtol=1e-8).end.points
        e = spectrum(w).dominant_space[:, 0]
        targets = {"oblique": limit_map(w)(x0), "orthogonal": torch.sign(x0 @ e)[:, None] * e}
        share = {name: float(((end - y).norm(dim=1) < 1e-3).double().mean()) for name, y in targets.items()}
        rows.append({"d": d} | {f"share at Pi(x_0), {name} projector": value for name, value in share.items()})
    shares = {name: np.array([row[f"share at Pi(x_0), {name} projector"] for row in rows]) for name in targets}
    least = float(shares["orthogonal"].min())
    return Outcome(
        float(shares["oblique"].min()),
        curves={"d": np.array(dims, dtype=float), **shares},
        table=rows,
        rivals={"orthogonal projector": (least, math.sqrt(least * (1 - least) / n))},
    )


def oblique_weights(d: int, generator: np.random.Generator) -> AttentionWeights:
    """M = S diag(2, 0.9 ... -0.5) S^{-1} with the leading left eigenvector 45 degrees from the right one.

    The two projectors then disagree on a token in four (d = 2) or more, whatever the seed.
    """
    axes = np.linalg.qr(generator.normal(size=(d, d)))[0]
    S = axes.copy()
    S[:, 1] = (axes[:, 0] + axes[:, 1]) / math.sqrt(2)  # orthogonal to the left eigenvector, 45 degrees from E
    M = S @ np.diag(np.concatenate([[2.0], np.linspace(0.9, -0.5, d - 1)])) @ np.linalg.inv(S)
    B = np.eye(d) + 0.3 * generator.normal(size=(d, d)) / math.sqrt(d)
    return AttentionWeights(V=M @ np.linalg.inv(B.T), B=B)


def oblique_figure(outcome: Outcome) -> Lines:
    """Shares by dimension."""
    d = outcome.curves["d"]
    series = [Series(d, outcome.curves[name], f"{name} projector", "points") for name in ("oblique", "orthogonal")]
    ticks = {float(value): f"{value:g}" for value in d}
    return Lines(
        "Non-symmetric M: which projector", "dimension d", "share of tokens at Π(x₀)", series, x_ticks=ticks
    )


COMOVING_END = 4.0
"""Time at which the distance to the co-moving target is compared with that at the start."""


def comoving_experiment(setting: Setting) -> Outcome:
    """A complex pair leads M: distance to the co-moving target, to the static image Qx/|Qx|, to a slower one."""
    M = np.array([[1.0, -0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 0.0]])
    beta, n = setting.choose(256.0, 1024.0), setting.choose(1000, 3000, 600)
    times = np.linspace(0, COMOVING_END, 17)
    x0, curves = sphere.fibonacci(n), {"t": times}
    rows: list[dict[str, Any]] = []
    for name, B in (("I", np.eye(3)), ("diag(1, 1, 0.5)", np.diag([1.0, 1.0, 0.5]))):
        w = AttentionWeights(V=M @ np.linalg.inv(B.T), B=B)
        path = run(w, beta, x0, times, rtol=1e-6)
        moving = comoving_target(w, x0, times)
        slower = comoving_target(w, x0, 0.9 * times)
        cold = solve(ZeroTemperature(w), x0, t=COMOVING_END, times=times, method="adaptive", rtol=1e-8).points
        gaps = {
            "co-moving": path.points - moving,
            "static": path.points - moving[0],
            "tenth slower": path.points - slower,
        }
        rms = {key: gap.square().sum(2).mean(1).sqrt().numpy() for key, gap in gaps.items()}
        zero = (cold - moving).square().sum(2).mean(1).sqrt().numpy()
        rows.append({"B": name} | {key: float(value[-1] / value[0]) for key, value in rms.items()})
        rows[-1]["zero temperature"] = float(zero[-1] / zero[0])
        curves |= {f"{key} {name}": value for key, value in rms.items()}
    worst = {key: max(row[key] for row in rows) for key in gaps}
    rivals = {"static limit": min(row["static"] for row in rows), "a tenth slower": worst["tenth slower"]}
    return Outcome(worst["co-moving"], curves=curves, table=rows, rivals=rivals)


def comoving_figure(outcome: Outcome) -> Lines:
    """All distances."""
    t = outcome.curves["t"]
    kinds = ("co-moving", "static", "tenth slower")
    styles = {"co-moving": "line", "static": "dashed", "tenth slower": "dotted"}
    words = {
        "co-moving": "to the co-moving target",
        "static": "to the static image Qx/|Qx|",
        "tenth slower": "to a target a tenth slower",
    }
    names = [key.removeprefix("co-moving ") for key in outcome.curves if key.startswith("co-moving ")]
    series = [
        Series(t, outcome.curves[f"{kind} {name}"], f"{words[kind]}, B = {name}", styles[kind], colour=place)
        for place, name in enumerate(names)
        for kind in kinds
    ]
    return Lines(
        "Complex dominant pair: M = rotation and growth in a plane", "time t", "rms distance", series, log_y=True
    )


DEFECTIVE = ((1.0, (1.0, 1.0)), (2.0, (1.0, 1.0)), (1.0, (3.0, 1.0)), (0.5, (1.0, 2.0)))
"""c and the diagonal of B with which M = [[1, c], [0, 1]] approaches E."""
DEFECTIVE_END = 400.0
"""Time at which the approach is compared with its law; what is left of the next order is of order 1/t."""


def jordan_experiment(setting: Setting) -> Outcome:
    """A defective leading eigenvalue, M = [[1, c], [0, 1]]: c t tan(angle)/|B^T e1| -> 1, algebraic in t."""
    times = np.concatenate([[0.0], np.geomspace(1, DEFECTIVE_END, 25)])
    rows, curves = [], {"t": times[1:]}
    x0 = sphere.uniform(100, 2, seed=setting.seed)
    for c, diagonal in DEFECTIVE:
        B = np.diag(diagonal)
        w = AttentionWeights(V=np.array([[1.0, c], [0.0, 1.0]]) @ np.linalg.inv(B.T), B=B)
        path = solve(ZeroTemperature(w), x0, t=times[-1], times=times, method="adaptive", rtol=1e-7)
        tangent = (path.points[1:, :, 1] / path.points[1:, :, 0]).abs().median(1).values.numpy()
        scaled = c * times[1:] * tangent / diagonal[0]
        rows.append(
            {"c": c, "|B^T e1|": diagonal[0], "t tan(angle)": float(times[-1] * tangent[-1]), "scaled": scaled[-1]}
        )
        curves[f"c = {c:g}, B = diag({diagonal[0]:g}, {diagonal[1]:g})"] = scaled
    last = np.array([row["scaled"] for row in rows])
    bare = np.array([row["t tan(angle)"] for row in rows])
    return Outcome(
        farthest(last, 1.0),
        curves=curves,
        table=rows,
        rivals={
            "t^(-1/2)": farthest(last / math.sqrt(DEFECTIVE_END), 1.0),
            "exponential": DEFECTIVE_END * math.exp(-DEFECTIVE_END),
            "1/t for all": farthest(bare, 1.0),
        },
        note="the value farthest from 1 of the four pairs of weights",
    )


def jordan_figure(outcome: Outcome) -> Lines:
    """The scaled angle."""
    t = outcome.curves["t"]
    series = [Series(t, y, label) for label, y in outcome.curves.items() if label != "t"]
    series.append(Series(t[[0, -1]], np.ones(2), "1", "dashed"))
    title = "Jordan block M = [[1, c], [0, 1]]: algebraic approach"
    return Lines(title, "time t", "c t tan(angle to E)/|Bᵀe₁|", series, log_x=True)


CLAIMS = (
    Claim(
        "negative-eigenvalues",
        "When all eigenvalues are negative tokens still gather at the largest one, as clusters of variance "
        "|mu_1|/((mu_1 - mu_2) beta).",
        negative_experiment,
        expected=1.0,
        tolerance=lambda setting: 4 / _repelling_beta(setting),
        reason=lambda setting: (
            f"first order in 1/beta at beta = {_repelling_beta(setting):g}; the next is below 4/beta"
        ),
        source=ESTIMATE,
        figure=negative_figure,
        theme=THEME,
        unit="measured / predicted variance",
        effort=3,
        rivals={
            "1/beta": "The variance is 1/beta, as for mu = -1, -2, whatever the eigenvalues are.",
            "|mu_2| for |mu_1|": "The variance is |mu_2|/((mu_1 - mu_2) beta).",
            "1/(gap beta)": "The variance is 1/((mu_1 - mu_2) beta): only the gap counts.",
        },
    ),
    Claim(
        "oblique-projector",
        "For non-symmetric V B^T the limit is Qx/|Qx| with the oblique spectral projector Q, not with the "
        "orthogonal one.",
        oblique_experiment,
        expected=1.0,
        tolerance=0.005,
        reason="only tokens within e^{-30} of the separatrix may still be on their way: less than one of n",
        source=ESTIMATE,
        figure=oblique_figure,
        theme=THEME,
        unit="share of tokens at Pi(x_0)",
        effort=3,
        rivals={"orthogonal projector": "The limit is Px/|Px| with the orthogonal projector P on E."},
    ),
    Claim(
        "complex-pair",
        "When a complex pair leads V B^T there is no static limit; tokens follow the co-moving target in E.",
        comoving_experiment,
        expected=0.1,
        tolerance=0.0,
        reason="at zero temperature 5% of the distance is left (the table has it); the rest is 1/beta and n",
        source=ESTIMATE,
        figure=comoving_figure,
        relation="at most",
        theme=THEME,
        unit=f"distance at t = {COMOVING_END:g} / at t = 0",
        effort=6,
        rivals={
            "static limit": "Tokens converge to the fixed point Qx/|Qx|.",
            "a tenth slower": "Tokens turn at 0.9 of the frequency of the pair.",
        },
    ),
    Claim(
        "jordan-block",
        "When the leading eigenvalue of V B^T is defective, M = [[1, c], [0, 1]], the approach is algebraic: "
        "c t tan(angle)/|B^T e1| -> 1.",
        jordan_experiment,
        expected=1.0,
        tolerance=0.02,
        reason=f"the next orders are (x_1/x_2)/(c t) and ln(t)/t, below 1.5% each at t = {DEFECTIVE_END:g}",
        source=ESTIMATE,
        figure=jordan_figure,
        theme=THEME,
        unit="c t tan(angle)/|B^T e1|",
        effort=2,
        rivals={
            "t^(-1/2)": "The angle falls like t^{-1/2}.",
            "exponential": "The angle falls like e^{-t}, as with a gap of 1.",
            "1/t for all": "The angle falls like 1/t whatever c and B are.",
        },
    ),
)
