"""Attention over a crowd whose path is known beforehand: x' = P_x V m_beta[rho_t](x), rho_t given as it changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxtyping import Float
from torch import Tensor

from metastable.arguments import function
from metastable.attention.kernel import Attended
from metastable.errors import InvalidInput, NoEnergy
from metastable.flows.attending import Tolerance
from metastable.flows.identity import unreadable
from metastable.flows.softmax import SelfAttention
from metastable.measure import as_tensor
from metastable.weights import AttentionWeights, Schedule


class DrivenAttention(SelfAttention):
    """x_i' = P V m_i,   m_i = sum_j c_j e^{beta <x_i, B y_j>} y_j / sum_j c_j e^{beta <x_i, B y_j>},   y =
    crowd(t).

    crowd: t -> points (n, d) on the sphere; crowd_mass c (n,). The tokens x_i do not see each other, so that q of
    them cost q attention rows over n keys: one Picard iteration of the mean field when the crowd is a guess of
    rho_t.

    >>> import torch
    >>> w = AttentionWeights(V=torch.eye(2), B=torch.eye(2))
    >>> pole = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    >>> flow = DrivenAttention(w, 5.0, lambda t: pole, torch.ones(1).double())
    >>> flow.velocity(0.0, torch.tensor([[1.0, 0.0]]).double(), torch.ones(1).double())  # P_x of the pole
    tensor([[0., 1.]], dtype=torch.float64)
    """

    def __init__(
        self,
        weights: AttentionWeights | Schedule,
        beta: float,
        crowd: Callable[[float], Float[Tensor, "m d"]],
        crowd_mass: Float[Tensor, "m"],
        *,
        kernel: str = "auto",
        rtol: Tolerance = "auto",
    ) -> None:
        super().__init__(weights, beta, kernel=kernel, rtol=rtol)
        self.crowd, self.crowd_mass = function(crowd, "crowd"), as_tensor(crowd_mass, "crowd_mass")
        start, expected = as_tensor(crowd(0.0), "crowd(0)"), (*self.crowd_mass.shape, self.d)
        if start.shape != expected:
            raise InvalidInput(
                f"crowd(t) must have shape {expected}, one row per mass in the dimension of the weights, got "
                f"{tuple(start.shape)}"
            )

    def attention(
        self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]
    ) -> tuple[Attended, AttentionWeights]:
        """Attention of every token over the crowd, and the weights at that time in the tokens' precision."""
        w = self.weights_at(t, points)
        crowd = self.crowd(t).to(points)
        mass = self.crowd_mass.to(points)
        return self._attend(w.queries(points), w.keys(crowd), w.values(crowd), mass, self.beta), w

    def energy(self, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"], t: float = 0.0) -> float:
        """None: the crowd is a force from outside."""
        raise NoEnergy("tokens that a crowd drives have no energy of their own")

    def describe(self) -> dict[str, Any]:
        """Name, weights, beta, kernel; the crowd is a function, which nothing tells from another one."""
        return super().describe() | {"crowd": {"n": len(self.crowd_mass), **unreadable("crowd")}}
