"""Hardmax attention: x' = P_x V y*(x), every token looks at its best key (beta -> infinity at fixed n)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from metastable.attention.hardmax.choose import hardmax_unchecked
from metastable.flows.drift import Drift
from metastable.flows.flow import WeightedFlow


class Hardmax(WeightedFlow):
    """x_i' = P_{x_i} V y_i,   y_i = mass-weighted mean of all x_j that maximise <x_i, B x_j>.

    Ties: scores that agree with the maximum to a few rounding units share the attention in proportion to their
    masses, which is the limit of softmax. The field jumps where the best key changes, and tokens can slide along
    such a jump for ever; `solve` therefore takes RK4 with a fixed step (order 1 across a jump) by default.
    Source: [arXiv:2508.09628].
    """

    smooth = False

    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """V y_i before the projection."""
        w = self.weights_at(t, points)
        mean, _ = hardmax_unchecked(w.queries(points), w.keys(points), w.values(points), mass)
        return Drift(mean, lambda: 2 * self.weights_at(t).V_norm, w.after_average)
