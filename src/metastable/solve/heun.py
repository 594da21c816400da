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

    The weak order needs slopes of the field that agree at x and y, an angle theta ~ sqrt(h (d-1) kappa(1)) apart.
    Those of ReLU are correlated to kappa'(cos theta)/kappa'(1) = 1 - theta/pi only, a kink: near consensus, where
    all depends on slopes, the exponent of 1 - g is then too small by (d-3) theta/2pi and a little more, in units of
    kappa(1), and the weak order is 1/2 (tests/solve/test_heun.py). "euler-maruyama" asks for the field at x alone.
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
