"""Softmax attention without the sphere: x' = V m_beta(x) in R^d [arXiv:2305.05465]."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from metastable.errors import NoEnergy
from metastable.flows.softmax import SelfAttention


class EuclideanAttention(SelfAttention):
    """x_i' = V sum_j m_j e^{beta <x_i, B x_j>} x_j / Z_i, tokens free to leave the sphere.

    Tokens grow like e^{tV}; give them as `Measure(points, sphere=False)` or as plain points.
    """

    spherical = False

    def energy(self, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"], t: float = 0.0) -> float:
        """None is known."""
        raise NoEnergy("Euclidean attention has no energy that is known to be monotone")
