"""Unnormalised self-attention: x' = P_x V E_rho[y e^{beta <x, B y>}], the plain gradient flow of the energy."""

from __future__ import annotations

from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metastable.arguments import number
from metastable.attention.kernel import Attended
from metastable.errors import InvalidInput
from metastable.flows.attending import AttendingFlow, Tolerance, scheduled
from metastable.flows.drift import Drift, Velocities
from metastable.flows.energy import interaction_energy, require_gradient_structure
from metastable.flows.pullback import HeadCotangent, Pullback
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

    log_scale: Any
    """A number, or a tensor (b,) where every system has its own beta."""

    def __init__(
        self,
        weights: AttentionWeights | Schedule,
        beta: float | Any,
        *,
        log_scale: float | None = None,
        kernel: str = "auto",
        rtol: Tolerance = "auto",
    ) -> None:
        super().__init__(weights, beta, kernel, rtol)
        exponents = self._first.B_norm * torch.as_tensor(self.beta, dtype=torch.float64)
        if log_scale is None:
            scales = torch.where(exponents > SCALED_FROM, exponents, 0.0)
        else:
            scales = torch.full_like(exponents, number(log_scale, "log_scale"))
            exponent = float(exponents.max())
            if not exponent - log_scale < 700:
                raise InvalidInput(
                    f"log_scale = {log_scale} leaves e^(beta |B| - log_scale) = e^{exponent - log_scale:.4g}, "
                    "which overflows; use log_scale = None or a value near beta |B|"
                )
        self.log_scale = scales if self.systems is not None else float(scales)

    def of_system(self, index: int) -> Self:
        """The flow of one of many systems, with its own beta and unit of time."""
        one = super().of_system(index)
        if isinstance(self.log_scale, Tensor):
            one.log_scale = float(self.log_scale[index])
        return one

    def attention(
        self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]
    ) -> tuple[Attended, AttentionWeights]:
        """Softmax attention of every token over all tokens, and the weights at that time."""
        w = self.weights_at(t, points)
        return self._attend(w.queries(points), w.keys(points), w.values(points), mass, self.beta), w

    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """V E[y e^{beta <x, B y> - s}] before the projection."""
        return self._drift(*self.attention(t, points, mass), mass)

    def _drift(self, attended: Attended, w: AttentionWeights, mass: Float[Tensor, "n"]) -> Drift:
        partition = torch.exp(attended.log_partition - self.log_scale)

        def rate() -> float:
            return w.V_norm * float(mass @ partition) * (2 + self.beta * w.B_norm)

        return Drift(attended.mean * partition[:, None], rate, w.after_average)

    def pullback(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Pullback:
        """V E[y e^{beta <x, B y> - s}] and the transpose of its derivative; s stays as it is."""
        kind = type(self)
        if self._foreign or kind.drift is not UnnormalizedAttention.drift:
            return super().pullback(t, points, mass)
        attended, w = self.attention(t, points, mass)

        def back(cotangent: Tensor) -> tuple[Tensor, tuple[HeadCotangent, ...]]:
            pairs = self._over_pairs(points, mass, w, attended, log_scale=self.log_scale)
            tokens, head = pairs.back(cotangent)
            return tokens, (head,)

        return Pullback(self._drift(attended, w, mass), back, (self,))

    def evaluate_many(
        self,
        t: Float[Tensor, "b"],
        points: Float[Tensor, "b n d"],
        mass: Float[Tensor, "b n"],
        which: Int[Tensor, "b"],
    ) -> Velocities:
        """All systems at once, where their weights do not change in time."""
        if self._foreign or scheduled(self):
            return super().evaluate_many(t, points, mass, which)
        w, beta = self.weights_at(0.0, points), self._betas(which, points)
        rows = points.reshape(-1, points.shape[-1])
        queries, keys, values = (part(rows).view(*points.shape[:2], -1) for part in (w.queries, w.keys, w.values))
        mean, log_partition = self._attend_many(queries, keys, values, mass, beta)
        scale = (
            self.log_scale[which.cpu()].to(points)[:, None]
            if isinstance(self.log_scale, Tensor)
            else self.log_scale
        )
        partition = torch.exp(log_partition - scale)
        rates = w.V_norm * (mass * partition).sum(1) * (2 + beta * w.B_norm)
        drift = Drift((mean * partition[:, :, None]).reshape(len(rows), -1), None, w.after_average)
        return Velocities(self._projected(rows, drift).view_as(points), rates.double())

    def energy(self, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"], t: float = 0.0) -> float:
        """E = (1/2 beta) sum m_i m_j e^{beta <x_i, B x_j>}; the flow is c grad E if V = c B = c B^T."""
        points, mass = self.tokens(points, mass)
        w = self.weights_at(number(t, "t"))
        require_gradient_structure(w)
        return interaction_energy(points, mass, w, self.beta)

    def describe(self) -> dict[str, Any]:
        """Name, weights, beta, the unit of time and the kernel."""
        scale = self.log_scale.tolist() if isinstance(self.log_scale, Tensor) else self.log_scale
        return super().describe() | {"log_scale": scale}
