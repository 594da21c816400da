"""`Growth`: how fast derivatives grow along a run, and the longest step that resolves it.

Error control knows of the tokens alone. Where they rest it lets steps grow without bound, though the derivative of
the flow grows there like e^{s t}, and a step of length h computes e^{s h} with the error c (s h)^k of its table. It
may be as large as the error that the tokens are allowed in a step. Tokens that move keep the steps of `solve`, or
nearly all.

In a cluster that a steep field holds together derivatives vanish like e^{-s t}, far faster than others do. On the
way back from the end they are below the tolerance after log(1/tol)/s; before that time they need not be right, but
vanish, and what is left beside them has to be resolved.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from metastable.rowwise import project_tangent
from metastable.solve.adjoint import drift_back, velocity_back
from metastable.solve.controller import SHARE
from metastable.solve.problem import Problem, State
from metastable.solve.recording import Stage
from metastable.solve.runge_kutta import EULER, RungeKutta
from metastable.solve.small_transpose import SmallTranspose, small_transpose
from metastable.solve.sorted_transpose import SortedTranspose
from metastable.solve.wide_transpose import WideTranspose

SAFETY = 1.25
"""Growth counts for this times what is found. Power iteration comes from below, by a third at first and by less
than a tenth later; the fifth that then is missing leaves a step with half of the tolerance as its error. The closed
form of tokens at rest is met to 1e-9 (tests/solve/test_gradient.py), as with 2, where gradients of tokens that move
fast had up to twice the steps of `solve` and the same errors."""
FIRST = 3
"""Iterations at the start of a run; later steps, whose fields are close to one another, take one each."""
VANISHING = 1e-3
"""Error of e^{-s h} where e^{-s t} has vanished: with the pair of order 8 it is .074 then, and off by a hundredth
of that. Measured (causal attention, 243 tokens on the circle, beta = 377, rtol = 1e-9, s = 580 in the last third of
the run): 183 steps instead of 296, 150 of `solve`, and derivatives with the same errors."""
VANISHES = 0.99
"""w^T J^T w = -|J^T w| |w| for the mode of such a cluster; so close to it power iteration has to be."""
STANDS_OUT = 10.0
"""How much larger than all others together, in a random vector, a mode has become when it is looked for no more."""


class Growth:
    """s = |J^T w|/|w|, J the derivative of the velocities, w by power iteration along the run."""

    def __init__(
        self, problem: Problem, table: RungeKutta, whole: SortedTranspose | WideTranspose | None = None
    ) -> None:
        self.problem, self.longest, self.whole = problem, problem.max_step, whole
        self.reach = table.resolved(SHARE * (problem.rtol + problem.atol)) / SAFETY
        self.vanishing = max(table.resolved(VANISHING), self.reach)
        self.vanished = -math.log(problem.rtol + problem.atol)
        self._fastest: torch.Tensor | None = None
        self._slow: torch.Tensor | None = None
        self._compiled: tuple[SmallTranspose | None] | None = None

    def bound_step(self, state: State, left: float) -> None:
        """Let the next step, from this state and with so much time left, be no longer than resolves the growth."""
        back = self._velocity_back(state)
        rate, along, self._fastest = self._iterated(state, back, self._fastest, FIRST)
        longest = self.reach / rate if rate > 0 else math.inf
        if rate * left > self.vanished and along < -VANISHES * rate:
            # J^T + s has what vanishes least as its largest mode. One that matters grows by reach/vanishing of s or
            # more, so that its part of a vector gains so much in an iteration on all that rests or vanishes.
            gained = math.log1p(self.reach / self.vanishing)
            first = math.ceil(math.log(STANDS_OUT * math.sqrt(state.points.numel())) / gained)
            slow, _, self._slow = self._iterated(state, back, self._slow, first, rate)
            longest = max(longest, min(self.vanishing / rate, self.reach / slow if slow > 0 else math.inf))
        self.problem.max_step = min(self.longest, longest)

    def _iterated(
        self,
        state: State,
        back: Callable[[torch.Tensor], torch.Tensor],
        w: torch.Tensor | None,
        first: int,
        shift: float = 0.0,
    ) -> tuple[float, float, torch.Tensor | None]:
        """(|J^T w|, w^T J^T w, next w) for a unit vector w, by power iteration with J^T + shift.

        first: iterations from a random vector, if there is none yet; else it is one.
        """
        x, spherical = state.points, self.problem.flow.spherical
        iterations = first if w is None else 1
        if w is None:
            w = torch.randn(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(x)
        found, along = 0.0, 0.0
        for _ in range(iterations):
            w = project_tangent(x, w) if spherical else w
            size = float(torch.linalg.vector_norm(w))
            if not size > 0:
                return 0.0, 0.0, None
            w = w / size
            made = back(w)
            made = project_tangent(x, made) if spherical else made
            found, along = float(torch.linalg.vector_norm(made)), float((made * w).sum())
            w = made + shift * w if shift else made
        return found, along, w

    def _velocity_back(self, state: State) -> Callable[[torch.Tensor], torch.Tensor]:
        """w -> J^T w at this state."""
        x, problem = state.points, self.problem
        if self._compiled is None:
            self._compiled = (small_transpose(problem, x, EULER),)
        (compiled,) = self._compiled
        if compiled is not None:
            problem.evaluations += 1
            return lambda w: compiled.velocity_back(x, w)
        stage = Stage(x, None, problem.pullback(state.t, x))
        if (whole := self.whole) is not None:
            return lambda w: whole.velocity_back(stage, w)
        back = velocity_back if problem.flow.spherical else drift_back
        return lambda w: back(stage, w)[0]
