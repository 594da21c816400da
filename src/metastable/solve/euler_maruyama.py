"""Euler-Maruyama on the sphere for flows with noise: Ito's equation, strong order 1/2, weak order 1."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from metastable.rowwise import project_tangent
from metastable.solve.noisy_step import Noise, NoisyStep
from metastable.solve.problem import Problem, State


class EulerMaruyama(NoisyStep):
    """x <- (x + v)/|x + v|,   v = h P F + P dW(x).

    The norm takes |v|^2/2 from x, on average h (d-1)/2 kappa(1): Ito's term.
    """

    name = "euler-maruyama"
    order = 1
    strong_order = 0.5

    def increment(
        self, problem: Problem, state: State, slope: Float[Tensor, "n d"], t: float, noise: Noise
    ) -> Float[Tensor, "n d"]:
        """h v + P dW(x)."""
        return (t - state.t) * slope + project_tangent(state.points, noise.at(state.points))
