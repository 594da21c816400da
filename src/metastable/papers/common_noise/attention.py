"""Claims about noise and attention together: what attention adds to the exponent, which of them wins (Y3)."""

from __future__ import annotations

import math

import numpy as np
import torch

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import CommonNoise, SelfAttention
from metastable.measure import Ensemble
from metastable.papers.agreement import agreement_figure
from metastable.papers.claim import Outcome, Setting
from metastable.papers.common_noise.exponents import APART, METHOD, log_distance, root
from metastable.papers.common_noise.pairs import (
    LEFT_BY_STEPS,
    distance,
    extrapolated,
    mean_and_error,
    pairs,
)
from metastable.papers.own_error import OwnError, with_systematic
from metastable.papers.reading import farthest
from metastable.papers.verdict import ESTIMATE
from metastable.solve import solve
from metastable.theory import TwoPointMotion
from metastable.weights import AttentionWeights

PAPER = "arXiv:2604.26898"
THEME = "Noise against attention"
ADDED = (("relu", 3, 1.0, 1.0), ("relu", 3, -1.0, 4.0), ("linear", 4, 0.5, 0.0), ("constant", 5, -1.0, 2.0))
"""(activation, d, V = v I, beta)."""
ADDED_TIME, ADDED_STEPS = 0.5, 24
ADDED_SAMPLES = (400, 4000, 150)
REPELLED = (("relu", 4), ("linear", 3), ("constant", 4))
SQUARES = (0.4, 1.0, 1.6)
"""Squares of the scale of the noise, in units of the one at which it balances attention with V = -I."""
REPELLED_STEP = 0.02
REPELLED_SAMPLES = (1200, 20_000, 400)
ENERGIES = (("constant", 8, -1.0, 1.0), ("constant", 6, 0.0, 0.0), ("sigmoid", 12, 0.0, 0.0))
"""(activation, d, v, beta), in all of which the noise is coercive: c > 0."""
TOKENS = 6
ENERGY_SAMPLES = (400, 5000, 150)
ENERGY_STEPS = 64


def attending(d: int, v: float, beta: float) -> SelfAttention | None:
    """Softmax attention with V = v I and B = I; none for v = 0."""
    eye = torch.eye(d, dtype=torch.float64)
    return None if v == 0 else SelfAttention(AttentionWeights(V=v * eye, B=eye), beta)


def added_experiment(setting: Setting) -> Outcome:
    """Change of the exponent by attention over -2 v, on the same noise; the case that is farthest from one."""
    ratios, errors, steps, rows = [], [], [], []
    curves: dict[str, np.ndarray] = {}
    for k, (activation, d, v, beta) in enumerate(ADDED):
        start, seed = pairs(setting.choose(*ADDED_SAMPLES), d, APART), setting.seeds(1, 40, k)[0]
        flows = [CommonNoise(drift, activation) for drift in (attending(d, v, beta), None)]
        change, coarse = (
            np.log(np.divide(*(end_distance(flow, start, ADDED_TIME, step, seed) for flow in flows))) / ADDED_TIME
            for step in (ADDED_TIME / ADDED_STEPS, 2 * ADDED_TIME / ADDED_STEPS)
        )
        mean, error = mean_and_error(change)
        ratios.append(mean / (-2 * v))
        errors.append(error / abs(2 * v))
        steps.append(abs(float(np.mean(coarse - change)) / (2 * v)))
        rows.append({"activation": activation, "d": d, "v": v, "β": beta, "change": mean, "−2v": -2 * v})
        rows[-1]["with twice the step"] = float(coarse.mean())
        name = f"{activation}, d = {d}, β = {beta:g}"
        curves |= {f"expected {name}": np.array([-2 * v]), f"measured {name}": np.array([mean])}
        curves[f"error {name}"] = np.array([error])
    orthogonal = [2 * ratio / 4 * (1 + math.exp(beta)) for ratio, (*_, beta) in zip(ratios, ADDED, strict=True)]
    outcome = Outcome(
        farthest(ratios, 1.0),
        max(errors),
        rivals={
            "rate of the distance": (farthest([2 * ratio for ratio in ratios], 1.0), 2 * max(errors)),
            "weights of distant tokens": (farthest(orthogonal, 1.0), max(errors)),
        },
        curves=curves,
        table=rows,
    )
    return with_systematic(outcome, max(steps))


