"""The layers of a random transformer: what the flow with noise is the limit of, of depth L = T/h."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from metastable.solve.noisy_step import Noise, NoisyStep
from metastable.solve.problem import Problem, State


class Layers(NoisyStep):
    """x <- normalize(x + h F(x) + sqrt(h/m) W_2 sigma(W_1 x)): attention, random layer of width m, residual, norm.

    Nothing is projected before the norm. With m infinite (`CommonNoise(width=None)`) the random layer is a Gaussian
    field. In the depth L = T/h it has weak order 1, at every width.
    """

    name = "layers"
    order = 1
    strong_order = 0.5

    def slope(self, problem: Problem, t: float, points: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """F, before the projection."""
        return problem.drift(t, points).vector

    def increment(
        self, problem: Problem, state: State, slope: Float[Tensor, "n d"], t: float, noise: Noise
    ) -> Float[Tensor, "n d"]:
        """h F + dW(x)."""
        return (t - state.t) * slope + noise.at(state.points)
