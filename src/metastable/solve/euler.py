"""Explicit Euler with renormalisation, order 1: the layers of a transformer, one step = one layer."""

from __future__ import annotations

from dataclasses import replace

from jaxtyping import Float
from torch import Tensor

from metastable.solve.problem import Problem, State, Step, cubic_hermite, next_time, require_finite
from metastable.solve.stepper import Stepper


class Euler(Stepper):
    """x <- (x + h v(x))/|x + h v(x)|; L layers over [0, 1] are steps of h = 1/L.

    v is the velocity P_x F. For a flow that is `residual`, a trained layer, it is F itself: with h = 1 a step is
    then the layer to the digit, attention, residual connection and norm. Both have order 1, for the part of F along
    x only changes the length that the norm takes away.
    """

    name = "euler"
    order = 1

    def begin(self, problem: Problem, state: State) -> State:
        """Evaluate the field at the start."""
        return replace(state, slope=_added(problem, state.t, state.points))

    def advance(self, problem: Problem, state: State, limit: float) -> Step:
        """One step of the fixed size."""
        assert problem.step is not None and state.slope is not None
        t = next_time(state.t, problem.step, limit)
        points = problem.retract(state.points + (t - state.t) * state.slope)
        require_finite(points, t, self.name)
        slope = _added(problem, t, points)
        end = replace(state, t=t, points=points, slope=slope, accepted=state.accepted + 1)
        return Step(state, end, cubic_hermite(problem, state, end, slope))


def _added(problem: Problem, t: float, points: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """What a step of length one adds to every token before it is normalised."""
    return (problem.drift if problem.flow.residual else problem.velocity)(t, points).vector