def end_distance(flow: CommonNoise, start: Ensemble, t: float, step: float, seed: int) -> np.ndarray:
    """1 - g of the pairs at time t."""
    return distance(solve(flow, start, t, step=step, seed=seed, method=METHOD).end.points)


def added_figure(outcome: Outcome) -> Lines:
    """Changes of the exponent beside -2 v."""
    title = "What attention with V = vI adds to the exponent of 1 − g"
    return agreement_figure(outcome, title, "−2v", "measured change")


def repelled_experiment(setting: Setting) -> Outcome:
    """The strength s^2 at which the exponent with V = -I changes sign, over 2/|Lambda|: mean over activations."""
    ratios, errors, shifts, rows = [], [], [], []
    curves: dict[str, np.ndarray] = {"share": np.array(SQUARES), "fine": np.linspace(0.2, 1.8, 40)}
    for k, (activation, d) in enumerate(REPELLED):
        balance = 2 / abs(TwoPointMotion(activation, d).lyapunov)
        start = pairs(setting.choose(*REPELLED_SAMPLES), d, APART)
        rates = []
        for j, share in enumerate(SQUARES):
            flow = CommonNoise(attending(d, -1.0, 1.0), activation, scale=math.sqrt(share * balance))
            seed = setting.seeds(1, 50, k, j)[0]
            ends = extrapolated(flow, start, 1.0, REPELLED_STEP, seed, log_distance, METHOD)
            rates.append((*mean_and_error(ends.values - math.log(APART)), float(ends.left.mean())))
        found, noise, left = np.array(rates).T
        crossing, error = root(curves["share"], found, noise)
        ratios.append(crossing)
        errors.append(error)
        shifts.append(crossing - root(curves["share"], found - left, noise)[0])
        rows.append({"activation": activation, "d": d, "2/|Λ|": balance, "measured": crossing * balance})
        curves |= {
            f"tokens {activation}, d = {d}": found,
            f"error {activation}, d = {d}": noise,
        }
    curves["theory"] = 2 - 2 * curves["fine"]
    error = math.hypot(*errors) / len(errors)
    outcome = Outcome(
        float(np.mean(ratios)),
        error,
        rivals={
            "any noise wins": (0.0, error),
            "balance at s²|Λ| = 1": (2 * float(np.mean(ratios)), 2 * error),
            "balance at s²|Λ| = 4": (float(np.mean(ratios)) / 2, error / 2),
        },
        curves=curves,
        table=rows,
    )
    return with_systematic(outcome, float(np.mean(shifts)))


def repelled_figure(outcome: Outcome) -> Lines:
    """Exponents against the strength of the noise."""
    curves = outcome.curves
    names = [name.removeprefix("tokens ") for name in curves if name.startswith("tokens ")]
    dots = [
        Series(curves["share"], curves[f"tokens {name}"], name, "points", colour=i, error=curves[f"error {name}"])
        for i, name in enumerate(names)
    ]
    line = Series(curves["fine"], curves["theory"], "2 + s²Λ", "dashed", colour=3)
    title = "Exponent of 1 − g where attention repels, V = −I: noise wins below zero"
    return Lines(title, "s²|Λ|/2", "exponent of 1 − g", [*dots, line])


