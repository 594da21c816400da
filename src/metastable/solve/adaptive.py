"""Dormand-Prince 5(4) on the sphere: adaptive steps, error control in the tangent space, dense output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.integrate import RK45
from torch import Tensor

from metastable.errors import SolveError
from metastable.rowwise import largest_tangential
from metastable.solve.problem import Problem, State, Step, next_time

STABLE = 2.5
"""Largest step * rate: the pair is stable on the real axis down to -3.3."""
SAFETY, SLOWEST, FASTEST = 0.9, 0.2, 5.0
SHARE = 0.1
"""Part of the tolerance that one step may use, so that the error of a whole run stays near the tolerance."""


class Adaptive:
    """The pair of Dormand and Prince with PI step control (Hairer, Norsett, Wanner, II.4-5).

    The error of a step is the largest tangential error of any token, |P_x e_i| <= (atol + rtol |x_i|)/10: a
    maximum, so that no token is sacrificed to the average. The last stage of a step is the first of the next one,
    exactly, because the field normalises its argument. Between steps the pair's own interpolant of order 4 is used.
    """

    name = "adaptive"
    order = 5

    _C = tuple(float(c) for c in RK45.C)
    _A = tuple(torch.from_numpy(np.ascontiguousarray(row)) for row in RK45.A)
    _B = torch.from_numpy(RK45.B.copy())
    _E = torch.from_numpy(RK45.E.copy())
    _P = torch.from_numpy(RK45.P.copy())

    def __init__(self) -> None:
        self._memory: Tensor | None = None

    def begin(self, problem: Problem, state: State) -> State:
        """Evaluate the field; choose a first step from its size (HNW II.4) when none is known."""
        velocity = problem.velocity(state.t, state.points)
        slope, rate = velocity.vector, velocity.rate
        if not bool(torch.isfinite(slope).all()):
            raise SolveError(f"the velocity is not finite at t = {state.t:.6g}")
        step = state.step
        if step == 0.0:
            scale = problem.atol + problem.rtol
            speed = float(torch.linalg.vector_norm(slope, dim=1).max())
            step = min(0.01 / max(speed, 1e-12), scale ** (1 / 5) / max(rate, 1e-12), self._cap(problem, rate))
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
                raise SolveError(
                    f"the step fell below rounding at t = {state.t:.6g} (rate {state.rate:.3g}); the flow is too "
                    "stiff or discontinuous there for these tolerances: raise rtol and atol, use method='rk4', or "
                    "for unnormalised attention give log_scale, which changes the unit of time"
                )
            for stage in range(1, 6):
                shifted = problem.combine(x, stages[:stage], h * self._A[stage][:stage])
                problem.velocity(state.t + self._C[stage] * h, shifted, out=stages[stage])
            points = problem.combine(x, stages[:6], h * self._B)
            last = problem.velocity(t, points, out=stages[6])
            error = self._error(problem, x, points, stages, h * self._E)
            if error <= 1.0:
                break
            rejected += 1
            step = h * (max(SLOWEST, SAFETY * error**-0.2) if math.isfinite(error) else 0.1)
        growth = SAFETY * max(error, 1e-10) ** -0.14 * state.last_error**0.08
        growth = min(FASTEST, max(SLOWEST, growth))
        if rejected > state.rejected:
            growth = min(growth, 1.0)
        # A step that was cut short by the limit says little about the next one.
        proposal = max(h * growth, step) if t == limit and h < step else h * growth
        end = State(
            t=t,
            points=points,
            slope=stages[6].clone(),
            rate=last.rate,
            step=proposal,
            last_error=max(error, 1e-4),
            accepted=state.accepted + 1,
            rejected=rejected,
        )

        def interpolate(times: Sequence[float]) -> list[Tensor]:
            frames = []
            for time in times:
                s = (time - state.t) / h
                powers = torch.tensor([s, s**2, s**3, s**4], dtype=torch.float64)
                frames.append(problem.combine(x, stages, h * (self._P @ powers)))
            return frames

        return Step(state, end, interpolate)

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
