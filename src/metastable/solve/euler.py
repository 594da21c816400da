"""Explicit Euler with renormalisation, order 1: the layers of a transformer, one step = one layer."""

from __future__ import annotations

from dataclasses import replace

from metastable.solve.problem import Problem, State, Step, cubic_hermite, next_time, require_finite
from metastable.solve.stepper import Stepper


class Euler(Stepper):
    """x <- (x + h v(x))/|x + h v(x)|; L layers over [0, 1] are steps of h = 1/L."""

    name = "euler"
    order = 1

    def begin(self, problem: Problem, state: State) -> State:
        """Evaluate the field at the start."""
        return replace(state, slope=problem.velocity(state.t, state.points).vector)

    def advance(self, problem: Problem, state: State, limit: float) -> Step:
        """One step of the fixed size."""
        assert problem.step is not None and state.slope is not None
        t = next_time(state.t, problem.step, limit)
        points = problem.retract(state.points + (t - state.t) * state.slope)
        require_finite(points, t, self.name)
        slope = problem.velocity(t, points).vector
        end = replace(state, t=t, points=points, slope=slope, accepted=state.accepted + 1)
        return Step(state, end, cubic_hermite(problem, state, end, slope))
