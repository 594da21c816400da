"""Claims about special weights: negative, complex, defective and non-symmetric M."""

from __future__ import annotations

import math

import numpy as np
import torch

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import ZeroTemperature
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.concentration.families import repelling
from metastable.papers.concentration.great_circle import THEME
from metastable.papers.concentration.measuring import run
from metastable.papers.concentration.sources import ESTIMATE
from metastable.solve import solve
from metastable.theory import comoving_target, limit_map, spectrum
from metastable.weights import AttentionWeights


def negative_experiment(setting: Setting) -> Outcome:
    """All eigenvalues negative: tokens gather at the least negative one and keep the width beta^{-1/2}."""
    beta, n = setting.choose(64.0, 256.0), setting.choose(200, 400)
    times = np.linspace(0, 40, 41)
    path = run(repelling(), beta, sphere.equispaced(n), times, rtol=1e-7)
    variance = (path.points[..., 1] ** 2 @ path.mass).numpy()
    return Outcome(
        float(beta * variance[-1]), curves={"t": times, "variance": variance, "expected": np.array([1 / beta])}
    )


def negative_figure(outcome: Outcome) -> Lines:
    """Transverse variance."""
    t = outcome.curves["t"]
    series = [
        Series(t, outcome.curves["variance"], "tokens"),
        Series(t, np.full_like(t, outcome.curves["expected"][0]), "1/β", "dashed"),
    ]
    return Lines(
        "Negative eigenvalues, V = diag(−1, −2), B = I", "time t", "transverse variance", series, log_y=True
    )


def oblique_experiment(setting: Setting) -> Outcome:
    """Share of tokens that the flow takes to Pi(x_0) with the oblique projector; the orthogonal one beside it."""
    generator = np.random.default_rng(setting.seed + 5)
    rows, shares = [], []
    for d in (2, 3, 5):
        S = np.eye(d) + 0.9 * generator.normal(size=(d, d)) / math.sqrt(d)
        M = S @ np.diag(np.concatenate([[2.0], np.linspace(0.9, -0.5, d - 1)])) @ np.linalg.inv(S)
        B = np.eye(d) + 0.3 * generator.normal(size=(d, d)) / math.sqrt(d)
        w = AttentionWeights(V=M @ np.linalg.inv(B.T), B=B)
        x0 = sphere.uniform(setting.choose(400, 2000), d, seed=setting.seed + d)
        end = solve(ZeroTemperature(w), x0, t=60 / spectrum(w).g_in, method="adaptive", rtol=1e-8).end.points
        e = spectrum(w).dominant_space[:, 0]
        orthogonal = torch.sign(x0 @ e)[:, None] * e
        right = float(((end - limit_map(w)(x0)).norm(dim=1) < 1e-3).double().mean())
        wrong = float(((end - orthogonal).norm(dim=1) > 1.0).double().mean())
        shares.append(right)
        rows.append({"d": d, "share at Pi(x_0)": right, "wrong with the orthogonal projector": wrong})
    dims = np.array([2.0, 3.0, 5.0])
    misplaced = np.array([row["wrong with the orthogonal projector"] for row in rows], dtype=float)
    return Outcome(min(shares), curves={"d": dims, "right": np.array(shares), "wrong": misplaced}, table=rows)


def oblique_figure(outcome: Outcome) -> Lines:
    """Shares by dimension."""
    d = outcome.curves["d"]
    series = [
        Series(d, outcome.curves["right"], "tokens at Π(x₀), oblique projector", "points"),
        Series(d, outcome.curves["wrong"], "tokens misplaced by the orthogonal projector", "points"),
    ]
    return Lines("Non-symmetric M: which projector", "dimension d", "share of tokens", series)


