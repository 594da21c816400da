"""Retrieval measured on n tokens: by the derivative of the last angle and by what the first angles explain.

For iid uniform angles at the start, integration by parts in theta_s(0) gives
    n E[e^{im(theta_last(t) - theta_s(0))}] = n E[d theta_last(t)/d theta_s(0) e^{im(theta_last(t) - theta_s(0))}]
(K5), in which a derivative of order 1/n stands for a correlation of order 1/n among terms of order one. All
derivatives come from one run of the adjoint. Of their averages over neighbouring places the part that is a function
of the first angles, a combination of cos m(theta_last(0) - theta_s(0)), whose mean is zero, is taken off by
regression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from metastable.flows.circle_systems import CircleSystems
from metastable.measure import Measure
from metastable.solve import solve
from metastable.theory import retrieval_profile

PLACES = 8
"""Parts of the context over which retrieval is averaged. The first is left out: the profile diverges in it."""
WIDTH, MODES = 8.0, 20
"""M and n_max of the published figures."""
RTOL = 1e-4
"""Tolerance of the runs, far below the standard errors of their averages, which are a percent and more."""
EXPLAINING = 6
"""Modes of the first angles that are taken off; more of them explain no more."""


class Measured(NamedTuple):
    """Measured over predicted, less one, averaged over each part of the context, and over all of them."""

    deviation: np.ndarray
    error: np.ndarray
    predicted: np.ndarray
    places: np.ndarray
    mean: float
    mean_error: float


def measured(n: int, t: float, beta: float, alibi: float, samples: int, seed: int, parts: int = PLACES) -> Measured:
    """Retrieval by the last of n tokens, relative to the closed form at the same places."""
    start = np.random.default_rng(seed).uniform(0.0, 2 * math.pi, (samples, n))
    end, derivative = adjoint(start, t, beta, alibi)
    gap = end[:, -1:] - start[:, :-1]
    shares = np.exp(-((math.pi * np.arange(1, MODES + 1) / WIDTH) ** 2) / 2)
    kernel = np.zeros_like(gap)
    for mode, share in enumerate(shares, 1):
        kernel += share * np.cos(mode * gap)
    values = n * derivative * kernel
    places = np.arange(1, n - 1) / n
    closed = np.asarray(retrieval_profile(places, t, beta, alibi, WIDTH, MODES))
    first = start[:, -1:] - start[:, 1:-1]
    known = [lambda part, m=m: np.cos(m * first[:, part]) for m in range(1, EXPLAINING + 1)]
    return averaged(values[:, 1:], closed, known, parts)


def averaged(
    values: np.ndarray,
    closed: np.ndarray,
    known: Sequence[Callable[[np.ndarray], np.ndarray]],
    parts: int = PLACES,
) -> Measured:
    """Values (samples, n - 2) of the tokens 1 ... n - 2 over the closed form there, by parts of the context.

    known: functions of the part, as numbers of those tokens, that give variables of mean zero (samples, part),
    whose averages over the part are taken off.
    """
    n = len(closed) + 2
    token = np.arange(1, n - 1)
    predicted, centres, ratios, explaining = [], [], [], []
    for number in range(1, parts):
        inside = np.flatnonzero(token * parts // n == number)
        predicted.append(float(closed[inside].mean()))
        centres.append(float(token[inside].mean()) / n)
        ratios.append(values[:, inside].mean(1) / predicted[-1] - 1)
        explaining.append(np.stack([variable(inside).mean(1) for variable in known], 1))
    found = np.array([explained(*pair) for pair in zip(ratios, explaining, strict=True)])
    overall = explained(np.mean(ratios, axis=0), np.mean(explaining, axis=0))
    return Measured(found[:, 0], found[:, 1], np.array(predicted), np.array(centres), *overall)


def adjoint(start: np.ndarray, t: float, beta: float, alibi: float) -> tuple[np.ndarray, np.ndarray]:
    """Angles at time t of systems that start at these (samples, n), and d theta_last(t)/d theta_s(0), s < last."""
    samples, n = start.shape
    forward = Measure(start.reshape(-1, 1), sphere=False)
    path = solve(CircleSystems(n, beta, alibi), forward, t, times=[0.0, t], rtol=RTOL, atol=RTOL)
    end = path.points[-1].numpy().reshape(samples, n)
    rows = np.zeros((samples, n, 2))
    rows[:, :, 0], rows[:, -1, 1] = end, 1.0
    back = CircleSystems(n, beta, alibi, backwards=True)
    reverse = solve(back, Measure(rows.reshape(-1, 2), sphere=False), t, times=[0.0, t], rtol=RTOL, atol=RTOL)
    return end, reverse.points[-1].numpy().reshape(samples, n, 2)[:, :-1, 1]


def explained(values: np.ndarray, explaining: np.ndarray) -> tuple[float, float]:
    """Mean of the values and its standard error, less what regresses on variables (samples, k) of mean zero."""
    samples, k = explaining.shape
    design = np.column_stack([np.ones(samples), explaining])
    solution = np.linalg.lstsq(design, values, rcond=None)[0]
    left = values - design @ solution
    variance = float(left @ left) / (samples - 1 - k) * float(np.linalg.inv(design.T @ design)[0, 0])
    return float(solution[0]), math.sqrt(variance)
