"""Claims about the noise of the weights: their law, the martingale of the energy (M2), and what the noise costs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import HeadDescent
from metastable.observe import energy_balance
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.reading import farthest, fine, listed, slope
from metastable.papers.scheduled_heads.protocol import inverses, oscillating, tokens
from metastable.papers.verdict import ESTIMATE
from metastable.solve.solve import solve
from metastable.weights import OrnsteinUhlenbeck, Target

THEME = "Random weights"


def law_experiment(setting: Setting) -> Outcome:
    """Variance of <x, D y> at late times over many heads, relative to nu (1 + <x, y>^2)/4, for several angles."""
    heads, t = setting.choose(20_000, 200_000), 6.0
    angles = np.array([0.0, 0.4, 0.8, 1.2, math.pi / 2])
    noise = 2.0
    process = OrnsteinUhlenbeck(Target.oscillating(2, heads), t, 3, noise, seed=setting.seed)
    # Heads differ in phase: what is left of the start, e^{-6}, and the target's response are taken out.
    spread = process.values[-1] - process.target.response(t)
    x = torch.tensor([1.0, 0.0], dtype=torch.float64)
    y = torch.tensor(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    scores = (spread @ y.T).mT @ x
    found = scores.var(0).numpy()
    expected = noise * (1 + np.cos(angles) ** 2) / 4
    path = oscillating(20.0, 1024, 4, setting.seed, noise=0.3)
    still = OrnsteinUhlenbeck(path.target, path.t, path.steps, 0.0, path.start)
    return Outcome(
        farthest(found / expected, 1.0),
        math.sqrt(2 / heads),
        curves={
            "t": path.times.numpy(),
            "D11": path.values[:, 1, 0, 0].numpy(),
            "D12": path.values[:, 1, 0, 1].numpy(),
            "mean D11": still.values[:, 1, 0, 0].numpy(),
            "mean D12": still.values[:, 1, 0, 1].numpy(),
        },
        table=as_rows({"angle of x and y": angles, "variance": found, "ν(1 + ⟨x,y⟩²)/4": expected}),
        rivals={
            "noise that is not symmetric": farthest(found / (noise / 2), 1.0),
            "variance of dW": farthest(found / (2 * expected), 1.0),
        },
    )


def law_figure(outcome: Outcome) -> Lines:
    """Two entries of one head over time, with and without noise."""
    curves, t = outcome.curves, outcome.curves["t"]
    series = [
        Series(t, curves["D11"], "D₁₁, ν = 0.3", colour=0),
        Series(t, curves["mean D11"], "D₁₁ without noise", "dashed", colour=0),
        Series(t, curves["D12"], "D₁₂, ν = 0.3", colour=1),
        Series(t, curves["mean D12"], "D₁₂ without noise", "dashed", colour=1),
    ]
    return Lines("Weights of one of four oscillating heads, d = 3", "time t", "entry of D", series)


def martingale_experiment(setting: Setting) -> Outcome:
    """What the identity leaves for the martingale, E_T - E_0 - drift - Ito + int G^2: its mean over paths."""
    paths, steps = setting.choose(140, 1000), setting.choose(32, 64)
    remainder, ito, without = np.zeros(paths), np.zeros(paths), np.zeros(paths)
    for k in range(paths):
        seed = 1000 * setting.seed + k
        start = torch.eye(3, dtype=torch.float64).expand(2, 3, 3)
        process = OrnsteinUhlenbeck(Target.resting(3, 2), 0.5, steps, 1.0, start, seed)
        flow = HeadDescent(process)
        path = solve(
            flow, sphere.uniform(8, 3, seed=seed), 0.5, times=process.times, method="euler", step=process.step
        )
        balance = energy_balance(path, flow)
        ito[k] = float(balance.ito[-1])
        remainder[k] = float(balance.residual[-1] + balance.martingale[-1])
        without[k] = remainder[k] + ito[k]
    scale = float(ito.mean())
    error = float(remainder.std(ddof=1) / math.sqrt(paths)) / scale
    return Outcome(
        float(remainder.mean()) / scale,
        error,
        table=[
            {
                "paths": paths,
                "mean of M": float(remainder.mean()),
                "standard error": error * scale,
                "Itô term": scale,
            }
        ],
        rivals={
            "no Itô term": (float(without.mean()) / scale, float(without.std(ddof=1) / math.sqrt(paths)) / scale),
        },
    )


ITO_TIME = 0.25
"""Time of the paths whose identity is read in Ito's form."""


def ito_steps(setting: Setting) -> tuple[int, ...]:
    """Numbers of steps in which the identity is read off one path of tokens."""
    return tuple(setting.choose((8, 32, 128), (8, 32, 128, 512)))


