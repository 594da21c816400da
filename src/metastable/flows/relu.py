"""ReLU attention: x' = P_x V E_rho[y max(<x, B y>, 0)], whose tokens ignore what points away from them."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import number
from metastable.flows.drift import Drift
from metastable.flows.energy import require_gradient_structure
from metastable.flows.flow import WeightedFlow

PAIRS = 4_000_000
"""Pairs of tokens whose scores are held together: blocks of 32 MB in float64."""


class ReLUAttention(WeightedFlow):
    """x_i' = P_{x_i} V sum_j m_j max(<x_i, B x_j>, 0) x_j.

    The reading of the ReLU attention of [arXiv:2605.04279] that puts max(s, 0) in the place of e^{beta s}, so that
    it is a gradient flow, too. A factor in front of the score is a change of time, hence no beta. Time O(n^2),
    memory O(n).
    """

    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """V E[y max(<x, B y>, 0)] before the projection."""
        w = self.weights_at(t, points)
        queries, keys, values = w.queries(points), w.keys(points), mass[:, None] * w.values(points)
        block = max(1, PAIRS // len(points))
        rows = [torch.relu(some @ keys.T) @ values for some in queries.split(block)]
        # Scores are at most |B|, and change by |B| when a token or its keys move by one.
        return Drift(torch.cat(rows), 3 * w.V_norm * w.B_norm, w.after_average)

    def energy(self, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"], t: float = 0.0) -> float:
        """E = (1/4) sum_ij m_i m_j max(<x_i, B x_j>, 0)^2; the flow is c grad E if V = c B = c B^T."""
        points, mass = self.tokens(points, mass)
        w = self.weights_at(number(t, "t"), points)
        require_gradient_structure(w)
        keys, block = w.keys(points), max(1, PAIRS // len(points))
        rows = [torch.relu(some @ keys.T).square() @ mass for some in w.queries(points).split(block)]
        return float(mass @ torch.cat(rows)) / 4
