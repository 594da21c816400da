"""Heun's method on the sphere for flows with noise: Stratonovich's equation, strong order 1/2, weak order 1."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from metastable.rowwise import project_tangent
from metastable.solve.noisy_step import Noise, NoisyStep
from metastable.solve.problem import Problem, State


class Heun(NoisyStep):
    """x <- normalize(x + (v(x) + v(y))/2),   v(x) = h P F + P dW(x),   y = normalize(x + v(x)).

    The field dW is one realisation at both places. Without noise the order is 2. The noise does not commute, so
    that no method without the iterated integrals of the Brownian motion has a strong order above 1/2.
    """

    name = "heun"
    order = 1
    strong_order = 0.5

    def increment(
        self, problem: Problem, state: State, slope: Float[Tensor, "n d"], t: float, noise: Noise
    ) -> Float[Tensor, "n d"]:
        """Half of the sum of both."""
        x, h = state.points, t - state.t
        first = h * slope + project_tangent(x, noise.at(x))
        y = problem.retract(x + first)
        second = h * self.slope(problem, t, y) + project_tangent(y, noise.at(x, y))
        # The second is tangent at y; what it has along x only changes the length that the norm takes away.
        return (first + second) / 2