def ito_order_experiment(setting: Setting) -> Outcome:
    """Spread over paths of the residual in Ito's form, when the identity is read at coarser and finer times."""
    counts, paths, t = ito_steps(setting), setting.choose(40, 120), ITO_TIME
    start, rho0 = torch.eye(3, dtype=torch.float64), tokens(8, 3, setting.seed)
    residual, smooth = np.zeros((paths, len(counts))), np.zeros((paths, len(counts)))
    for k in range(paths):
        coarsest = OrnsteinUhlenbeck(Target.resting(3), t, counts[0], 0.5, start, seed=1000 * setting.seed + k)
        finest = coarsest.refined(counts[-1] // counts[0])
        path = solve(HeadDescent(finest), rho0, t, times=finest.times, method="euler", step=finest.step)
        for j, m in enumerate(counts):
            # The same path of the weights and of the tokens, seen at fewer times.
            flow, every = HeadDescent(coarsest.refined(m // counts[0])), counts[-1] // m
            seen = replace(path, times=path.times[::every], frames=path.points[::every])
            residual[k, j] = float(energy_balance(seen, flow).residual[-1])
            smooth[k, j] = float(energy_balance(seen, flow, "stratonovich").residual[-1])
    dt = t / np.array(counts, dtype=float)
    spread, trapezoid = residual.std(0, ddof=1), smooth.std(0, ddof=1)
    # Of the logarithm of a standard deviation from N samples the standard error is (2 (N - 1))^{-1/2}.
    x = np.log(dt) - np.log(dt).mean()
    error = 1 / math.sqrt(2 * (paths - 1)) / math.sqrt(float(x @ x))
    return Outcome(
        slope(np.log(dt), np.log(spread)),
        error,
        curves={"dt": dt, "ito": spread, "stratonovich": trapezoid},
        table=as_rows({"dt": dt, "spread, Itô form": spread, "spread, Stratonovich form": trapezoid}),
        rivals={"first order": 1.0, "Stratonovich form": (slope(np.log(dt), np.log(trapezoid)), error)},
    )


def ito_order_figure(outcome: Outcome) -> Lines:
    """Both spreads against the step with their orders."""
    dt, series = outcome.curves["dt"], []
    for place, (name, label, order) in enumerate(
        (("ito", "Itô form", 0.5), ("stratonovich", "Stratonovich form", 1.0))
    ):
        spread = outcome.curves[name]
        level = float(np.exp(np.mean(np.log(spread) - order * np.log(dt))))
        series.append(Series(dt, spread, label, "points", colour=place))
        series.append(Series(fine(dt), level * fine(dt) ** order, f"order {order:g}", "dashed", colour=place))
    title = "What the noise leaves of the energy identity, H = 1, ν = 0.5"
    label = "spread of the residual over paths"
    return Lines(title, "step dt", label, series, log_x=True, log_y=True, x_ticks=inverses(dt))


CLAIMS = (
    Claim(
        "weights-law",
        "At late times ⟨x, D y⟩ varies around its mean with variance ν(1 + ⟨x,y⟩²)/4, for all unit vectors x, y, "
        "whatever the target does.",
        law_experiment,
        expected=1.0,
        tolerance=0.06,
        reason="standard error (2/heads)^{1/2} of a variance; the worst of five angles",
        source=ESTIMATE,
        figure=law_figure,
        theme=THEME,
        unit="variance / prediction",
        rivals={
            "noise that is not symmetric": "Z instead of (Z + Zᵀ)/2: variance ν/2 for all x and y.",
            "variance of dW": "The variance is that of the noise in a unit of time, ν(1 + ⟨x,y⟩²)/2.",
        },
    ),
    Claim(
        "energy-martingale",
        "What the drift of the weights, the Itô term and the dissipation leave of the energy is a martingale: "
        "its mean "
        "over paths is zero.",
        martingale_experiment,
        expected=0.0,
        tolerance=0.3,
        reason="Euler's error of the identity is dt times the rates, 3% of the Itô term; the rest is the "
        "standard error",
        source=ESTIMATE,
        theme=THEME,
        unit="mean / Itô term",
        effort=4,
        rivals={"no Itô term": "The chain rule without the second derivative."},
    ),
    Claim(
        "ito-residual-order",
        lambda setting: (
            "On a single path the residual of the identity in Itô's form is of order one half, not one: "
            "squares of the "
            f"noise differ from their mean (dt = {listed([ITO_TIME / m for m in ito_steps(setting)])})."
        ),
        ito_order_experiment,
        expected=0.5,
        tolerance=0.25,
        reason="half of the distance to first order; the standard error is that of standard deviations over paths",
        source=ESTIMATE,
        figure=ito_order_figure,
        theme=THEME,
        unit="order of the spread in dt",
        effort=4,
        rivals={
            "first order": "The residual is of first order on every path, as without noise.",
            "Stratonovich form": "The trapezoidal form has the same order.",
        },
    ),
)
