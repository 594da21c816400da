"""The claim about training: online gradient descent with finite contexts stays near that with infinite ones."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows.individual import IndividualAttention
from metastable.meanfield import Law, Skewed, Uniform
from metastable.measure import Ensemble, Measure
from metastable.papers.chaos.sampling import (
    BELOW,
    NEXT_ORDER,
    PAPER,
    Mean,
    observed,
    rate_outcome,
    root_exponent,
    with_fewer,
)
from metastable.papers.claim import Outcome, Setting, as_rows
from metastable.papers.own_error import OwnError
from metastable.papers.reading import spanned
from metastable.solve import solve

THEME = "Backward"
D = 4
"""On S^3 the rate of general flow maps, n^{-1/4}, is far enough from n^{-1/2} to be told apart."""


class Task(NamedTuple):
    """V = I + a_1 D_1 + a_2 D_2 is learnt on S^3 so that tokens go along given directions."""

    name: str
    law: Law
    beta: float
    t: float


TASKS = (
    Task("uniform context", Uniform(D), 2.0, 0.8),
    Task("tilted context", Skewed([0.0, 1.0, 0.0, 0.0], 0.6), 3.0, 0.6),
)
DIRECTIONS = np.zeros((2, D, D))
DIRECTIONS[0, :2, :2], DIRECTIONS[1, :2, :2] = np.diag([1.0, -1.0]), [[0.0, -1.0], [1.0, 0.0]]
"""D_1, a stretch, and D_2, a turn."""
ITERATIONS, RATE = 4, 0.3
"""Steps of the descent from a = 0, and their length in units of the gradient."""
COUNTS = (24, 64, 160), (24, 64, 160, 400)
RUNS = (200, 140, 100), (1000, 700, 500, 250), (190, 135, 100)
"""Tokens of context, and independent descents with each number."""
LEVELS, TURNS, OBSERVERS = 5, 8, 6
"""Of the nodes that stand for infinite context, and tokens whose ends are learnt. With 8 and 14 the descent ends
within 3e-4, a twentieth of the smallest gap (`tests/papers/chaos/test_descent.py`)."""
STEP, RTOL = 0.05, 1e-3
"""Step of central differences, and tolerance of their runs."""


def final(task: Task, many: Ensemble, a: np.ndarray) -> Tensor:
    """Ends (b, m, d) of the observers, the last tokens, of systems with parameters a (b, 2)."""
    V = np.eye(D) + np.einsum("bk,kij->bij", a, DIRECTIONS)
    flow = IndividualAttention(V, np.eye(D), task.beta)
    return solve(flow, many, t=task.t, rtol=RTOL, atol=RTOL).points[-1][:, -OBSERVERS:]


def slopes(task: Task, many: Ensemble, a: np.ndarray, wanted: Tensor) -> np.ndarray:
    """dL/da (b, 2) of L = -(1/m) sum <x(T), u> for every system, by central differences."""
    shifts = STEP * np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    repeated = Ensemble(torch.cat([many.points] * 4), torch.cat([many.mass] * 4))
    moved = final(task, repeated, np.concatenate([a + shift for shift in shifts]))
    loss = -(moved * wanted).sum(2).mean(1).numpy().reshape(4, -1)
    return np.stack([loss[0] - loss[1], loss[2] - loss[3]], axis=1) / (2 * STEP)


def learnt() -> tuple[Tensor, Tensor]:
    """Tokens (m, d) at the start, and the directions, tangent there, in which they are to go: D_1 x + D_2 x."""
    start = sphere.uniform(OBSERVERS, D, seed=7)
    along = start @ torch.as_tensor(DIRECTIONS.sum(0)).T
    return start, along - (along * start).sum(1, keepdim=True) * start


def hopf_nodes(law: Law, levels: int = LEVELS, turns: int = TURNS) -> Measure:
    """Nodes with masses for a law on S^3: (sqrt(u) e^{i a}, sqrt(1-u) e^{i b}) is uniform for uniform u, a and b.

    Gauss points in u, equispaced ones in both angles: polynomials up to degree turns - 1 are exact.
    """
    place, weight = np.polynomial.legendre.leggauss(levels)
    angle = 2 * math.pi * np.arange(turns) / turns
    u, a, b = (grid.ravel() for grid in np.meshgrid((1 + place) / 2, angle, angle, indexing="ij"))
    points = np.stack([np.sqrt(u) * np.cos(a), np.sqrt(u) * np.sin(a)], 1)
    points = np.concatenate([points, np.stack([np.sqrt(1 - u) * np.cos(b), np.sqrt(1 - u) * np.sin(b)], 1)], 1)
    return Measure(points, np.repeat(weight, turns**2) * law(torch.as_tensor(points)).numpy())


def infinite(task: Task, start: Tensor, wanted: Tensor, levels: int = LEVELS, turns: int = TURNS) -> np.ndarray:
    """a (steps + 1, 2) along the descent with infinite context, on nodes."""
    context = hopf_nodes(task.law, levels, turns)
    mass = torch.cat([context.mass, torch.zeros(OBSERVERS, dtype=torch.float64)])
    one = Ensemble(torch.cat([context.points, start])[None], mass)
    way = [np.zeros((1, 2))]
    for _ in range(ITERATIONS):
        way.append(way[-1] - RATE * slopes(task, one, way[-1], wanted))
    return np.concatenate(way)


def finite(task: Task, start: Tensor, wanted: Tensor, n: int, runs: int, seeds: list[int]) -> np.ndarray:
    """a (steps + 1, runs, 2) along the descent, every step with a context of its own."""
    way = [np.zeros((runs, 2))]
    for seed in seeds:
        contexts = torch.as_tensor(task.law.sample(runs * n, seed=seed)).view(runs, n, D)
        way.append(way[-1] - RATE * slopes(task, observed(contexts, start), way[-1], wanted))
    return np.array(way)


def descent_experiment(setting: Setting) -> Outcome:
    """Exponent of n of the largest rms gap over the steps."""
    sizes = with_fewer(setting.choose(*COUNTS), setting.choose(*RUNS))
    columns: dict[str, list[float | str]] = {
        key: [] for key in ("task", "n", "largest rms gap", "at step", "last gap over largest")
    }
    fits = []
    start, wanted = learnt()
    curves: dict[str, np.ndarray] = {}
    for place, task in enumerate(TASKS):
        reference = infinite(task, start, wanted)
        largest = []
        for n, runs in sizes:
            way = finite(task, start, wanted, n, runs, setting.seeds(ITERATIONS, 80, place, n))
            square = ((way - reference[:, None]) ** 2).sum(2)
            worst = int(square.mean(1).argmax())
            largest.append(Mean.of(square[worst]))
            gap = np.sqrt(square.mean(1))
            for key, value in zip(columns, (task.name, n, gap[worst], worst, gap[-1] / gap[worst]), strict=True):
                columns[key].append(value if isinstance(value, str) else float(value))
            if n >= setting.choose(*COUNTS)[0]:
                curves[f"{task.name}, n = {n}"] = math.sqrt(n) * gap
        fits.append(root_exponent([n for n, _ in sizes], largest, len(BELOW)))
    return rate_outcome(
        fits,
        {"n^(-1/d)": -1 / D, "n^(-1)": -1.0, "no convergence": 0.0},
        curves=curves,
        table=as_rows(columns),
        note="the mean over both tasks",
    )


def descent_figure(outcome: Outcome) -> Lines:
    """Gap times sqrt(n) against the step."""
    series = [Series(np.arange(len(gap)), gap, label, "marked") for label, gap in outcome.curves.items()]
    title = "Online descent with contexts of n tokens against infinite ones"
    ticks = {float(step): str(step) for step in range(ITERATIONS + 1)}
    return Lines(title, "step of the descent", "√n · rms |aⁿ − a|", series, x_ticks=ticks)


CLAIMS = (
    OwnError(
        "descent-uniform",
        lambda setting: (
            f"Along {ITERATIONS} steps of online gradient descent of V, each with a fresh context of n iid tokens, "
            "the weights stay near those of a descent with infinite contexts, by a distance whose largest over the "
            "steps falls like n^(-1/2), not like n^(-1/d) (two tasks on S^3, n "
            f"{spanned(setting.choose(*COUNTS))})."
        ),
        descent_experiment,
        expected=-0.5,
        reason=NEXT_ORDER,
        source=PAPER,
        figure=descent_figure,
        theme=THEME,
        unit="exponent of n",
        effort=10,
        rivals={
            "n^(-1/d)": "The rate is that of general contextual flow maps, n^(-1/4) on S^3.",
            "n^(-1)": "Errors of the steps cancel.",
            "no convergence": "The descent drifts away whatever the number of tokens.",
        },
    ),
)