def comoving_experiment(setting: Setting) -> Outcome:
    """A complex pair leads M: distance to the co-moving target, and to the static image Qx/|Qx|."""
    M = np.array([[1.0, -0.8, 0.0], [0.8, 1.0, 0.0], [0.0, 0.0, 0.0]])
    w = AttentionWeights(V=M, B=np.eye(3))
    beta, n = setting.choose(256.0, 1024.0), setting.choose(1000, 3000)
    x0 = sphere.fibonacci(n)
    times = np.linspace(0, 4, 17)
    path = run(w, beta, x0, times, rtol=1e-6)
    target = comoving_target(w, x0, times)
    static = target[0]
    moving = (path.points - target).square().sum(2).mean(1).sqrt().numpy()
    still = (path.points - static).square().sum(2).mean(1).sqrt().numpy()
    rows = as_rows({"t": times[::4], "to the moving target": moving[::4], "to the static one": still[::4]})
    curves = {"t": times, "moving": moving, "static": still}
    return Outcome(float(moving[-1] / moving[0]), curves=curves, table=rows)


def comoving_figure(outcome: Outcome) -> Lines:
    """Both distances."""
    t = outcome.curves["t"]
    series = [
        Series(t, outcome.curves["moving"], "to the co-moving target"),
        Series(t, outcome.curves["static"], "to the static image Qx/|Qx|", "dashed"),
    ]
    return Lines(
        "Complex dominant pair: M = rotation and growth in a plane", "time t", "rms distance", series, log_y=True
    )


def jordan_experiment(setting: Setting) -> Outcome:
    """A defective leading eigenvalue: tan(angle) * t -> 1, algebraic instead of exponential."""
    w = AttentionWeights(V=[[1.0, 1.0], [0.0, 1.0]], B=np.eye(2))
    x0 = sphere.uniform(100, 2, seed=setting.seed)
    times = np.concatenate([[0.0], np.geomspace(1, 400, 25)])
    path = solve(ZeroTemperature(w), x0, t=400.0, times=times, method="adaptive", rtol=1e-9)
    product = (path.points[..., 1] / path.points[..., 0]).abs().median(1).values.numpy() * times
    return Outcome(float(product[-1]), curves={"t": times[1:], "product": product[1:]})


def jordan_figure(outcome: Outcome) -> Lines:
    """tan * t."""
    t = outcome.curves["t"]
    series = [Series(t, outcome.curves["product"], "median token"), Series(t, np.ones_like(t), "1", "dashed")]
    return Lines("Jordan block: algebraic approach", "time t", "t · tan(angle to E)", series, log_x=True)


CLAIMS = (
    Claim(
        "negative-eigenvalues",
        "When all eigenvalues are negative tokens still gather at the largest one, as clusters of variance "
        "|mu_1|/((mu_1 - mu_2) beta).",
        negative_experiment,
        expected=1.0,
        tolerance=0.04,
        reason="first order in 1/beta, beta = 64 (quick) or 256",
        source=ESTIMATE,
        figure=negative_figure,
        theme=THEME,
        unit="beta * variance",
        effort=3,
    ),
    Claim(
        "oblique-projector",
        "For non-symmetric V B^T the limit is Qx/|Qx| with the oblique spectral projector Q, not with the "
        "orthogonal one.",
        oblique_experiment,
        expected=1.0,
        tolerance=0.005,
        reason="tokens within 1e-8 of the separatrix may still be on their way",
        source=ESTIMATE,
        figure=oblique_figure,
        theme=THEME,
        unit="share of tokens",
        effort=3,
    ),
    Claim(
        "complex-pair",
        "When a complex pair leads V B^T there is no static limit; tokens follow the co-moving target in E.",
        comoving_experiment,
        expected=0.1,
        tolerance=0.0,
        reason="e^{-4} = 0.02 of the distance would be left at zero temperature; the rest is 1/beta and n",
        source=ESTIMATE,
        figure=comoving_figure,
        relation="at most",
        theme=THEME,
        unit="distance at t = 4 / at t = 0",
        effort=6,
    ),
    Claim(
        "jordan-block",
        "When the leading eigenvalue of V B^T is defective the approach is algebraic: t tan(angle) -> 1.",
        jordan_experiment,
        expected=1.0,
        tolerance=0.02,
        reason="the next order is (x_1/x_2)/t, with a median of 1/400",
        source=ESTIMATE,
        figure=jordan_figure,
        theme=THEME,
        unit="t tan(angle)",
    ),
)
