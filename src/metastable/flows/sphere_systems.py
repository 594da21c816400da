"""Many causal systems on the sphere at once, forwards, and backwards with the adjoint of their last token.

x_j' = P_{x_j} sum_{k<j} w_jk x_k of tokens in an order, with weights of the last row of the two,
    unnormalised  w_jk = beta e^{-(alibi/n)(j-k) + beta <x_j, x_k>} / sum_{i<j} e^{-(alibi/n)(j-i)},
    softmax       w_jk = e^{-(alibi/n)(j-k) + beta <x_j, x_k>} / sum_{i<j} e^{-(alibi/n)(j-i) + beta <x_j, x_i>}:
`Causal` of both flows with include_self=False, V = beta I (unnormalised) or I (softmax) and B = I; for d = 2 the
former is `CircleSystems`. Backwards from the end, x' = -f and p' = J^T p; from p = v at the last token at time t it
arrives at p_s = (d x_last(t)/d x_s(0))^T v, for all s by one run.
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
from metastable.flows.circle_systems import LARGEST_BETA
from metastable.flows.drift import Drift
from metastable.flows.flow import Flow
from metastable.flows.system_rows import alibi_weights, by_systems


class SphereSystems(Flow):
    """Rows x_j of systems of n tokens each, one system after the other; backwards rows (x_j, p_j).

    It is a flow of plain coordinates: tokens that start on the sphere stay there up to the error of the integrator.

    >>> import torch
    >>> flow = SphereSystems(2, 2, beta=1.0, normalized=True)
    >>> flow.velocity(0.0, torch.eye(2).double(), torch.ones(2).double())
    tensor([[0., 0.],
            [1., 0.]], dtype=torch.float64)
    """

    spherical = False

    def __init__(
        self, n: int, dim: int, beta: float, alibi: float = 0.0, normalized: bool = False, backwards: bool = False
    ) -> None:
        self.n = integer(n, "n", least=1)
        self.dim = integer(dim, "dim", least=2)
        self.beta = number(beta, "beta", least=0.0, most=LARGEST_BETA)
        self.alibi = number(alibi, "alibi", least=0.0, most=LARGEST_BETA)
        self.normalized = flag(normalized, "normalized")
        self.backwards = flag(backwards, "backwards")

    @property
    def d(self) -> int:
        """Coordinates of a token, and backwards of its adjoint."""
        return 2 * self.dim if self.backwards else self.dim

    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """The right-hand sides of all systems."""
        weights, kernel = alibi_weights(self.n, self.alibi), systems_kernel(self.backwards)
        moved = by_systems(
            points,
            self.n,
            lambda rows, out: kernel(rows, weights, self.beta, self.normalized, out),
            cost=self.n**2 * self.dim,
        )
        size = 1.0 if self.normalized else self.beta * math.exp(self.beta)
        return Drift(moved, size * (3 + self.beta))


@cache
def systems_kernel(backwards: bool) -> Callable[..., None]:
    """The compiled loop, forwards or backwards."""

    @njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
    def kernel(rows: Any, weights: Any, beta: float, normalized: bool, out: Any) -> None:
        systems, n = rows.shape[0], rows.shape[1]
        d = rows.shape[2] // 2 if backwards else rows.shape[2]
        x, passed, pushed, weight = np.empty((d, n)), np.zeros((d, n)), np.empty(n), np.empty(n)
        pull, h = np.empty(d), np.empty(d)
        scale = beta * LOG2_E
        for b in range(systems):
            for k in range(n):
                for c in range(d):
                    x[c, k] = rows[b, k, c]
            passed[:] = 0.0
            seen = 0.0
            for j in range(n):
                for k in range(j):
                    weight[k] = 0.0
                for c in range(d):
                    own = scale * x[c, j]
                    for k in range(j):
                        weight[k] += own * x[c, k]
                total = 0.0
                for k in range(j):
                    weight[k] = weights[k] * exp2(weight[k])
                    total += weight[k]
                share = 0.0
                if j > 0:
                    share = 1.0 / total if normalized else beta / seen
                radial = 0.0
                for c in range(d):
                    sum_c = 0.0
                    for k in range(j):
                        sum_c += weight[k] * x[c, k]
                    pull[c] = share * sum_c
                    radial += pull[c] * x[c, j]
                sign = -1.0 if backwards else 1.0
                for c in range(d):
                    out[b, j, c] = sign * (pull[c] - radial * x[c, j])
                if backwards:
                    along, mean = 0.0, 0.0
                    for c in range(d):
                        along += rows[b, j, d + c] * x[c, j]
                    for c in range(d):
                        h[c] = rows[b, j, d + c] - along * x[c, j]
                        mean += h[c] * pull[c]
                    for k in range(j):
                        pushed[k] = -mean if normalized else 0.0
                    for c in range(d):
                        for k in range(j):
                            pushed[k] += h[c] * x[c, k]
                    for k in range(j):
                        weight[k] *= share
                        pushed[k] *= beta * weight[k]
                    for c in range(d):
                        own, into = x[c, j], h[c]
                        sum_c = 0.0
                        for k in range(j):
                            passed[c, k] += weight[k] * into + pushed[k] * own
                            sum_c += pushed[k] * x[c, k]
                        passed[c, j] += sum_c - along * pull[c] - radial * rows[b, j, d + c]
                seen += weights[j]
            if backwards:
                for k in range(n):
                    for c in range(d):
                        out[b, k, d + c] = passed[c, k]

    return kernel
