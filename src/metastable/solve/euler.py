"""Explicit Euler with renormalisation, order 1: the layers of a transformer, one step = one layer."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from metastable.solve.fixed_step import FixedStep
from metastable.solve.problem import Problem, State


class Euler(FixedStep):
    """x <- (x + h v(x))/|x + h v(x)|; L layers over [0, 1] are steps of h = 1/L.

    v is the velocity P_x F. For a flow that is `residual`, a trained layer, it is F itself: with h = 1 a step is
    then the layer to the digit, attention, residual connection and norm. Both have order 1, for the part of F along
    x only changes the length that the norm takes away.
    """

    name = "euler"
    order = 1

    def slope(self, problem: Problem, t: float, points: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """What a step of length one adds to every token before it is normalised."""
        return (problem.drift if problem.flow.residual else problem.velocity)(t, points).vector

    def increment(self, problem: Problem, state: State, t: float) -> Float[Tensor, "n d"]:
        """h v."""
        assert state.slope is not None
        return (t - state.t) * state.slope
