"""Unnormalised self-attention: x' = P_x V E_rho[y e^{beta <x, B y>}], the plain gradient flow of the energy."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import number
from metastable.errors import InvalidInput
from metastable.flows.attending import AttendingFlow, Tolerance
from metastable.flows.drift import Drift
from metastable.flows.energy import interaction_energy, require_gradient_structure
from metastable.weights import AttentionWeights, Schedule

SCALED_FROM = 20.0
"""beta |B| above which the field is scaled by default: beyond e^20 a unit of time cannot be resolved in float64."""


class UnnormalizedAttention(AttendingFlow):
    """x_i' = P_{x_i} V sum_j m_j e^{beta <x_i, B x_j> - s} x_j.   Source: [arXiv:2312.10794].

    s = `log_scale` is a change of the unit of time, t_physical = e^{-s} t. The default is s = 0 while
    beta |B| <= 20; above, the field is faster than time can be resolved, and s = beta |B|, which bounds the
    field by |V|. The value in use is `flow.log_scale`, and every path records it. With float32 tokens give
    `log_scale` yourself as soon as beta |B| > 80.
    """

    def __init__(
        self,
        weights: AttentionWeights | Schedule,
        beta: float,
        *,
        log_scale: float | None = None,
        kernel: str = "auto",
        rtol: Tolerance = "auto",
    ) -> None:
        super().__init__(weights, beta, kernel, rtol)
        exponent = self.beta * self._first.B_norm
        if log_scale is None:
            log_scale = exponent if exponent > SCALED_FROM else 0.0
        elif not exponent - number(log_scale, "log_scale") < 700:
            raise InvalidInput(
                f"log_scale = {log_scale} leaves e^(beta |B| - log_scale) = e^{exponent - log_scale:.4g}, which "
                "overflows; use log_scale = None or a value near beta |B|"
            )
        self.log_scale = float(log_scale)

    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """V E[y e^{beta <x, B y> - s}] before the projection."""
        w = self.weights_at(t, points)
        keys = w.keys(points)
        attended = self._attend(w.queries(points), keys, w.values(points), mass, self.beta)
        partition = torch.exp(attended.log_partition - self.log_scale)

        def rate() -> float:
            return w.V_norm * float(mass @ partition) * (2 + self.beta * w.B_norm)

        return Drift(attended.mean * partition[:, None], rate, w.after_average)

    def energy(self, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"], t: float = 0.0) -> float:
        """E = (1/2 beta) sum m_i m_j e^{beta <x_i, B x_j>}; the flow is c grad E if V = c B = c B^T."""
        points, mass = self.tokens(points, mass)
        w = self.weights_at(number(t, "t"))
        require_gradient_structure(w)
        return interaction_energy(points, mass, w, self.beta)

    def describe(self) -> dict[str, Any]:
        """Name, weights, beta, the unit of time and the kernel."""
        return super().describe() | {"log_scale": self.log_scale}
