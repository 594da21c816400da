"""`Apart`: several systems of equal size as one list of tokens that do not see each other."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import instance, integer
from metastable.attention.heads import attend_heads
from metastable.errors import InvalidInput
from metastable.flows.drift import Drift
from metastable.flows.flow import Flow
from metastable.flows.multihead import MultiHead
from metastable.flows.stacked_heads import StackedHeads


class Apart(Flow):
    """x_i' = P_{x_i} sum_h F_i^h with F^h among the tokens of i's own system; tokens 0..n-1 are the first system.

    Many starts of a trained layer in one run of a method of fixed steps: what costs, the products of tokens with
    the weights, is one product for all of them.

    >>> from metastable import AttentionWeights, SelfAttention
    >>> one = SelfAttention(AttentionWeights(V=torch.eye(2), B=torch.eye(2)), beta=1.0)
    >>> points = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> Apart(MultiHead([one]), systems=3).velocity(0.0, points, torch.ones(3) / 3).abs().max().item()
    0.0
    """

    caches = ("_stack",)

    def __init__(self, flow: MultiHead, systems: int) -> None:
        instance(flow, "flow", MultiHead, "a MultiHead flow")
        self.flow = flow
        self.count = integer(systems, "systems", least=1)
        self.spherical, self.smooth, self.residual = flow.spherical, flow.smooth, flow.residual
        self._stack: StackedHeads | None = None

    @property
    def d(self) -> int:
        """Dimension of the tokens."""
        return self.flow.d

    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """The drifts of all systems, one below the other."""
        n, rest = divmod(len(points), self.count)
        if rest:
            raise InvalidInput(f"{len(points)} tokens cannot be {self.count} systems of equal size")
        heads = self.flow._stackable
        if not heads:
            parts = zip(points.split(n), mass.split(n), strict=True)
            return Drift(torch.cat([self.flow.drift(t, x, m / m.sum()).vector for x, m in parts]))
        if self._stack is None or not self._stack.fits(points):
            self._stack = StackedHeads.of(heads, points)
        stack = self._stack
        b, h = self.count, stack.n_heads
        columns = (h * stack.rank, h * stack.rank, len(stack.outward))
        queries, keys, values = (
            part.reshape(b, n, h, -1).transpose(1, 2).reshape(b * h, n, -1)
            for part in (points @ stack.inward).split(columns, dim=1)
        )
        fields = (points @ stack.fields).reshape(b, n, h).transpose(1, 2)
        log_mass = (mass.log().reshape(b, 1, n) + fields).reshape(b * h, n)
        means = attend_heads(queries, keys, values, log_mass)
        rows = means.reshape(b, h, n, -1).transpose(1, 2).reshape(b * n, -1)
        return Drift(self.flow.factor * (rows @ stack.outward))

    def describe(self) -> dict[str, Any]:
        """The flow of every system, and how many there are."""
        return {"flow": "Apart", "systems": self.count, "of": self.flow.describe()}
