"""Dormand-Prince 5(4) on the sphere: adaptive steps, error control in the tangent space, dense output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from metastable.arguments import shown
from metastable.errors import InvalidInput, SolveError
from metastable.flows.drift import Velocity
from metastable.rowwise import largest_tangential
from metastable.solve.problem import Problem, State, Step, next_time, require_finite_velocity
from metastable.solve.stepper import Stepper

STABLE = 2.5
"""Largest step * rate: the pair is stable on the real axis down to -3.3, and rates are estimates."""
SAFETY = 0.9
"""Part of the step that the error estimate would allow which is taken (HNW II.4)."""
SLOWEST, FASTEST = 0.2, 5.0
"""Least and largest factor from one step to the next: that of DOPRI5, and the top of the range of HNW II.4."""
RECENT, BEFORE = 0.14, 0.08
"""Exponents of the errors of this step and the one before in the PI controller: 0.7/5 and 0.4/5 (HNW IV.2)."""
SHARE = 0.1
"""Part of the tolerance that one step may use, so that the error of a whole run stays near the tolerance."""
FIRST_MOVE = 0.01
"""How far, at most, any token moves in the first step (HNW II.4)."""
SMALLEST_RATE = 1e-12
"""Speeds and rates below this do not bound the first step."""
LEAST_ERROR = 1e-10
"""An error below this counts as this, so that its power stays finite; the growth is FASTEST long before."""
LEAST_MEMORY = 1e-4
"""The PI controller remembers no error below this, as in Hairer's DOPRI5."""

# The pair of Dormand and Prince, 1980: nodes c, stages a, weights b of order 5, b minus those of order 4, and the
# polynomials of Shampine's interpolant of order 4 (1986, with his optimal c_6).
_C = (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0)
_A = (
    (),
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
)
_B = (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)
_E = (-71 / 57600, 0, 71 / 16695, -71 / 1920, 17253 / 339200, -22 / 525, 1 / 40)
_P = (
    (1, -8048581381 / 2820520608, 8663915743 / 2820520608, -12715105075 / 11282082432),
    (0, 0, 0, 0),
    (0, 131558114200 / 32700410799, -68118460800 / 10900136933, 87487479700 / 32700410799),
    (0, -1754552775 / 470086768, 14199869525 / 1410260304, -10690763975 / 1880347072),
    (0, 127303824393 / 49829197408, -318862633887 / 49829197408, 701980252875 / 199316789632),
    (0, -282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844),
    (0, 40617522 / 29380423, -110615467 / 29380423, 69997945 / 29380423),
)


