"""The steps of a run: one stepper marches through the stretches on which the field is continuous."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from metastable.errors import SolveError
from metastable.solve.arguments import jump_times
from metastable.solve.march import march
from metastable.solve.problem import Problem, State, Step
from metastable.solve.stepper import Stepper

MOST_STEPS = 1e9
"""Most steps of a run that nothing but its final time ends: at 0.1 ms, the least that a step of a few tokens takes,
they last more than a day. Whoever means it says so with max_steps."""
COUNTED = 500
"""Steps after which it is asked again whether the run can end: a fraction of a second for few tokens."""


def refuse_endless(duration: float, step: float) -> None:
    """Refuse a run whose steps are so short that it would not end."""
    if duration > MOST_STEPS * step:
        raise SolveError(
            f"steps of {step:.3g} over a time of {duration:.3g} are more than {MOST_STEPS:.0e}; make them longer, "
            "or give max_steps to run so many all the same"
        )


def steps(
    problem: Problem,
    stepper: Stepper,
    state: State,
    t_end: float,
    max_steps: int | None = None,
    *,
    t_start: float = 0.0,
    bounded: bool = True,
) -> Iterator[Step]:
    """All steps from `state` to t_end; the stepper begins anew wherever the field jumps.

    t_start: where the run began, which is not where `state` stands when it was read from a checkpoint.
    bounded: whether something else than t_end may end the run, so that it may ask for any number of steps.
    """
    jumps = jump_times(problem.flow)
    knots = stretches(jumps, t_end, t_start)

    def enter(step: Step, target: float) -> Step:
        begin = enter_stretch(problem, jumps, knots, target)
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
        if not bounded and made.end.accepted % COUNTED == 0:
            refuse_endless(t_end - made.t, made.t - step.t)
        return made

    return march(advance, Step.at_rest(state), knots[1:], enter)


def enter_stretch(problem: Problem, jumps: Sequence[float], knots: Sequence[float], target: float) -> float:
    """Tell the problem the ends of the stretch up to `target`, where the field may jump; its start."""
    begin = max(knot for knot in knots if knot < target)
    problem.stretch_start = max((b for b in jumps if _same(b, begin)), default=-math.inf)
    problem.stretch_end = min((b for b in jumps if b > begin and _same(b, target)), default=math.inf)
    return begin


def stretches(jumps: Sequence[float], t_end: float, t_start: float = 0.0) -> list[float]:
    """t_start, the times between which the field is continuous, t_end; times that only rounding separates are one.

    >>> stretches([0.1 + 0.2, 0.3, 5.0], 1.0)
    [0.0, 0.3, 1.0]
    """
    inside = [t_start]
    for b in sorted(jumps):
        if b > t_start and not _same(b, inside[-1]) and b < t_end and not _same(b, t_end):
            inside.append(float(b))
    return [*inside, t_end]


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-300)
