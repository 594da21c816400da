"""Claims about what happens inside E: a great circle, and V = B = I, where every direction is in E."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import special

from metastable import sphere
from metastable.drawing import Lines, Series, shaded
from metastable.flows import SelfAttention
from metastable.measure import Measure
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.concentration.measuring import first_crossing, run
from metastable.papers.concentration.sources import ESTIMATE
from metastable.theory import fastest_mode
from metastable.weights import AttentionWeights

THEME = "Cases"


def great_circle_experiment(setting: Setting) -> Outcome:
    """Finite beta on S^2 with E a plane: rms distance to E against the closed form at zero temperature."""
    w = AttentionWeights(V=np.diag([1.0, 1.0, 0.0]), B=np.eye(3))
    beta, n = setting.choose(64.0, 256.0), setting.choose(1500, 6000)
    times = np.linspace(0, 2.5, 21)
    path = run(w, beta, sphere.fibonacci(n), times, rtol=1e-6)
    onto = torch.linalg.vector_norm(path.points[..., :2], dim=2)
    measured = torch.sqrt(2 * (1 - onto) @ path.mass).numpy()
    m = 1 - np.exp(-2 * np.maximum(times, 1e-9))
    exact = np.sqrt(2 - 2 * (special.ellipe(m) - (1 - m) * special.ellipk(m)) / m)
    exact[0] = math.sqrt(2 - math.pi / 2)
    return Outcome(
        float(np.abs(measured / exact - 1).max()), curves={"t": times, "tokens": measured, "exact": exact}
    )


def great_circle_figure(outcome: Outcome) -> Lines:
    """Distance to the great circle."""
    t = outcome.curves["t"]
    series = [
        Series(t, outcome.curves["tokens"], "tokens", "points"),
        Series(t, outcome.curves["exact"], "closed form, zero temperature"),
    ]
    return Lines(
        "Concentration on a great circle, V = diag(1, 1, 0), B = I", "time t", "distance to E", series, log_y=True
    )


def mode_experiment(setting: Setting) -> Outcome:
    """V = B = I on the circle: growth of a small density mode k against k^2 I_k(beta)/(beta I_0(beta))."""
    beta, n, size, t = 32.0, setting.choose(512, 1024), 1e-5, 1.0
    w = AttentionWeights(V=np.eye(2), B=np.eye(2))
    modes = np.array(setting.choose((1, 2, 4, 8, 12), (1, 2, 3, 4, 6, 8, 10, 12, 16)))
    theta = 2 * np.pi * (np.arange(n) + 0.5) / n
    measured, exact = [], []
    for k in modes:
        rho0 = Measure(sphere.from_angles(theta), 1 + size * np.cos(k * theta))
        path = run(w, beta, rho0, [0.0, t], rtol=1e-10)
        angle = sphere.angles(path.points[1]).numpy()
        amplitude = 2 * float((path.mass.numpy() * np.cos(k * angle)).sum())
        measured.append(math.log(amplitude / size) / t)
        exact.append(k**2 * special.ive(k, beta) / (beta * special.ive(0, beta)))
    ratio = np.array(measured) / np.array(exact)
    return Outcome(float(np.abs(ratio - 1).max()), **_rates("mode", modes, measured, exact))


def _rates(name: str, k: np.ndarray, measured: Sequence[float], exact: Sequence[float]) -> dict[str, Any]:
    """Measured and expected growth rates by mode, as the curves and the table of an outcome."""
    curves = {"k": k, "measured": np.array(measured), "exact": np.array(exact)}
    return {"curves": curves, "table": as_rows({name: k, "measured rate": measured, "expected rate": exact})}


def mode_figure(outcome: Outcome) -> Lines:
    """Growth rates."""
    k = outcome.curves["k"]
    return Lines(
        "Growth of density modes inside E (circle, V = B = I, β = 32)",
        "mode k",
        "growth rate",
        [
            Series(k, outcome.curves["exact"], "k² I_k(β)/(β I₀(β))"),
            Series(k, outcome.curves["measured"], "measured", "points"),
            Series(k, np.full(len(k), 2 / math.e), "2/e", "dotted"),
        ],
    )


def lumping_experiment(setting: Setting) -> Outcome:
    """iid tokens on the circle, V = B = I: time at which their energy is a tenth above that of the uniform law.

    E(t)/E(uniform) = 1 + 2 sum_k (I_k/I_0)(beta) (|c_k|^2 - 1/n), c_k the mean of e^{ik theta}; the 1/n that
    tokens owe to themselves is taken off, so that iid tokens start at 1 on average.
    """
    beta, level = 60.0, 1.1
    w = AttentionWeights(V=np.eye(2), B=np.eye(2))
    counts, seeds = np.array(setting.choose((200, 800), (400, 1600, 6400))), 24
    times, modes = np.linspace(0, 4.5, 46), np.arange(1, 60)
    share = special.ive(modes, beta) / special.ive(0, beta)
    curves: dict[str, np.ndarray] = {"t": times, "n": counts}
    when, spread = [], []
    for n in counts:
        energy = np.empty((seeds, len(times)))
        for seed in range(seeds):
            path = run(w, beta, sphere.uniform(int(n), 2, seed=setting.seed + 500 + seed), times, rtol=1e-6)
            for j, x in enumerate(path.points):
                power = np.abs(np.exp(1j * np.outer(modes, sphere.angles(x).numpy())).mean(1)) ** 2
                energy[seed, j] = 1 + 2 * float(share @ (power - 1 / n))
        each = [first_crossing(times, row, level) for row in energy]
        when.append(np.mean(each))
        spread.append(np.std(each, ddof=1) / math.sqrt(seeds))
        curves[f"energy {n}"] = energy.mean(0)
    fastest, rate = fastest_mode(beta)
    logs = np.log(counts)
    lever = (logs - logs.mean()) / ((logs - logs.mean()) ** 2).sum()
    return Outcome(
        2 * rate * float(lever @ np.array(when)),
        uncertainty=2 * rate * float(np.linalg.norm(lever * np.array(spread))),
        curves=curves,
        table=as_rows({"n": counts, "time of lumping": when, "standard error": spread}),
        note=f"fastest mode {fastest}, its rate {rate:.4f}",
    )


def lumping_figure(outcome: Outcome) -> Lines:
    """Energy against time for every n."""
    t, counts = outcome.curves["t"], outcome.curves["n"]
    series = shaded([(t, outcome.curves[f"energy {n}"]) for n in counts], [f"n = {n}" for n in counts])
    series.append(Series(t, np.full_like(t, 1.1), "a tenth above uniform", "dotted"))
    return Lines(
        "iid tokens lump on the circle, V = B = I, β = 60 (mean over seeds)", "time t", "energy / uniform", series
    )


def identity_experiment(setting: Setting) -> Outcome:
    """V = B = I on S^2: rate of a small perturbation by the Legendre polynomial of degree k, from the field."""
    beta = 8.0
    points, weight = sphere.product_gauss(setting.choose(60, 90))
    flow = SelfAttention(AttentionWeights(V=np.eye(3), B=np.eye(3)), beta)
    degrees = np.arange(1, 9)
    size, measured, exact = 1e-6, [], []
    z = points[:, 2].numpy()
    for k in degrees:
        wave = special.eval_legendre(k, z)
        slope_of_wave = k * (z * wave - special.eval_legendre(k - 1, z)) / (z**2 - 1)
        mass = torch.from_numpy(weight.numpy() * (1 + size * wave))
        velocity = flow.velocity(0.0, points, mass)[:, 2].numpy()
        growth = float((mass.numpy() * slope_of_wave * velocity).sum())
        measured.append(growth * (2 * k + 1) / size)
        bessel = special.ive(k + 0.5, beta) / special.ive(0.5, beta)
        exact.append(k * (k + 1) * bessel / beta)
    error = np.abs(np.array(measured) / np.array(exact) - 1)
    return Outcome(float(error.max()), **_rates("degree", degrees, measured, exact))


def identity_figure(outcome: Outcome) -> Lines:
    """Growth rates by degree."""
    k = outcome.curves["k"]
    return Lines(
        "Growth of harmonics on S², V = B = I, β = 8",
        "degree k",
        "growth rate",
        [
            Series(k, outcome.curves["exact"], "k(k+1) I_{k+½}(β)/(β I_½(β))"),
            Series(k, outcome.curves["measured"], "measured", "points"),
        ],
    )


CLAIMS = (
    Claim(
        "great-circle",
        "When E is a plane, tokens concentrate on the great circle along the zero-temperature closed form.",
        great_circle_experiment,
        expected=0.0,
        tolerance=0.1,
        reason="the correction at finite beta is of order 1/beta times the growth; beta = 64 (quick) or 256",
        source=ESTIMATE,
        figure=great_circle_figure,
        theme=THEME,
        unit="largest relative deviation",
        effort=6,
    ),
    Claim(
        "great-circle-modes",
        "Inside E density modes grow at k^2 I_k(beta)/(beta I_0(beta)), at most 2/e whatever beta is.",
        mode_experiment,
        expected=0.0,
        tolerance=1e-3,
        reason="linear response to a perturbation of 1e-5; the next order is 1e-4",
        source=ESTIMATE,
        figure=mode_figure,
        theme=THEME,
        unit="largest relative error",
        effort=3,
    ),
    Claim(
        "great-circle-clusters",
        "Inside E n iid tokens lump into clusters after ln(n)/(2 r) + O(1), r the fastest rate of a density mode: "
        "what grows is the noise n^{-1/2} of their sampling.",
        lumping_experiment,
        expected=1.0,
        tolerance=0.2,
        reason="neighbouring modes grow nearly as fast and add up to 10% to the slope here; the rest is noise",
        source=ESTIMATE,
        figure=lumping_figure,
        theme=THEME,
        unit="slope in ln n * 2r",
        effort=5,
    ),
    Claim(
        "identity-weights",
        "For V = B = I on S^2 harmonics of degree k grow at k(k+1) I_{k+1/2}(beta)/(beta I_{1/2}(beta)).",
        identity_experiment,
        expected=0.0,
        tolerance=1e-5,
        reason="linear response to a perturbation of 1e-6 on a product Gauss rule",
        source=ESTIMATE,
        figure=identity_figure,
        theme=THEME,
        unit="largest relative error",
    ),
)
