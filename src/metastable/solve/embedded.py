"""`EmbeddedPair`: Runge-Kutta steps whose size an error estimate chooses; a pair is a table and an estimate."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import shown
from metastable.errors import InvalidInput, SolveError
from metastable.flows.drift import Velocity
from metastable.solve.controller import STRETCH, Controller
from metastable.solve.problem import Problem, State, Step, next_time, require_finite_velocity
from metastable.solve.recorded_trial import AFTER, recorded_trial
from metastable.solve.small_system import small_system
from metastable.solve.sorted_trial import sorted_trial
from metastable.solve.stepper import Stepper
from metastable.solve.tableau import Tableau
from metastable.solve.trial import Made, Trial
from metastable.solve.wide_trial import wide_trial


class EmbeddedPair(Stepper):
    """k_i = v(t + c_i h, x + h sum_j a_ij k_j),   x <- x + h sum_j b_j k_j, back on the sphere.

    A subclass gives the table, a `controller`, the error of a step and the weights of its interpolant. The velocity
    at the end of a step is the first stage of the next one, exactly, because the field normalises its argument.
    """

    caches = ("_memory", "_whole")

    nodes: ClassVar[tuple[float, ...]]
    """c_i."""
    stages: ClassVar[tuple[Tensor, ...]]
    """a_ij, one row for each stage."""
    weights: ClassVar[Tensor]
    """b_j."""
    late_nodes: ClassVar[tuple[float, ...]] = ()
    """c_i of the stages that only the interpolant needs."""
    late_stages: ClassVar[tuple[Tensor, ...]] = ()
    """Their a_ij, over all stages and the velocity at the end."""
    controller: ClassVar[Controller]
    errors: ClassVar[Tensor]
    """Differences of the weights to those of embedded formulas."""
    damping: ClassVar[float] = 0.0
    """Weight of the second of two such differences (`rowwise.damped`); zero where there is one."""
    stable: ClassVar[float]
    """Largest step * rate; where it is infinite, the rate is asked for at the start only."""
    end_in_error: ClassVar[bool]
    """Whether the error estimate takes the velocity at the end of the step."""

    def __init__(self) -> None:
        self._memory: Tensor | None = None
        self._whole: tuple[Problem, Trial | None] | None = None

    @abstractmethod
    def error(self, problem: Problem, before: Tensor, after: Tensor, stages: Tensor, h: float) -> float:
        """The error of a step, relative to what is allowed; infinite when anything is not finite."""

    @abstractmethod
    def between(self, s: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k s"]:
        """Weights of all stages in (x(t + s h) - x(t))/h, for s in [0, 1]."""

    @abstractmethod
    def first_step(self, problem: Problem, state: State, slope: Tensor, rate: float) -> float:
        """A step to try first, from the velocity at the start and the rate that the flow states."""

    def step_size(self, asked: float | None, t: float, events: bool) -> float | None:
        """None: the tolerances choose."""
        if asked is not None:
            raise InvalidInput(
                f"method {self.name!r} chooses its own steps; give max_step, or use 'rk4' or 'euler'"
            )
        return None

    def begin(self, problem: Problem, state: State) -> State:
        """Evaluate the field; choose a first step from its size (HNW II.4) when none is known."""
        velocity = problem.velocity(state.t, state.points)
        slope, rate = velocity.vector, _rate(velocity, problem, state.t)
        require_finite_velocity(slope, state.t, problem.flow)
        step = state.step or min(self.first_step(problem, state, slope, rate), self._cap(problem, rate))
        return replace(state, slope=slope, rate=rate, step=step)

    def advance(self, problem: Problem, state: State, limit: float) -> Step:
        """Try steps until one meets the tolerance."""
        assert state.slope is not None
        x, count = state.points, len(self.nodes)
        stages = self._stage_memory(x)
        stages[0] = state.slope
        cap, left, rejected = self._cap(problem, state.rate), limit - state.t, state.rejected
        step = min(state.step, cap)
        longest = min(STRETCH * step, cap)
        if fitted := step < left <= 2 * longest:
            step = left if left <= longest else left / 2  # two steps are best of one size
        smallest, tried = max(16 * math.ulp(state.t), 1e-300), limit if fitted else math.inf
        whole = self._whole_trial(problem, state, stages)
        while True:
            t = next_time(state.t, step, limit)
            h = t - state.t
            if h < smallest and t < limit:
                self._give_up(problem, state, stages[: 1 if whole else count], h, rejected)
            made = self._staged(problem, state, stages, t) if whole is None else whole(x, state.slope, h)
            problem.evaluations += made.evaluations
            if made.error <= 1.0:
                break
            rejected += 1
            tried = limit if t == limit else tried
            step = h * self.controller.after_rejection(made.error)
        growth = self.controller.growth(made.error, state.last_error, rejected > state.rejected)
        # A step that was cut short by the limit says little about the next one.
        proposal = max(h * growth, step) if t == limit and h < step else h * growth
        points, last = made.points, made.velocity
        if last is None and t < limit:
            if made.later is None:
                last = problem.velocity(t, points, out=stages[count])
            else:
                last = made.later(stages[count])
                problem.evaluations += 1
        end = State(
            t=t,
            points=points,
            slope=None if last is None else last.vector.clone(),
            rate=state.rate if last is None or self.stable == math.inf else _rate(last, problem, t),
            step=proposal,
            last_error=self.controller.remembered(made.error),
            accepted=state.accepted + 1,
            rejected=rejected,
        )
        filled: Tensor | None = None

        def interpolate(times: Sequence[float]) -> list[Tensor]:
            nonlocal filled
            if filled is None:
                evaluations = problem.evaluations
                filled = None if whole is None else whole.stages(x, stages[0], h)
                if filled is None:
                    filled = self._filled(problem, state, stages, t, points if last is None else None)
                problem.evaluations = evaluations
            weights = torch.from_numpy(h * self.between((np.array(times) - state.t) / h))
            return [problem.combine(x, filled, row) for row in weights]

        return Step(state, end, interpolate, tried=tried)

    def again(self, problem: Problem, state: State, t: float) -> Float[Tensor, "n d"]:
        """The tokens after a step from this state to time t that was accepted before: to its digits, or,
        where tokens were put in another order, to those of attention."""
        stages = self._stage_memory(state.points)
        slope = problem.velocity(state.t, state.points, out=stages[0]).vector
        whole = self._whole_trial(problem, state, stages)
        if whole is None:
            return self._staged(problem, state, stages, t).points
        made = whole(state.points, slope, t - state.t)
        problem.evaluations += made.evaluations
        return made.points

    def tableau(self) -> Tableau:
        """The pair as plain arrays."""
        return Tableau.of(self)

    def _staged(self, problem: Problem, state: State, stages: Tensor, t: float) -> Made:
        """A trial step to time t, stage by stage."""
        x, h, count = state.points, t - state.t, len(self.nodes)
        for stage in range(1, count):
            shifted = problem.combine(x, stages[:stage], h * self.stages[stage])
            problem.velocity(state.t + self.nodes[stage] * h, shifted, out=stages[stage])
        points = problem.combine(x, stages[:count], h * self.weights)
        last = problem.velocity(t, points, out=stages[count]) if self.end_in_error else None
        return Made(points, last, self.error(problem, x, points, stages, h))

    def _filled(self, problem: Problem, state: State, stages: Tensor, t: float, points: Tensor | None) -> Tensor:
        """All stages, those of the interpolant among them; `points`: the end, if its velocity is not known."""
        x, h, count = state.points, t - state.t, len(self.nodes)
        if points is not None:
            problem.velocity(t, points, out=stages[count])
        for late, (node, row) in enumerate(zip(self.late_nodes, self.late_stages, strict=True), count + 1):
            problem.velocity(state.t + node * h, problem.combine(x, stages[:late], h * row), out=stages[late])
        return stages

    def _whole_trial(self, problem: Problem, state: State, memory: Tensor) -> Trial | None:
        """Whoever makes the steps of this run as wholes; None where they are made stage by stage."""
        recording = state.points.is_cuda and self.damping > 0 and self.stable == math.inf
        if recording and state.accepted < AFTER:
            return None
        if self._whole is None or self._whole[0] is not problem:
            if recording:
                self._whole = (problem, recorded_trial(problem, state.points, memory, self))
            else:
                given = problem, state.points, memory, self
                small = small_system(problem, state.points, self)
                self._whole = (problem, small or sorted_trial(*given) or wide_trial(*given))
        return self._whole[1]

    def _give_up(self, problem: Problem, state: State, stages: Tensor, h: float, rejected: int) -> None:
        if rejected > state.rejected:
            for node, values in zip(self.nodes, stages, strict=False):
                require_finite_velocity(values, state.t + node * h, problem.flow)
        raise SolveError(
            f"the step fell below rounding at t = {state.t:.6g} (rate {state.rate:.3g}); the flow is too "
            "stiff or discontinuous there for these tolerances: raise rtol and atol, use method='rk4', or "
            "for unnormalised attention give log_scale, which changes the unit of time"
        )

    def _cap(self, problem: Problem, rate: float) -> float:
        return min(problem.max_step, self.stable / rate) if rate > 0 else problem.max_step

    def _stage_memory(self, like: Tensor) -> Tensor:
        """Room for all stages, kept from step to step: the interpolant of a step lives until the next one."""
        memory, count = self._memory, len(self.nodes) + 1 + len(self.late_nodes)
        if memory is None or memory.shape[1:] != like.shape or memory.dtype != like.dtype:
            memory = torch.empty((count, *like.shape), dtype=like.dtype, device=like.device)
            self._memory = memory
        return memory


def _rate(velocity: Velocity, problem: Problem, t: float) -> float:
    """The Lipschitz constant that the flow states, if it is one."""
    try:
        rate = velocity.rate
    except (TypeError, ValueError, OverflowError):
        rate = math.nan
    if not rate >= 0:
        raise SolveError(
            f"the rate of {type(problem.flow).__name__}, its Lipschitz constant, must be a number >= 0, got "
            f"{shown(velocity.lipschitz) if math.isnan(rate) else rate} at t = {t:.6g}"
        )
    return rate
