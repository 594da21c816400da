"""Claims about stability (M5): in the initial tokens, and in the weights."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import HeadDescent
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.reading import fine, listed, slope
from metastable.papers.scheduled_heads.protocol import PAPER, inverses, oscillating, resting, tokens
from metastable.papers.verdict import ESTIMATE
from metastable.solve.solve import solve
from metastable.weights import OrnsteinUhlenbeck

THEME = "Stability"
SHOWN = 30.0
"""Growth up to which the bound is drawn; it soon leaves what is measured far below."""


def tokens_along(process: OrnsteinUhlenbeck, rho0: Tensor, times: np.ndarray, method: str = "rk4") -> Tensor:
    """Tokens (m, n, d) at the times, by a fixed step of the grid of the weights."""
    flow = HeadDescent(process)
    return solve(flow, rho0, process.t, times=times, method=method, step=process.step).points


def apart(a: Tensor, b: Tensor) -> np.ndarray:
    """The largest geodesic distance of any token, at every time."""
    return sphere.geodesic_distance(a, b).amax(1).numpy()


def gronwall(process: OrnsteinUhlenbeck) -> np.ndarray:
    """int_0^t L ds at the times of the grid, L = (1/H) sum_h 2 |D_h| (1 + |D_h|): see (M5) of the theory."""
    norm = torch.linalg.matrix_norm(process.values, ord=2)
    rate = (2 * norm * (1 + norm)).mean(1).numpy()
    return np.concatenate([[0.0], np.cumsum((rate[1:] + rate[:-1]) / 2) * process.step])


def data_experiment(setting: Setting) -> Outcome:
    """Two runs under the same weights from tokens that differ by little: how far they drift apart."""
    t, steps, n = 2.0, setting.choose(64, 256), setting.choose(18, 60, 12)
    ratio, growth, orders, rows = -math.inf, -math.inf, [], []
    curves: dict[str, np.ndarray] = {}
    sizes = np.array([1e-2, 1e-3, 1e-4])
    for name, make in (("Ornstein-Uhlenbeck", resting), ("oscillating", oscillating)):
        for heads in (1, 4):
            process = make(t, steps, heads, setting.seed)
            rho0 = tokens(n, 3, setting.seed).points
            shift = torch.from_numpy(np.random.default_rng([setting.seed, 2]).standard_normal((n, 3)))
            base = tokens_along(process, rho0, process.times.numpy())
            ends = []
            for size in sizes:
                moved = sphere.normalize(rho0 + size * shift)
                distance = apart(base, tokens_along(process, moved, process.times.numpy()))
                relative = distance / distance[0]
                ratio = max(ratio, float((relative[1:] * np.exp(-gronwall(process)[1:])).max()))
                growth = max(growth, float(relative.max()))
                ends.append(distance[-1])
            orders.append(slope(np.log(sizes), np.log(ends)))
            rows.append({"weights": f"{name}, H = {heads}", "distance at the end / at the start": relative[-1]})
            if heads == 4:
                curves |= {"t": process.times.numpy(), name: relative, f"bound {name}": np.exp(gronwall(process))}
    return Outcome(
        ratio,
        curves=curves,
        table=rows,
        note=f"the distance at the end is of order {min(orders):.3f} to {max(orders):.3f} in that at the start",
        rivals={"no growth": growth},
    )


def data_figure(outcome: Outcome) -> Lines:
    """Growth of the distance and Gronwall's bound."""
    t, series = outcome.curves["t"], []
    for place, name in enumerate(("Ornstein-Uhlenbeck", "oscillating")):
        bound = outcome.curves[f"bound {name}"]
        near = bound < SHOWN
        series.append(Series(t, outcome.curves[name], f"{name}, H = 4", colour=place))
        series.append(Series(t[near], bound[near], "Grönwall's bound", "dashed", colour=place))
    return Lines(
        "Tokens that start close to each other",
        "time t",
        "largest distance / that at the start",
        series,
        log_y=True,
    )


def noises(setting: Setting) -> np.ndarray:
    """Strengths of the noise that tend to zero."""
    return np.array(setting.choose((1e-3, 1e-4, 1e-5), (1e-3, 1e-4, 1e-5, 1e-6)))


def weights_experiment(setting: Setting) -> Outcome:
    """The same Brownian path with less and less noise: distance of the tokens from those without noise."""
    levels, t, n = noises(setting), 4.0, setting.choose(18, 60, 12)
    steps = setting.choose(128, 512)
    found: dict[str, list[float]] = {}
    for d, heads in ((2, 1), (3, 1), (3, 4)):
        rho0 = tokens(n, d, setting.seed).points
        ends = []
        still = tokens_along(oscillating(t, steps, heads, setting.seed, d), rho0, np.array([0.0, t]))
        for noise in levels:
            noisy = oscillating(t, steps, heads, setting.seed, d, noise=float(noise))
            ends.append(float(apart(still, tokens_along(noisy, rho0, np.array([0.0, t])))[-1]))
        found[f"d = {d}, H = {heads}"] = ends
    orders = {name: slope(np.log(levels), np.log(ends)) for name, ends in found.items()}
    worst = max(orders.values(), key=lambda order: abs(order - 0.5))
    return Outcome(
        worst,
        curves={"noise": levels, **{name: np.array(ends) for name, ends in found.items()}},
        table=as_rows({"heads": list(orders), "order in ν": list(orders.values())}),
        rivals={"first order": 1.0, "no convergence": 0.0},
    )


