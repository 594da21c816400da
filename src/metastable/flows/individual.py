"""Self-attention of many systems of which each has a V of its own, such as the runs of one training."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metastable.arguments import integer, number, shown
from metastable.attention.batch import attend_many_unchecked
from metastable.errors import InvalidInput
from metastable.flows.drift import Drift, Velocities
from metastable.flows.flow import Flow
from metastable.flows.softmax import SelfAttention
from metastable.measure import as_tensor
from metastable.weights import AttentionWeights


class IndividualAttention(Flow):
    """x_si' = P V_s m_si in system s, m_si as in `SelfAttention`: V is (b, d, d), B and beta are those of all.

    For an `Ensemble` of b systems; `of_system(s)` is the flow of one.

    >>> flow = IndividualAttention(torch.stack([torch.eye(2), 2 * torch.eye(2)]), torch.eye(2), beta=1.0)
    >>> flow.systems, flow.of_system(1).weights.V.tolist()
    (2, [[2.0, 0.0], [0.0, 2.0]])
    """

    def __init__(self, V: Any, B: Any, beta: float) -> None:
        many = as_tensor(V, "V")
        if many.ndim != 3 or not len(many) or many.shape[1] != many.shape[2]:
            raise InvalidInput(f"V must have shape (b, d, d), a matrix for each system, got {shown(many)}")
        self.V = many
        self.beta = number(beta, "beta", least=0.0)
        self.B = AttentionWeights(V=many[0], B=B).B
        if not bool(torch.isfinite(many).all()):
            raise InvalidInput("V must be finite, got a NaN or infinity")
        self.V_norms = torch.linalg.matrix_norm(many, 2)
        self.B_norm = float(torch.linalg.matrix_norm(self.B, 2))

    @property
    def d(self) -> int:
        """Dimension of the tokens."""
        return int(self.V.shape[1])

    @property
    def systems(self) -> int:
        """How many systems have a V of their own."""
        return len(self.V)

    def of_system(self, index: int) -> SelfAttention:
        """The flow of one system."""
        number_of = integer(index, "index", least=0, most=self.systems - 1)
        return SelfAttention(AttentionWeights(V=self.V[number_of], B=self.B), self.beta)

    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """Refused: one system has one V."""
        raise InvalidInput(f"this flow has a V for each of {self.systems} systems; flow.of_system(s) is one")

    def evaluate_many(
        self,
        t: Float[Tensor, "b"],
        points: Float[Tensor, "b n d"],
        mass: Float[Tensor, "b n"],
        which: Int[Tensor, "b"],
    ) -> Velocities:
        """All systems at once: attention by what they share, then the V of each."""
        own, norms = self.V[which.cpu()].to(points), self.V_norms[which.cpu()]
        beta = torch.full(which.shape, self.beta, dtype=points.dtype, device=points.device)
        mean, _ = attend_many_unchecked(points @ self.B.to(points), points, points, mass, beta)
        moved = mean @ own.mT
        spread = (mass * (1 - mean.square().sum(2)).clamp(min=0)).sum(1).double().cpu()
        rates = norms * (2 + self.beta * self.B_norm * spread)  # as for `SelfAttention`
        return Velocities(moved - (moved * points).sum(2, keepdim=True) * points, rates)
