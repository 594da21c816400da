"""The steps of a run: one stepper marches through the stretches on which the field is continuous."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from metastable.errors import SolveError
from metastable.solve.march import march
from metastable.solve.problem import Problem, State, Step
from metastable.solve.stepper import Stepper


def steps(
    problem: Problem, stepper: Stepper, state: State, t_end: float, max_steps: int | None = None
) -> Iterator[Step]:
    """All steps from `state` to t_end; the stepper begins anew wherever the field jumps."""
    jumps = problem.flow.breakpoints
    knots = stretches(jumps, t_end)
    start_of = {end: begin for begin, end in itertools.pairwise(knots)}

    def enter(step: Step, target: float) -> Step:
        begin = start_of[target]
        problem.stretch_end = min((b for b in jumps if b > begin and _same(b, target)), default=math.inf)
        # A state that was read from a checkpoint stands inside a stretch, and is ready.
        return replace(step, end=stepper.begin(problem, step.end)) if step.t == begin else step

    def advance(step: Step, target: float) -> Step:
        if max_steps is not None and step.end.accepted >= max_steps:
            raise SolveError(
                f"max_steps = {max_steps} steps ended at t = {step.t:.6g} of {t_end:g}; raise "
                "max_steps, or the tolerances"
            )
        made = stepper.advance(problem, step.end, target)
        if not isinstance(made, Step) or not step.t < made.t <= target:
            given = f"one to t = {made.t:.6g}" if isinstance(made, Step) else type(made).__name__
            raise SolveError(
                f"the method {stepper.name!r} must make a Step from t = {step.t:.6g} to at most {target:.6g}, "
                f"got {given}"
            )
        return made

    return march(advance, Step.at_rest(state), knots[1:], enter)


def stretches(jumps: Sequence[float], t_end: float) -> list[float]:
    """0, the times between which the field is continuous, t_end; times that only rounding separates are one.

    >>> stretches([0.1 + 0.2, 0.3, 5.0], 1.0)
    [0.0, 0.3, 1.0]
    """
    inside = [0.0]
    for b in sorted(jumps):
        if b > 0 and not _same(b, inside[-1]) and b < t_end and not _same(b, t_end):
            inside.append(float(b))
    return [*inside, t_end]


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-300)
