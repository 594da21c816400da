"""Many causal systems on the circle at once, forwards, and backwards with the adjoint of their last token.

theta' = f(theta) of [arXiv:2605.09213],
    theta_j' = beta sum_{k<j} w_jk sin(theta_k - theta_j) e^{beta cos(theta_k - theta_j)},
w_jk = e^{-(alibi/n)(j-k)} / sum of them over k < j, is what `Causal` with `UnnormalizedAttention`, V = beta I and
include_self=False is in coordinates. Backwards from the end, theta' = -f and p' = J^T p with the Jacobian
J_jk = beta w_jk (cos - beta sin^2) e^{beta cos} of theta_k - theta_j, J_jj = -sum_k J_jk; from p = e_last at time t
it arrives at p_s = d theta_last(t)/d theta_s(0), for all s by one run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float
from numba import njit
from torch import Tensor

from metastable.arguments import flag, integer, number
from metastable.attention.exp2 import LOG2_E, REDUCTION, exp2
from metastable.flows.drift import Drift
from metastable.flows.flow import Flow
from metastable.flows.system_rows import alibi_weights, by_systems

LARGEST_BETA = 300.0
"""Largest inverse temperature and slope: e^beta, the rate of the field, is within reach of `exp2`."""


class CircleSystems(Flow):
    """Rows (theta_j) of systems of n tokens each, one system after the other; backwards rows (theta_j, p_j).

    It is a Euclidean flow: angles are lifted to the line.

    >>> import torch
    >>> flow = CircleSystems(2, beta=1.0, alibi=0.0)
    >>> velocity = flow.velocity(0.0, torch.tensor([[0.0], [1.0]]).double(), torch.ones(2).double())
    >>> round(float(velocity[1] / (math.sin(1.0) * math.exp(math.cos(1.0)))), 12)
    -1.0
    """

    spherical = False

    def __init__(self, n: int, beta: float, alibi: float = 0.0, backwards: bool = False) -> None:
        self.n = integer(n, "n", least=1)
        self.beta = number(beta, "beta", least=0.0, most=LARGEST_BETA)
        self.alibi = number(alibi, "alibi", least=0.0, most=LARGEST_BETA)
        self.backwards = flag(backwards, "backwards")

    @property
    def d(self) -> int:
        """An angle, and backwards its adjoint."""
        return 2 if self.backwards else 1

    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """The right-hand sides of all systems."""
        weights, kernel = alibi_weights(self.n, self.alibi), systems_kernel(self.backwards)
        moved = by_systems(points, self.n, lambda rows, out: kernel(rows, weights, self.beta, out), cost=self.n**2)
        return Drift(moved, 2 * self.beta * math.exp(self.beta))


@cache
def systems_kernel(backwards: bool) -> Callable[..., None]:
    """The compiled loop, forwards or backwards."""

    @njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
    def kernel(rows: Any, weights: Any, beta: float, out: Any) -> None:
        systems, n = rows.shape[0], rows.shape[1]
        sine, cosine, passed = np.empty(n), np.empty(n), np.zeros(n)
        scale = beta * LOG2_E
        for b in range(systems):
            for k in range(n):
                sine[k], cosine[k] = math.sin(rows[b, k, 0]), math.cos(rows[b, k, 0])
            passed[:] = 0.0
            total = 0.0
            for j in range(n):
                s_j, c_j = sine[j], cosine[j]
                share = beta / total if j > 0 else 0.0
                pull, own = 0.0, 0.0
                if backwards:
                    pushed = share * rows[b, j, 1]
                    for k in range(j):
                        across = sine[k] * c_j - cosine[k] * s_j
                        along = cosine[k] * c_j + sine[k] * s_j
                        weight = weights[k] * exp2(scale * along)
                        slope = weight * (along - beta * across * across)
                        pull += weight * across
                        own += slope
                        passed[k] += pushed * slope
                    passed[j] -= pushed * own
                    out[b, j, 0] = -share * pull
                else:
                    for k in range(j):
                        across = sine[k] * c_j - cosine[k] * s_j
                        along = cosine[k] * c_j + sine[k] * s_j
                        pull += weights[k] * exp2(scale * along) * across
                    out[b, j, 0] = share * pull
                total += weights[j]
            if backwards:
                for k in range(n):
                    out[b, k, 1] = passed[k]

    return kernel
