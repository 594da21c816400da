"""The exact solution of the zero-temperature flow as a stepper: e^{tau M} with its change of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from metastable.flows.flow import Flow
from metastable.flows.orbit import orbit
from metastable.flows.zero_temperature import ZeroTemperature
from metastable.solve.problem import FRAMES_AT_ONCE, Problem, State, Step, next_time
from metastable.solve.stepper import Stepper
from metastable.weights import Schedule

EVENT_STEPS = 256
"""Steps of a run with events: they are looked for between steps, and without them the run is one step."""


class Exact(Stepper):
    """x(t) = e^{tau M} x_0/|e^{tau M} x_0|, dt/dtau = |B^T x(tau)|: no error but rounding."""

    name = "exact"
    order = 0
    exact = True

    def refusal(self, flow: Flow) -> str | None:
        """Flows without a closed solution."""
        if not isinstance(flow, ZeroTemperature):
            return f"method 'exact' solves ZeroTemperature flows, got {type(flow).__name__}; use 'adaptive'"
        if isinstance(flow.weights, Schedule) and not flow.weights.piecewise_constant:
            return "method 'exact' needs constant or layered weights; use 'adaptive' for this Schedule"
        return None

    def step_size(self, asked: float | None, t: float, events: bool) -> float | None:
        """None, the way to the next jump of the weights, unless a step is asked for or events are looked for."""
        return asked or (t / EVENT_STEPS if events and t > 0 else None)

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
