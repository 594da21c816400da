"""Many pairs of tokens under a common noise, each pair with its own, and how far apart they are in the end.

Expectations at the steps h and h/2 on one Brownian motion are extrapolated, 2 E_{h/2} - E_h: the methods have weak
order 1, so that what is left is of order h^2. The same from 2h and h leaves four times as much: a third of the
difference is what is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.flows import CommonNoise
from metastable.measure import Ensemble
from metastable.solve import solve

LEFT_BY_STEPS = "what extrapolation from the steps h and h/2 leaves, a third of its change from that of 2h and h"
"""The reason of claims about what is extrapolated."""


def pairs(count: int, d: int, apart: float) -> Ensemble:
    """Pairs with 1 - <x, y> = apart."""
    points = torch.zeros(count, 2, d, dtype=torch.float64)
    points[:, 0, 0] = 1.0
    points[:, 1, 0] = 1.0 - apart
    points[:, 1, 1] = math.sqrt(apart * (2 - apart))
    return Ensemble(points)


def distance(points: Float[Tensor, "*b n d"]) -> np.ndarray:
    """1 - <x, y> = |x - y|^2/2 of the first two tokens of every system."""
    return ((points[..., 0, :] - points[..., 1, :]).square().sum(-1) / 2).numpy()


class Extrapolated(NamedTuple):
    """Values of every system, free of the first order in the step, and what they still contain of the second."""

    values: np.ndarray
    left: np.ndarray


def extrapolated(
    flow: CommonNoise,
    start: Ensemble,
    t: float,
    step: float,
    seed: int,
    observe: Callable[[Tensor], np.ndarray],
    method: str = "euler-maruyama",
) -> Extrapolated:
    """observe(tokens at time t), of every system; t is an even number of steps."""
    twice, once, half = (
        observe(solve(flow, start, t, step=h, seed=seed, method=method).end.points)
        for h in (2 * step, step, step / 2)
    )
    found = 2 * half - once
    return Extrapolated(np.asarray(found), np.asarray((2 * once - twice - found) / 3))


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Mean over samples and its standard error."""
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))
