"""Attention with V = B = I among tokens that are symmetric about an axis: each is its overlap with the axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from scipy import special
from torch import Tensor

from metastable.arguments import flag, integer, number
from metastable.flows.drift import Drift
from metastable.flows.flow import Flow

LARGEST_BETA = 8.0
"""Largest inverse temperature: at the antipode of a cluster terms of size e^beta add up to e^{-beta}, so that e^{2
beta} rounding errors, 1e-9 of the field, are left at 8."""
LARGEST_DIMENSION = 1000
"""Largest dimension: the numbers of harmonics stay in the range of floats."""
NEGLIGIBLE = 1e-18
"""Terms of the expansion below this share of e^beta are left out."""


class AxisymmetricAttention(Flow):
    """u' = (1 - u^2) E[d/du K(u, u')]/beta, divided by E[K(u, u')] if normalised; u = <x, e>, V = B = I.

    K is e^{beta <x, y>}, averaged over the rotations about the axis e of R^`dimension`. By the product formula of
    zonal harmonics, P_k(1) = 1, it is sum_k a_k P_k(u) P_k(u'), where e^{beta s} = sum_k a_k P_k(s). A law that is
    symmetric about e stays so, and no more than the moments E[P_k(u)], some twenty, enter its field (Q9).

    Tokens are points (u, sqrt(1 - u^2)) of the circle, each of which stands for a whole parallel; their path is
    that of the mean field in R^dimension when they are nodes of a quadrature, as `meanfield.axisymmetric_nodes`.

    >>> flow = AxisymmetricAttention(3, beta=0.0)
    >>> flow.velocity(0.0, torch.tensor([[0.6, 0.8]]).double(), torch.ones(1).double())
    tensor([[ 0.3840, -0.2880]], dtype=torch.float64)
    """

    d = 2

    def __init__(self, dimension: int, beta: float, normalized: bool = True) -> None:
        self.dimension = integer(dimension, "dimension", least=2, most=LARGEST_DIMENSION)
        self.beta = number(beta, "beta", least=0.0, most=LARGEST_BETA)
        self.normalized = flag(normalized, "normalized")
        self._kernel, self._slope = _coefficients(self.dimension, self.beta)

    def drift(self, t: float, points: Float[Tensor, "n 2"], mass: Float[Tensor, "n"]) -> Drift:
        """The pull along the axis, before the projection."""
        u = points[:, 0].to("cpu", torch.float64, copy=True).numpy()
        m = mass.to("cpu", torch.float64).numpy()
        moments = _moments(u, m, self.dimension, len(self._kernel))
        partition = self._kernel * moments if self.normalized else np.zeros(0)
        pull = _pull(u, self.dimension, (self._slope * moments)[1:], partition)
        values = torch.zeros_like(points)
        values[:, 0] = torch.from_numpy(pull).to(points)
        scale = 1.0 if self.normalized else math.exp(self.beta)
        return Drift(values, scale * (2 + self.beta))

    def describe(self) -> dict[str, Any]:
        """Dimension, beta and whether it is normalised."""
        chosen = {"dimension": self.dimension, "beta": self.beta, "normalized": self.normalized}
        return super().describe() | chosen

    def __repr__(self) -> str:
        return f"AxisymmetricAttention(dimension={self.dimension}, beta={self.beta:g})"


def _coefficients(d: int, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """a_k of e^{beta s} = sum_k a_k P_k(s), and c_k of its slope by beta: a_k P_k'/beta = c_k P_{k-1} in d + 2.

    a_k = N_k Gamma(d/2) (beta/2)^k 0F1(k + d/2; beta^2/4)/Gamma(k + d/2), N_k the number of harmonics of degree k.
    """
    kernel, slope, k = [], [], 0
    while True:
        count = 1.0 if k == 0 else (2 * k + d - 2) / k * math.comb(k + d - 3, k - 1)
        factor = math.exp(math.lgamma(d / 2) - math.lgamma(k + d / 2)) * count
        factor *= float(special.hyp0f1(k + d / 2, beta**2 / 4))
        kernel.append(factor * (beta / 2) ** k)
        slope.append(0.0 if k == 0 else factor * (beta / 2) ** (k - 1) / 2 * k * (k + d - 2) / (d - 1))
        if k >= 1 and max(kernel[-1], slope[-1]) <= NEGLIGIBLE * math.exp(beta):
            return np.array(kernel), np.array(slope)
        k += 1


@njit(nogil=True, cache=True, error_model="numpy")
def _moments(u: np.ndarray, mass: np.ndarray, d: int, count: int) -> np.ndarray:
    """E[P_k(u)] for k < count, P_k the zonal harmonics of S^{d-1} with P_k(1) = 1."""
    moments = np.zeros(count)
    for j in range(len(u)):
        before, here = 0.0, 1.0
        for k in range(count):
            moments[k] += mass[j] * here
            before, here = here, _next(before, here, u[j], k, d)
    return moments


@njit(nogil=True, cache=True, error_model="numpy")
def _pull(u: np.ndarray, d: int, slope: np.ndarray, partition: np.ndarray) -> np.ndarray:
    """sum_k slope_k P_k(u) with the harmonics of S^{d+1}, over sum_k partition_k P_k(u) with those of S^{d-1}."""
    pull = np.empty_like(u)
    for j in range(len(u)):
        above, before, here = 0.0, 0.0, 1.0
        for k in range(len(slope)):
            above += slope[k] * here
            before, here = here, _next(before, here, u[j], k, d + 2)
        below, before, here = 0.0, 0.0, 1.0
        for k in range(len(partition)):
            below += partition[k] * here
            before, here = here, _next(before, here, u[j], k, d)
        pull[j] = above / below if len(partition) else above
    return pull


@njit(inline="always", error_model="numpy")
def _next(before: float, here: float, u: float, k: int, d: int) -> float:
    """P_{k+1} from P_{k-1} and P_k; P_1 = u, on the circle, too, where the recurrence would divide 0 by 0."""
    return u if k == 0 else ((2 * k + d - 2) * u * here - k * before) / (k + d - 2)
