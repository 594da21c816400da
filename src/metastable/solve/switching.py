"""Hardmax with error control: smooth steps between its switches, each of which is located."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from metastable.flows.flow import Flow
from metastable.flows.hardmax import Hardmax
from metastable.flows.keys import FixedKeys, find_keys, scores
from metastable.solve.adaptive import Adaptive
from metastable.solve.problem import Problem, State, Step
from metastable.solve.rk4 import RK4
from metastable.solve.stepper import DEFAULT_STEP, Stepper
from metastable.weights import AttentionWeights, Schedule

NOTICED = 0.01
"""Part of the tolerance by which another key must score higher to be noticed: a switch is late by that much."""
ROUNDING = 8.0
"""Rounding errors of a score, relative to |B|, below which a difference is none."""
LOOKS = (0.25, 0.5, 0.75)
"""Parts of a step at which it is looked for switches, besides its end: one that is undone in between is seen."""
LOCATED = 50
"""Bisections of a switch: a step divided by 2^50 is rounding."""
MOST_TOKENS = 2000
"""Tokens above which the n^2 scores that are looked at in every step are too many; then, and on a GPU, RK4."""
LEAST_ADVANCE = 1e-3
"""Part of the tolerance that a step has at least in time: where switches crowd together, they are passed."""


class Switching(Stepper):
    """The adaptive method on the pieces of Hardmax: in a step the keys are fixed, and it ends where they change.

    At every start the keys are found from the tokens alone (`flows.keys`), so that a run goes on from a checkpoint
    with the same digits. Tokens that slide along a jump follow Filippov's solution.
    """

    name = "switching"
    order = 5

    caches = ("_adaptive",)

    def __init__(self) -> None:
        self._adaptive = Adaptive()

    def refusal(self, flow: Flow) -> str | None:
        """Flows whose jumps have no known places."""
        if not isinstance(flow, Hardmax):
            return f"method 'switching' solves Hardmax flows, got {type(flow).__name__}; use 'adaptive' or 'rk4'"
        if isinstance(flow.weights, Schedule) and not flow.weights.piecewise_constant:
            return "method 'switching' needs constant or layered weights; use 'rk4' for this Schedule"
        return None

    def step_size(self, asked: float | None, t: float, events: bool) -> float | None:
        """None: the tolerances and the switches choose."""
        return self._adaptive.step_size(asked, t, events)

    def advance(self, problem: Problem, state: State, limit: float) -> Step:
        """One smooth step, up to the first switch in it."""
        flow = problem.flow
        assert isinstance(flow, Hardmax)
        if len(state.points) > MOST_TOKENS or state.points.device.type != "cpu":
            flow.note("fixed")
            fixed = replace(problem, step=DEFAULT_STEP)
            made = RK4().advance(fixed, RK4().begin(fixed, replace(state, slope=None)), limit)
            problem.evaluations = fixed.evaluations
            return made
        weights = flow.weights_at(problem._inside(state.t), state.points)
        rounding = ROUNDING * torch.finfo(state.points.dtype).eps
        noticed = max(NOTICED * (problem.rtol + problem.atol), rounding) * max(weights.B_norm, 1e-300)
        keys = FixedKeys(weights, find_keys(weights, state.points, 2 * noticed, problem.mass))
        smooth = replace(problem, flow=keys)
        flow.note("smooth")
        begun = self._adaptive.begin(smooth, replace(state, slope=None))
        made = self._adaptive.advance(smooth, begun, limit)
        slack = noticed + _excess(keys, weights, state.points, problem.mass)
        switch = _first_switch(made, keys, weights, slack, problem.mass)
        if switch is not None:
            least = LEAST_ADVANCE * (problem.rtol + problem.atol)
            until = min(max(switch, state.t + least), made.t)
            flow.note("sliding" if keys.keys.tokens else "located")
            if switch < state.t + least:
                flow.note("crowded")
            if until < made.t:
                made = self._adaptive.advance(smooth, begun, until)
        problem.evaluations = smooth.evaluations
        # The next piece begins with the step that this one would have gone on with.
        return replace(made, end=replace(made.end, slope=None, step=max(made.end.step, begun.step)))


def _excess(keys: FixedKeys, weights: AttentionWeights, points: Tensor, mass: Tensor) -> Tensor:
    """By how much the best key of every token scores above those that it attends to; at least 0."""
    found = scores(weights, points, mass)
    rows = torch.arange(len(points))
    held = found[rows, keys.keys.best]
    for token, key in zip(keys.keys.tokens, keys.keys.extra, strict=True):
        held[token] = torch.maximum(held[token], found[token, key])
    return (found.amax(dim=1) - held).clamp(min=0.0)


def _switched(keys: FixedKeys, weights: AttentionWeights, points: Tensor, slack: Tensor, mass: Tensor) -> bool:
    """Whether a key outside scores higher than the slack allows, or an active one has lost its weight."""
    if bool((_excess(keys, weights, points, mass) > slack).any()):
        return True
    shares = keys.shares(points)
    return bool((shares < 0).any())


def _first_switch(
    step: Step, keys: FixedKeys, weights: AttentionWeights, slack: Tensor, mass: Tensor
) -> float | None:
    """The first time in the step at which the keys change, on the far side of it; None if they do not."""
    start, width = step.start.t, step.t - step.start.t
    before = 0.0
    for part in (*LOOKS, 1.0):
        points = step.points if part == 1.0 else step.interpolate([start + part * width])[0]
        if _switched(keys, weights, points, slack, mass):
            after = part
            for _ in range(LOCATED):
                middle = (before + after) / 2
                if middle in (before, after):
                    break
                if _switched(keys, weights, step.interpolate([start + middle * width])[0], slack, mass):
                    after = middle
                else:
                    before = middle
            return start + after * width
        before = part
    return None
