"""Many pairs of tokens under a common noise, each pair with its own, and how far apart they are in the end.

Expectations at the steps h and h/2 on one Brownian motion are extrapolated, 2 E_{h/2} - E_h: the methods have weak
order 1, so that what is left is of order h^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.flows import CommonNoise
from metastable.measure import Ensemble
from metastable.solve import solve


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


def extrapolated(
    flow: CommonNoise,
    start: Ensemble,
    t: float,
    step: float,
    seed: int,
    observe: Callable[[Tensor], np.ndarray],
    method: str = "euler-maruyama",
) -> np.ndarray:
    """observe(tokens at time t), of every system, free of the first order in the step."""
    coarse, fine = (
        observe(solve(flow, start, t, step=h, seed=seed, method=method).end.points) for h in (step, step / 2)
    )
    return np.asarray(2 * fine - coarse)


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Mean over samples and its standard error."""
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))
