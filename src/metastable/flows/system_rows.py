"""Many systems as the rows of one: what compiled loops over systems of tokens in an order share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.errors import InvalidInput
from metastable.threads import over_rows


def by_systems(
    points: Float[Tensor, "r d"],
    n: int,
    kernel: Callable[[np.ndarray, np.ndarray], None],
    cost: float,
) -> Float[Tensor, "r d"]:
    """What kernel(rows (b, n, d), out (b, n, d)) writes for all systems of n rows, on all cores.

    cost: nanoseconds of one system on one core, roughly.
    """
    systems, left = divmod(len(points), n)
    if left or not points.is_cpu:
        raise InvalidInput(f"rows must be a multiple of {n} on the CPU, got {len(points)} on {points.device}")
    rows = np.ascontiguousarray(points.double().numpy()).reshape(systems, n, points.shape[1])
    out = np.empty_like(rows)
    over_rows(lambda start, stop: kernel(rows[start:stop], out[start:stop]), systems, cost=systems * cost)
    return torch.from_numpy(out).view_as(points).to(points)


def alibi_weights(n: int, alibi: float) -> Float[np.ndarray, "n"]:
    """e^{alibi (k/n - 1)} of token k: what it weighs beside the last one."""
    return np.exp(alibi * (np.arange(n) / n - 1))
