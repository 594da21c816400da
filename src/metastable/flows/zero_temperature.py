"""The zero-temperature flow x' = P_x V B^T x / |B^T x|, the limit beta -> infinity at infinitely many tokens."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import number
from metastable.errors import InvalidInput, NoEnergy
from metastable.flows.drift import Drift
from metastable.flows.flow import WeightedFlow
from metastable.weights import AttentionWeights, Schedule


class ZeroTemperature(WeightedFlow):
    """x' = P_x M x/|B^T x|,   M = V B^T: tokens move independently of each other [arXiv:2605.10931].

    Its orbits are known: x(t) = e^{tau M} x_0/|e^{tau M} x_0| with dt/dtau = |B^T x(tau)|, and `solve` uses them
    (method "exact") unless the weights depend on time. B must be invertible: the field has no value on the
    kernel of B^T.
    """

    def __init__(self, weights: AttentionWeights | Schedule) -> None:
        super().__init__(weights)
        singular = torch.linalg.svdvals(self._first.B)
        if float(singular[-1]) <= self.d * torch.finfo(torch.float64).eps * float(singular[0]):
            rank = int((singular > self.d * torch.finfo(torch.float64).eps * singular[0]).sum())
            raise InvalidInput(
                f"the zero-temperature flow needs an invertible B, got rank {rank} in dimension {self.d}: "
                "the direction B^T x/|B^T x| has no value on the kernel of B^T"
            )

    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """V B^T x/|B^T x| before the projection."""
        w = self.weights_at(t, points)
        direction = w.B_transpose(points)
        direction = direction / torch.linalg.vector_norm(direction, dim=1, keepdim=True)
        return Drift(w.values(direction), lambda: 2 * self.weights_at(t).V_norm, w.after_average)

    def energy(self, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"], t: float = 0.0) -> float:
        """R = sum_i m_i <x_i, M x_i> for symmetric M: dR/dt = 2 sum_i m_i |P M x_i|^2/|B^T x_i| >= 0 (Z3)."""
        points, mass = self.tokens(points, mass)
        M = self.weights_at(number(t, "t"), points).M
        if float((M - M.T).abs().max()) > 1e-10 * float(M.abs().max()):
            raise NoEnergy("the zero-temperature flow has an energy for symmetric M = V B^T, and this M is not")
        return float(mass @ ((points @ M) * points).sum(1))