def energy_experiment(setting: Setting) -> Outcome:
    """Rate at which E[1 - |mean of the tokens|^2] falls, over the coercivity c: the smallest of the cases."""
    ratios, errors, steps, rows = [], [], [], []
    curves: dict[str, np.ndarray] = {}
    rivals: dict[str, tuple[float, float]] = {}
    for k, (activation, d, v, beta) in enumerate(ENERGIES):
        c = TwoPointMotion(activation, d, attention=v, beta=beta).coercivity
        t = 1.0 / c
        flow = CommonNoise(attending(d, v, beta), activation)
        rate, error, times, energy = energy_rate(setting, flow, d, t, k)
        steps.append((energy_rate(setting, flow, d, t, k, ENERGY_STEPS // 2)[0] - rate) / c)
        ratios.append(rate / c)
        errors.append(error / c)
        rows.append({"activation": activation, "d": d, "v": v, "c": c, "rate": rate, "standard error": error})
        curves |= {f"t {k}": times * c, f"energy {k}": energy}
        if k == 0:
            for name, other in (
                ("noise that is not coercive", CommonNoise(attending(d, v, beta), "tanh")),
                ("independent noise", CommonNoise(attending(d, v, beta), activation, independent=True)),
            ):
                rate, error, _, _ = energy_rate(setting, other, d, t, k)
                rivals[name] = rate / c, error / c
    worst = int(np.argmin(ratios))
    return with_systematic(
        Outcome(ratios[worst], errors[worst], rivals=rivals, curves=curves, table=rows), steps[worst]
    )


def energy_rate(
    setting: Setting, flow: CommonNoise, d: int, t: float, stream: int, steps: int = ENERGY_STEPS
) -> tuple[float, float, np.ndarray, np.ndarray]:
    """-log(E_t/E_0)/t with its standard error, and the curve of E over time."""
    count, (first, second) = setting.choose(*ENERGY_SAMPLES), setting.seeds(2, 60, stream)
    start = Ensemble(sphere.uniform(count * TOKENS, d, seed=first).view(count, TOKENS, d))
    path = solve(flow, start, t, times=9, step=t / steps, seed=second, method=METHOD)
    energy = 1 - path.points.mean(2).square().sum(-1).numpy()
    (begin, _), (end, error) = mean_and_error(energy[0]), mean_and_error(energy[-1])
    return -math.log(end / begin) / t, error / end / t, path.times.numpy(), energy.mean(1)


def energy_figure(outcome: Outcome) -> Lines:
    """Energies over time against the bound."""
    curves, rows = outcome.curves, outcome.table
    grid = np.linspace(0, 1, 50)
    dots = [
        Series(
            curves[f"t {k}"],
            curves[f"energy {k}"] / curves[f"energy {k}"][0],
            f"{row['activation']}, d = {row['d']}" + (f", V = {row['v']:g} I" if row["v"] else ""),
            "points",
            colour=k,
        )
        for k, row in enumerate(rows)
    ]
    bound = Series(grid, np.exp(-grid), "bound exp(−ct)", "dashed", colour=len(dots))
    title = f"Mean energy of {TOKENS} tokens under a coercive common noise"
    return Lines(title, "c t", "E[1 − |mean|²], relative to the start", [*dots, bound], log_y=True)


CLAIMS = (
    OwnError(
        "attention-exponent",
        "Softmax attention with V = vI and B = I adds −2v to the exponent of 1 − g near consensus, whatever β and "
        "the noise (v from −1 to 1, β from 0 to 4).",
        added_experiment,
        expected=1.0,
        reason="the steps: the most that twice the step changes",
        source=ESTIMATE,
        figure=added_figure,
        theme=THEME,
        unit="measured / (−2v)",
        effort=1,
        rivals={
            "rate of the distance": "It adds −v, which is the change for |x − y|.",
            "weights of distant tokens": "It adds −4v/(1 + e^β), as for orthogonal tokens.",
        },
    ),
    OwnError(
        "noise-beats-repulsion",
        "Where attention repels, V = −I, tokens synchronise iff the noise is strong enough, s²|Λ| > 2 (ReLU, "
        "linear and constant activations; s² from 0.4 to 1.6 times that).",
        repelled_experiment,
        expected=1.0,
        reason=LEFT_BY_STEPS,
        source=ESTIMATE,
        figure=repelled_figure,
        theme=THEME,
        unit="measured s²|Λ|/2 of the balance",
        effort=2,
        rivals={
            "any noise wins": "The noise synchronises however weak it is.",
            "balance at s²|Λ| = 1": "Attention counts half as much.",
            "balance at s²|Λ| = 4": "Attention counts twice as much.",
        },
    ),
    OwnError(
        "energy-dissipation",
        "Where the common noise is coercive relative to attention, b(g) ≥ c(1−g) with c > 0, the interaction "
        f"energy falls exponentially on average, at least with the rate c ({TOKENS} uniform tokens, constant and "
        "sigmoid activations, d from 6 to 12, one with V = −I).",
        energy_experiment,
        expected=1.0,
        reason="the steps: what twice the step changes",
        source=PAPER + ", with metastable's constant",
        figure=energy_figure,
        relation="at least",
        theme=THEME,
        unit="least rate / c",
        effort=4,
        rivals={
            "noise that is not coercive": "Any common noise does it, also that of tanh.",
            "independent noise": "Any noise does it, also one that every token has for itself.",
        },
    ),
)
