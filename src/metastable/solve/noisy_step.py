"""Methods for flows with noise: what they share, so that one of them is one formula."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from metastable.flows.common_noise import CommonNoise
from metastable.flows.flow import Flow
from metastable.flows.gaussian_field import Fresh
from metastable.solve.problem import Problem, State, Step, require_finite, require_finite_velocity
from metastable.solve.stepper import Stepper

SNAP = 1e-6
"""Part of a step within which a time counts as the end of one: rounding of times over 1e9 steps."""


@dataclass(frozen=True, eq=False)
class Noise:
    """The noise of one step: a realisation of the field that can be asked for at several places."""

    flow: CommonNoise
    driving: Tensor
    fresh: Fresh
    duration: float

    def at(self, *places: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """dW at the last of the places, when it was asked for at the others before."""
        return self.flow.noise(places, self.driving, self.fresh, self.duration)[-1]


class NoisyStep(Stepper):
    """x <- (x + k)/|x + k| with an increment k that is random; steps end at t0 + j h.

    A subclass gives `name`, `increment` and its orders: `order` in the weak sense, of expectations, and
    `strong_order`, of single paths on one Brownian motion. A time inside a step, where tokens are kept or the field
    jumps, is reached by a shorter step along the same Brownian motion.
    """

    stochastic: ClassVar[bool] = True
    strong_order: ClassVar[float]

    @abstractmethod
    def increment(
        self, problem: Problem, state: State, slope: Float[Tensor, "n d"], t: float, noise: Noise
    ) -> Float[Tensor, "n d"]:
        """What a step from `state` to time t adds to the tokens; `slope` is what `slope` gave at its start."""

    def refusal(self, flow: Flow) -> str | None:
        """Flows without noise."""
        if not isinstance(flow, CommonNoise):
            return f"method {self.name!r} is for flows with noise, such as CommonNoise, got {type(flow).__name__}"
        return None

    def slope(self, problem: Problem, t: float, points: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The velocity at time t, without the noise."""
        return problem.velocity(t, points).vector

    def advance(self, problem: Problem, state: State, limit: float) -> Step:
        """One step, to the next multiple of the step size or to the limit."""
        assert problem.step is not None and isinstance(problem.flow, CommonNoise)
        flow, h = problem.flow, problem.step
        place = (state.t - problem.start) / h
        k = math.floor(place + SNAP)
        after = problem.start + (k + 1) * h
        end = limit if after >= limit - SNAP * h else after
        size, own = flow.noise_sizes(state.points)
        motion = problem.brownian(size)
        slope = self.slope(problem, state.t, state.points)
        require_finite_velocity(slope, state.t, flow)

        def at(t: float) -> Tensor:
            ends = ((time - problem.start) / h - k for time in (state.t, t))
            u, v = (0.0 if part < SNAP else 1.0 if part > 1 - SNAP else part for part in ends)
            noise = Noise(flow, motion.increment(k, u, v), partial(motion.fresh, k, own), t - state.t)
            points = problem.retract(state.points + self.increment(problem, state, slope, t, noise))
            require_finite(points, t, self.name)
            return points

        def interpolate(times: Sequence[float]) -> list[Tensor]:
            evaluations = problem.evaluations
            frames = [at(time) for time in times]
            problem.evaluations = evaluations
            return frames

        reached = replace(state, t=end, points=at(end), accepted=state.accepted + 1)
        return Step(state, reached, interpolate)
