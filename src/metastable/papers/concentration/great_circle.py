"""Claims about E a great circle: how tokens come to it, and when they lump inside."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy import special

from metastable import sphere
from metastable.drawing import Lines, Series, shaded
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.concentration.measuring import run
from metastable.papers.concentration.sources import ESTIMATE
from metastable.papers.reading import first_crossing, listed
from metastable.theory import fastest_mode, growth_rate, uniform_distance
from metastable.weights import AttentionWeights

THEME = "Cases"
GREAT_CIRCLE_END = 2.5
"""Time up to which tokens are followed to the great circle; later the growth inside E sets in."""


def _great_circle_beta(setting: Setting) -> float:
    return float(setting.choose(64.0, 256.0))


def great_circle_experiment(setting: Setting) -> Outcome:
    """Finite beta on S^2 with E a plane: rms distance to E against the closed form at zero temperature."""
    w = AttentionWeights(V=np.diag([1.0, 1.0, 0.0]), B=np.eye(3))
    beta, n = _great_circle_beta(setting), setting.choose(1500, 6000)
    times = np.linspace(0, GREAT_CIRCLE_END, 21)
    path = run(w, beta, sphere.fibonacci(n), times, rtol=1e-6)
    onto = torch.linalg.vector_norm(path.points[..., :2], dim=2)
    measured = torch.sqrt(2 * (1 - onto) @ path.mass).numpy()

    def deviation(expected: Any) -> float:
        return float(np.abs(measured / np.asarray(expected) - 1).max())

    return Outcome(
        deviation(uniform_distance(3, 2, times)),
        curves={"t": times, "tokens": measured},
        rivals={
            "half the gap": deviation(uniform_distance(3, 2, times / 2)),
            "point pair": deviation(uniform_distance(3, 1, times)),
            "a tenth faster": deviation(uniform_distance(3, 2, 1.1 * times)),
        },
    )


def great_circle_figure(outcome: Outcome) -> Lines:
    """Distance to the great circle."""
    t = outcome.curves["t"]
    grid = np.linspace(0, t[-1], 121)
    series = [
        Series(t, outcome.curves["tokens"], "tokens", "points", colour=0),
        Series(grid, np.asarray(uniform_distance(3, 2, grid)), "closed form, zero temperature", colour=0),
    ]
    return Lines(
        "Concentration on a great circle, V = diag(1, 1, 0), B = I", "time t", "distance to E", series, log_y=True
    )


LUMPING_BETA, LUMPING_LEVEL = 60.0, 1.1
"""Inverse temperature of the tokens that lump, and the energy, relative to uniform, at which they have."""
LUMPING_MODES = np.arange(1, 60)
"""Density modes that carry the energy at that temperature: I_k/I_0 is below 1e-9 beyond."""


def lumping_experiment(setting: Setting) -> Outcome:
    """iid tokens on the circle, V = B = I: time at which their energy is a tenth above that of the uniform law.

    E(t)/E(uniform) = 1 + 2 sum_k (I_k/I_0)(beta) (|c_k|^2 - 1/n), c_k the mean of e^{ik theta}; the 1/n that
    tokens owe to themselves is taken off, so that iid tokens start at 1 on average. What the noise of a start does
    to the time is known from linear response, c_k(t) = c_k(0) e^{r_k t}: its mean over all starts, minus its value
    for the start at hand, is added to each measured time, which takes off most of its scatter and none of its mean.
    """
    w = AttentionWeights(V=np.eye(2), B=np.eye(2))
    counts, seeds = lumping_counts(setting), setting.choose(6, 16, 4)
    times = np.linspace(0, 4.5, 46)
    curves: dict[str, np.ndarray] = {"t": times, "n": counts}
    when, spread = [], []
    for n in counts:
        energy, starts = np.empty((seeds, len(times))), np.empty((seeds, len(LUMPING_MODES)))
        for seed, start in enumerate(setting.seeds(seeds, int(n))):
            path = run(w, LUMPING_BETA, sphere.uniform(int(n), 2, seed=start), times, rtol=1e-6)
            power = np.array([_power(sphere.angles(x).numpy()) for x in path.points])
            energy[seed] = _energy(power, int(n))
            starts[seed] = power[0]
        each = np.array([first_crossing(times, row, LUMPING_LEVEL) for row in energy])
        each -= linear_lumping_times(starts, int(n))
        noise = np.random.default_rng([setting.seed, 77]).exponential(size=(4000, len(LUMPING_MODES))) / n
        mean = linear_lumping_times(noise, int(n))
        when.append(float(each.mean() + mean.mean()))
        spread.append(math.hypot(each.std(ddof=1) / math.sqrt(seeds), mean.std() / math.sqrt(len(mean))))
        curves[f"energy {n}"] = energy.mean(0)
    fastest, rate = fastest_mode(LUMPING_BETA)
    logs = np.log(counts)
    lever = (logs - logs.mean()) / ((logs - logs.mean()) ** 2).sum()
    slope, error = float(lever @ np.array(when)), float(np.linalg.norm(lever * np.array(spread)))
    return Outcome(
        2 * rate * slope,
        uncertainty=2 * rate * error,
        curves=curves,
        table=as_rows({"n": counts, "time of lumping": when, "standard error": spread}),
        rivals={"noise 1/n": (rate * slope, rate * error), "no n": 0.0},
        note=f"fastest mode {fastest}, its rate {rate:.4f}",
    )


def lumping_counts(setting: Setting) -> np.ndarray:
    """Numbers of tokens whose time of lumping is measured."""
    return np.array(setting.choose((200, 600, 1800), (400, 1600, 6400), (200, 450, 1000)))


def _power(angles: np.ndarray) -> np.ndarray:
    """|c_k|^2 of the tokens, by powers of e^{i theta}."""
    turn = np.exp(1j * angles)
    wave, power = np.ones_like(turn), np.empty(len(LUMPING_MODES))
    for place in range(len(LUMPING_MODES)):
        wave = wave * turn
        power[place] = abs(wave.mean()) ** 2
    return power


def _energy(power: np.ndarray, n: int) -> np.ndarray:
    share = special.ive(LUMPING_MODES, LUMPING_BETA) / special.ive(0, LUMPING_BETA)
    return 1 + 2 * (power - 1 / n) @ share


def linear_lumping_times(power: np.ndarray, n: int) -> np.ndarray:
    """Times at which starts with these |c_k|^2, a row each, reach the level when every mode grows at its rate."""
    rates = np.array([growth_rate(int(k), LUMPING_BETA) for k in LUMPING_MODES])
    times = np.linspace(0, 8, 161)
    share = special.ive(LUMPING_MODES, LUMPING_BETA) / special.ive(0, LUMPING_BETA)
    energy = 1 + 2 * (power @ (np.exp(2 * np.outer(rates, times)) * share[:, None]) - share.sum() / n)
    return np.array([first_crossing(times, row, LUMPING_LEVEL) for row in energy])


def lumping_figure(outcome: Outcome) -> Lines:
    """Energy against time for every n."""
    t, counts = outcome.curves["t"], outcome.curves["n"]
    series = shaded([(t, outcome.curves[f"energy {n}"]) for n in counts], [f"n = {n}" for n in counts])
    series.append(Series(t[[0, -1]], np.full(2, LUMPING_LEVEL), "a tenth above uniform", "dotted"))
    title = f"iid tokens lump on the circle, V = B = I, β = {LUMPING_BETA:g} (mean over seeds)"
    return Lines(title, "time t", "energy / uniform", series)


CLAIMS = (
    Claim(
        "great-circle",
        "When E is a plane, tokens concentrate on the great circle along the zero-temperature closed form.",
        great_circle_experiment,
        expected=0.0,
        tolerance=lambda setting: GREAT_CIRCLE_END / _great_circle_beta(setting),
        reason=lambda setting: (
            "at finite beta tokens of the uniform law are slower by 1/beta, at rate 1 that is t/beta by time t: "
            f"t = {GREAT_CIRCLE_END:g}, beta = {_great_circle_beta(setting):g}"
        ),
        source=ESTIMATE,
        figure=great_circle_figure,
        theme=THEME,
        unit="largest relative deviation",
        effort=6,
        rivals={
            "half the gap": "Tokens come at half the gap, as they do to a point pair.",
            "point pair": "The distance is that of a point pair on S^2.",
            "a tenth faster": "The rate is 1.1 times the gap.",
        },
    ),
    Claim(
        "great-circle-clusters",
        lambda setting: (
            "Inside E n iid tokens lump into clusters after ln(n)/(2 r) + O(1), r the fastest rate of a density "
            f"mode: what grows is the noise n^{{-1/2}} of their sampling (n = {listed(lumping_counts(setting))})."
        ),
        lumping_experiment,
        expected=1.0,
        tolerance=0.2,
        reason="neighbouring modes grow nearly as fast and add up to 10% to the slope here; the rest is noise",
        source=ESTIMATE,
        figure=lumping_figure,
        theme=THEME,
        unit="slope in ln n * 2r",
        effort=5,
        rivals={
            "noise 1/n": "What grows is of order 1/n: they lump after ln(n)/r.",
            "no n": "The time of lumping does not depend on n.",
        },
    ),
)
