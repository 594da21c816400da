"""Attention with V = B = I among tokens that are symmetric about an axis: each is its overlap with the axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
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
        u, m = points[:, 0].cpu().numpy(), mass.cpu().numpy()
        inside = _zonal(u, self.dimension, len(self._kernel))
        outside = _zonal(u, self.dimension + 2, len(self._kernel) - 1)
        moments = inside @ m
        pull = (self._slope[1:] * moments[1:]) @ outside
        if self.normalized:
            pull = pull / ((self._kernel * moments) @ inside)
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


def _zonal(u: np.ndarray, d: int, count: int) -> np.ndarray:
    """P_0 ... P_{count-1} at u, a row each: the zonal harmonics of S^{d-1} with P_k(1) = 1."""
    values = np.ones((count, len(u)))
    if count > 1:
        values[1] = u
    for k in range(1, count - 1):
        values[k + 1] = ((2 * k + d - 2) * u * values[k] - k * values[k - 1]) / (k + d - 2)
    return values
