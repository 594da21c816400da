"""Euclidean attention in the frame that grows with the tokens: z = e^{-tV} x [arXiv:2305.05465]."""

from __future__ import annotations

from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import instance
from metastable.errors import InvalidInput
from metastable.flows.attending import AttendingFlow, Tolerance
from metastable.flows.drift import Drift
from metastable.flows.plan import Plan
from metastable.weights import AttentionWeights

LARGEST_GROWTH = 30.0
"""Largest |t| |V|: scores, of size e^{2 |t| |V|} = 1e26, stay away from the -1e30 that stands for no score in sums
of exponentials, with room for the sizes of z, B and beta. Attention is a choice long before."""


class RescaledAttention(AttendingFlow):
    """z_i' = V (sum_j a_ij z_j - z_i),   a_ij = m_j e^{beta <e^{tV} z_i, B e^{tV} z_j>}/Z_i (B12).

    x = e^{tV} z solves x_i' = V sum_j a_ij x_j, `EuclideanAttention`, whose tokens grow like e^{tV} while those of
    this flow stay in the convex hull of the first ones if V = I. Scores grow like e^{2tV}: attention tends to a
    choice. weights: `AttentionWeights`, not a `Schedule`; tokens: `Measure(points, sphere=False)`, or plain points.

    >>> flow = RescaledAttention(AttentionWeights(V=[[1.0]], B=[[1.0]]), beta=1.0)
    >>> half = torch.full((2,), 0.5, dtype=torch.float64)
    >>> flow.velocity(0.0, torch.tensor([[0.0], [1.0]]).double(), half)
    tensor([[ 0.5000],
            [-0.2689]], dtype=torch.float64)
    """

    spherical = False

    def __init__(
        self, weights: AttentionWeights, beta: float, *, kernel: str = "auto", rtol: Tolerance = "auto"
    ) -> None:
        instance(weights, "weights", AttentionWeights, "AttentionWeights (V must not change in time)")
        super().__init__(weights, beta, kernel, rtol)

    def for_run(self, plan: Plan) -> Self:
        """Refuses a run at whose end scores are beyond the range of attention."""
        prepared = super().for_run(plan)
        growth = max(abs(plan.start), abs(plan.stop)) * self._first.V_norm
        if growth > LARGEST_GROWTH:
            raise InvalidInput(f"scores grow like e^(2 t |V|); t |V| must be <= {LARGEST_GROWTH:g}, got {growth:g}")
        return prepared

    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """V (sum_j a_ij z_j - z_i)."""
        w = self.weights_at(t, points)
        grown = points @ torch.linalg.matrix_exp(t * w.V).T
        attended = self._attend(w.queries(grown), w.keys(grown), points, mass, self.beta)
        # Once attention is a choice, z' = V (z_j - z_i); what changes faster before, the error control sees.
        return Drift((attended.mean - points) @ w.V.T, 2 * w.V_norm)
