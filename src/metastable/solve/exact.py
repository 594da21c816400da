"""The exact solution of the zero-temperature flow as a stepper: e^{tau M} with its change of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from metastable.errors import InvalidInput
from metastable.flows.orbit import orbit
from metastable.flows.zero_temperature import ZeroTemperature
from metastable.solve.problem import Problem, State, Step, next_time
from metastable.weights import Schedule

FRAMES_AT_ONCE = 32


class Exact:
    """x(t) = e^{tau M} x_0/|e^{tau M} x_0|, dt/dtau = |B^T x(tau)|: no error but rounding."""

    name = "exact"
    order = 0

    def begin(self, problem: Problem, state: State) -> State:
        """Refuse flows without a closed solution."""
        if not isinstance(problem.flow, ZeroTemperature):
            raise InvalidInput(
                f"method 'exact' solves ZeroTemperature flows, got {type(problem.flow).__name__}; use 'adaptive'"
            )
        return state

    def advance(self, problem: Problem, state: State, limit: float) -> Step:
        """One step, all the way to the limit unless a step was asked for."""
        flow = problem.flow
        assert isinstance(flow, ZeroTemperature)
        t = next_time(state.t, problem.step, limit) if problem.step is not None else limit
        weights = flow.weights(state.t) if isinstance(flow.weights, Schedule) else flow.weights

        def interpolate(times: Sequence[float]) -> list[Tensor]:
            frames: list[Tensor] = []
            for first in range(0, len(times), FRAMES_AT_ONCE):
                elapsed = [time - state.t for time in times[first : first + FRAMES_AT_ONCE]]
                solved = orbit(weights.M, weights.B, state.points.double(), elapsed)
                frames.extend(solved.to(state.points.dtype).unbind(0))
            return frames

        problem.evaluations += 1
        end = replace(state, t=t, points=interpolate([t])[0], accepted=state.accepted + 1)
        return Step(state, end, interpolate)