class Adaptive(Stepper):
    """The pair of Dormand and Prince with PI step control (Hairer, Norsett, Wanner, II.4-5).

    The error of a step is the largest tangential error of any token, |P_x e_i| <= (atol + rtol |x_i|)/10: a
    maximum, so that no token is sacrificed to the average. The last stage of a step is the first of the next one,
    exactly, because the field normalises its argument. Between steps the pair's own interpolant of order 4 is used.
    """

    name = "adaptive"
    order = 5

    caches = ("_memory",)

    nodes = _C
    stages = tuple(torch.tensor(row, dtype=torch.float64) for row in _A)
    weights, errors, dense = (torch.tensor(row, dtype=torch.float64) for row in (_B, _E, _P))

    def __init__(self) -> None:
        self._memory: Tensor | None = None

    def step_size(self, asked: float | None, t: float, events: bool) -> float | None:
        """None: the tolerances choose."""
        if asked is not None:
            raise InvalidInput("method 'adaptive' chooses its own steps; give max_step, or use 'rk4' or 'euler'")
        return None

    def begin(self, problem: Problem, state: State) -> State:
        """Evaluate the field; choose a first step from its size (HNW II.4) when none is known."""
        velocity = problem.velocity(state.t, state.points)
        slope, rate = velocity.vector, self._rate(velocity, problem, state.t)
        require_finite_velocity(slope, state.t, problem.flow)
        step = state.step
        if step == 0.0:
            scale = problem.atol + problem.rtol
            speed = float(torch.linalg.vector_norm(slope, dim=1).max())
            step = min(
                FIRST_MOVE / max(speed, SMALLEST_RATE),
                scale ** (1 / 5) / max(rate, SMALLEST_RATE),
                self._cap(problem, rate),
            )
        return replace(state, slope=slope, rate=rate, step=step)

    def advance(self, problem: Problem, state: State, limit: float) -> Step:
        """Try steps until one meets the tolerance."""
        assert state.slope is not None
        x = state.points
        stages = self._stage_memory(x)
        stages[0] = state.slope
        step, rejected = min(state.step, self._cap(problem, state.rate)), state.rejected
        smallest = max(16 * math.ulp(state.t), 1e-300)
        while True:
            t = next_time(state.t, step, limit)
            h = t - state.t
            if h < smallest and t < limit:
                if rejected > state.rejected:
                    for stage, values in enumerate(stages):
                        require_finite_velocity(values, state.t + (*self.nodes, 1.0)[stage] * h, problem.flow)
                raise SolveError(
                    f"the step fell below rounding at t = {state.t:.6g} (rate {state.rate:.3g}); the flow is too "
                    "stiff or discontinuous there for these tolerances: raise rtol and atol, use method='rk4', or "
                    "for unnormalised attention give log_scale, which changes the unit of time"
                )
            for stage in range(1, 6):
                shifted = problem.combine(x, stages[:stage], h * self.stages[stage])
                problem.velocity(state.t + self.nodes[stage] * h, shifted, out=stages[stage])
            points = problem.combine(x, stages[:6], h * self.weights)
            last = problem.velocity(t, points, out=stages[6])
            error = self._error(problem, x, points, stages, h * self.errors)
            if error <= 1.0:
                break
            rejected += 1
            step = h * (max(SLOWEST, SAFETY * error**-0.2) if math.isfinite(error) else 0.1)
        growth = SAFETY * max(error, LEAST_ERROR) ** -RECENT * state.last_error**BEFORE
        growth = min(FASTEST, max(SLOWEST, growth))
        if rejected > state.rejected:
            growth = min(growth, 1.0)
        # A step that was cut short by the limit says little about the next one.
        proposal = max(h * growth, step) if t == limit and h < step else h * growth
        end = State(
            t=t,
            points=points,
            slope=stages[6].clone(),
            rate=self._rate(last, problem, t),
            step=proposal,
            last_error=max(error, LEAST_MEMORY),
            accepted=state.accepted + 1,
            rejected=rejected,
        )

        def interpolate(times: Sequence[float]) -> list[Tensor]:
            frames = []
            for time in times:
                s = (time - state.t) / h
                powers = torch.tensor([s, s**2, s**3, s**4], dtype=torch.float64)
                frames.append(problem.combine(x, stages, h * (self.dense @ powers)))
            return frames

        return Step(state, end, interpolate)

    @staticmethod
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

    @staticmethod
    def _cap(problem: Problem, rate: float) -> float:
        return min(problem.max_step, STABLE / rate) if rate > 0 else problem.max_step

    @staticmethod
    def _error(problem: Problem, before: Tensor, after: Tensor, stages: Tensor, weights: Tensor) -> float:
        if problem.flow.spherical:
            return largest_tangential(after, stages, weights) / (SHARE * (problem.atol + problem.rtol))
        error = (weights.to(stages) @ stages.view(len(stages), -1)).view_as(after)
        size = torch.maximum(*(torch.linalg.vector_norm(side, dim=1) for side in (before, after)))
        allowed = SHARE * (problem.atol + problem.rtol * size)
        largest = float((torch.linalg.vector_norm(error, dim=1) / allowed).max())
        return largest if math.isfinite(largest) else math.inf

    def _stage_memory(self, like: Tensor) -> Tensor:
        """Room for the seven stages, kept from step to step: the interpolant of a step lives until the next one."""
        memory = self._memory
        if memory is None or memory.shape[1:] != like.shape or memory.dtype != like.dtype:
            memory = torch.empty((7, *like.shape), dtype=like.dtype, device=like.device)
            self._memory = memory
        return memory
