"""Methods of a fixed step: what they share, so that one of them is one formula."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import cache

from jaxtyping import Float
from torch import Tensor

from metastable.attention.lengths import all_finite
from metastable.errors import SolveError
from metastable.solve.problem import (
    Problem,
    State,
    Step,
    cubic_hermite,
    next_time,
    require_finite,
    require_finite_velocity,
)
from metastable.solve.stepper import Stepper


class FixedStep(Stepper):
    """x <- (x + k)/|x + k| with an increment k; between the steps a cubic through points and velocities.

    A subclass gives `name`, `order` and `increment`. The velocity at the end of a step, which the cubic needs, is
    the first stage of the next one. Where the field jumps it is not, and is only computed (and not counted among
    the evaluations) when there is a time between the steps to look at: L layers are L evaluations.
    """

    @abstractmethod
    def increment(self, problem: Problem, state: State, t: float) -> Float[Tensor, "n d"]:
        """What a step from `state` to time t adds to the tokens; `state.slope` is the velocity at its start."""

    def slope(self, problem: Problem, t: float, points: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The velocity at time t."""
        return problem.velocity(t, points).vector

    def begin(self, problem: Problem, state: State) -> State:
        """Evaluate the field at the start."""
        slope = self.slope(problem, state.t, state.points)
        require_finite_velocity(slope, state.t, problem.flow)
        return replace(state, slope=slope)

    def advance(self, problem: Problem, state: State, limit: float) -> Step:
        """One step of the fixed size."""
        assert problem.step is not None
        t = next_time(state.t, problem.step, limit)
        increment = self.increment(problem, state, t)
        if not isinstance(increment, Tensor) or increment.shape != state.points.shape:
            given = tuple(increment.shape) if isinstance(increment, Tensor) else type(increment).__name__
            raise SolveError(
                f"the increment of {self.name!r} must be a tensor of shape {tuple(state.points.shape)}, like the "
                f"tokens, got {given}"
            )
        points = problem.retract(state.points + increment)
        if not all_finite(points):
            # Where the tokens were finite, the field should be: else it is the flow that is to blame, not the step.
            for time in (state.t + (t - state.t) / 2, t):
                require_finite_velocity(self.slope(problem, time, state.points), time, problem.flow)
            require_finite(points, t, self.name)
        slope = None
        if t < limit:
            slope = self.slope(problem, t, points)
            require_finite_velocity(slope, t, problem.flow)
        end = replace(state, t=t, points=points, slope=slope, accepted=state.accepted + 1)

        @cache
        def end_slope() -> Tensor:
            if end.slope is not None:
                return end.slope
            evaluations = problem.evaluations
            missing = self.slope(problem, t, points)
            problem.evaluations = evaluations
            return missing

        return Step(state, end, cubic_hermite(problem, state, end, end_slope))