def weights_figure(outcome: Outcome) -> Lines:
    """Distances against the noise."""
    levels, series = outcome.curves["noise"], []
    for place, (name, ends) in enumerate((k, v) for k, v in outcome.curves.items() if k != "noise"):
        level = float(np.exp(np.mean(np.log(ends / np.sqrt(levels)))))
        series.append(Series(levels, ends, name, "points", colour=place))
        label = "order ν^(1/2)" if place == 0 else ""
        series.append(Series(fine(levels), level * np.sqrt(fine(levels)), label, "dashed", colour=place))
    return Lines(
        "Tokens under weights whose noise vanishes", "noise ν", "largest distance at t = 4", series,
        log_x=True, log_y=True,
    )  # fmt: skip


def euler_steps(setting: Setting) -> tuple[int, ...]:
    """Steps of Euler until t = 1."""
    return tuple(setting.choose((16, 32, 64), (32, 64, 128, 256)))


def euler_experiment(setting: Setting) -> Outcome:
    """Order of Euler on one path of the weights that is refined: how far half the step moves the tokens."""
    counts, paths = euler_steps(setting), setting.choose(20, 60)
    error = np.zeros((paths, len(counts)))
    for k in range(paths):
        coarsest, rho0 = (
            resting(1.0, counts[0], 2, 1000 * setting.seed + k),
            tokens(8, 3, 1000 * setting.seed + k).points,
        )
        refined = [coarsest.refined(m // counts[0]) for m in (*counts, 2 * counts[-1])]
        ends = [tokens_along(process, rho0, np.array([0.0, 1.0]), "euler")[-1] for process in refined]
        for j in range(len(counts)):
            error[k, j] = float(sphere.geodesic_distance(ends[j], ends[j + 1]).square().mean().sqrt())
    dt = 1 / np.array(counts, dtype=float)
    each = np.array([slope(np.log(dt), np.log(row)) for row in error])
    return Outcome(
        float(each.mean()),
        float(each.std(ddof=1) / math.sqrt(paths)),
        curves={"dt": dt, "error": np.exp(np.log(error).mean(0))},
        table=as_rows({"dt": dt, "change of the tokens with dt/2 (geometric mean)": np.exp(np.log(error).mean(0))}),
        rivals={"order one half": 0.5, "second order": 2.0},
    )


def euler_figure(outcome: Outcome) -> Lines:
    """Errors against the step."""
    dt, error = outcome.curves["dt"], outcome.curves["error"]
    level = float(np.exp(np.mean(np.log(error / dt))))
    series = [
        Series(dt, error, "Euler", "points", colour=0),
        Series(fine(dt), level * fine(dt), "order 1", "dashed", colour=0),
    ]
    return Lines(
        "Euler along one path of random weights", "step dt", "change of the tokens at t = 1 with dt/2", series,
        log_x=True, log_y=True, x_ticks=inverses(dt),
    )  # fmt: skip


CLAIMS = (
    Claim(
        "stability-tokens",
        "Tokens that start close to each other drift apart no faster than Grönwall allows, "
        "exp ∫(1/H)Σ2|D_h|(1 + |D_h|)dt, in both regimes.",
        data_experiment,
        expected=1.0,
        tolerance=1e-6,
        relation="at most",
        reason="a bound; rounding of the distances of 1e-4 apart",
        source=PAPER,
        figure=data_figure,
        theme=THEME,
        unit="largest distance / bound",
        effort=2,
        rivals={"no growth": "The flow does not drive tokens apart at all."},
    ),
    Claim(
        "stability-weights",
        lambda setting: (
            "Tokens converge when the weights do: with noise ν around one oscillating path they are of order "
            f"ν^(1/2) from those without (ν = {listed(noises(setting))})."
        ),
        weights_experiment,
        expected=0.5,
        tolerance=0.1,
        reason="the next order of the response, ν^(1/2) relative to the first with factors of e^{Lt}, at the "
        "largest ν",
        source=PAPER,
        figure=weights_figure,
        theme=THEME,
        unit="order in ν",
        effort=2,
        rivals={
            "first order": "The distance is of the order of the variance.",
            "no convergence": "It does not vanish with the noise.",
        },
    ),
    Claim(
        "euler-strong-order",
        lambda setting: (
            "Along one path of random weights, refined consistently, Euler's tokens converge with order one, since "
            f"the noise enters through the weights only (dt = {listed([1 / m for m in euler_steps(setting)])})."
        ),
        euler_experiment,
        expected=1.0,
        tolerance=0.3,
        reason="dt² against dt at the largest step bends the slope by 0.1 to 0.2; standard error over paths",
        source=ESTIMATE,
        figure=euler_figure,
        theme=THEME,
        unit="order in dt",
        effort=3,
        rivals={
            "order one half": "Euler-Maruyama's order for noise that depends on the state.",
            "second order": "The smoothness of the tokens makes it second order.",
        },
    ),
)
