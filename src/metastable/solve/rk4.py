"""The classical Runge-Kutta method on the sphere, order 4, fixed step."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from metastable.solve.fixed_step import FixedStep
from metastable.solve.problem import Problem, State


class RK4(FixedStep):
    """Four stages in the ambient space, the field seeing each of them normalised, then one retraction.

    The 0-homogeneous extension of the field conserves |x| along exact solutions, so that the retractions cost no
    order.
    """

    name = "rk4"
    order = 4

    def increment(self, problem: Problem, state: State, t: float) -> Float[Tensor, "n d"]:
        """h/6 (k1 + 2 k2 + 2 k3 + k4)."""
        assert state.slope is not None
        h, x, k1 = t - state.t, state.points, state.slope
        k2 = problem.velocity(state.t + h / 2, problem.retract(x + h / 2 * k1)).vector
        k3 = problem.velocity(state.t + h / 2, problem.retract(x + h / 2 * k2)).vector
        k4 = problem.velocity(t, problem.retract(x + h * k3)).vector
        return h / 6 * (k1 + 2 * (k2 + k3) + k4)
