"""The adaptive method for many systems at once: every system has its own time, its own step and its own error.

A round makes one trial step of every system that has not reached the target yet, all of them together; those whose
error is too large try again in the next round. A system whose tokens have settled makes longer and longer steps,
reaches the target in a few rounds, and drops out of the work; so do systems that an event stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.direct import MAX_COLUMNS
from metastable.errors import SolveError
from metastable.flows.drift import Velocities
from metastable.flows.pairwise import pairwise
from metastable.solve.adaptive import FIRST_MOVE, Adaptive
from metastable.solve.arguments import jump_times
from metastable.solve.compiled_trial import CompiledTrial
from metastable.solve.controller import (
    FASTEST,
    LEAST_ERROR,
    LEAST_MEMORY,
    SAFETY,
    SHARE,
    SLOWEST,
    SMALLEST_RATE,
    STRETCH,
    Controller,
)
from metastable.solve.dop853 import PROBE, Dop853, first_share
from metastable.solve.march import march
from metastable.solve.problem import Problem
from metastable.solve.stretches import COUNTED, enter_stretch, refuse_endless, stretches
from metastable.solve.systems import Round, Systems, combined, largest_errors
from metastable.solve.tableau import Tableau

Inside = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(numbers of systems, ends of their steps) -> whether anybody will look inside the step of each."""


class Trial(NamedTuple):
    """One step of every system of a round: the tokens and velocities after it, error, rate, and its stages."""

    points: Float[Tensor, "a n d"]
    slope: Float[Tensor, "a n d"]
    error: Float[np.ndarray, "a"]
    rate: Float[np.ndarray, "a"]
    before: Float[Tensor, "a n d"]
    stages: Float[Tensor, "s a n d"]


def rounds(
    problem: Problem,
    stepper: Adaptive | Dop853,
    systems: Systems,
    t_end: float,
    max_steps: int | None,
    *,
    t_start: float,
    bounded: bool,
    inside: Inside,
) -> Iterator[Systems]:
    """The systems after every round, until all of them have reached t_end; see `stretches.steps` for the rest."""
    pair = stepper.tableau()
    compiled = compiled_trial(problem, systems, pair)
    jumps = jump_times(problem.flow)
    knots = stretches(jumps, t_end, t_start)

    def enter(systems: Systems, target: float) -> Systems:
        enter_stretch(problem, jumps, knots, target)
        return begin(problem, stepper, systems)

    def advance(systems: Systems, target: float) -> Systems:
        made = advance_round(problem, pair, systems, target, inside, compiled)
        done = made.round
        if max_steps is not None and done is not None:
            late = made.running & (made.accepted >= max_steps) & (made.times < t_end)
            if late.any():
                s = int(late.argmax())
                raise SolveError(
                    f"max_steps = {max_steps} steps of system {s} ended at t = {made.times[s]:.6g} of {t_end:g}; "
                    "raise max_steps, or the tolerances"
                )
        if not bounded and done is not None and len(done.which) and made.accepted.max() % COUNTED == 0:
            refuse_endless(t_end - float(done.end.min()), float((done.end - done.start).min()))
        return made

    return march(advance, systems, knots[1:], enter)


def begin(problem: Problem, stepper: Adaptive | Dop853, systems: Systems) -> Systems:
    """Evaluate the field at the start of a stretch; choose first steps from its size where none are known."""
    which = np.flatnonzero(systems.running)
    t, x = systems.times[which], systems.points[_index(which, systems)]
    found = _field(problem, t, x, which)
    _require_finite(problem, found.vectors, t, which)
    systems.slope[_index(which, systems)] = found.vectors
    systems.rate[which] = rates = found.rates.double().cpu().numpy()
    _require_rates(problem, rates, t, which)
    tolerance, speed = problem.atol + problem.rtol, np.maximum(_speeds(found.vectors), SMALLEST_RATE)
    by_rate = tolerance ** (1 / stepper.order) / np.maximum(rates, SMALLEST_RATE)
    if isinstance(stepper, Dop853):  # as in its `first_step`
        probe = np.minimum(PROBE / speed, by_rate)
        moved = combined(x, found.vectors[None], probe[:, None], problem.flow.spherical)
        change = _speeds(_field(problem, t + probe, moved, which).vectors - found.vectors) / probe
        small = tolerance ** (1 / 8)
        share = first_share(problem.flow.d)
        found_step = np.where(np.isfinite(change), share * small / (speed + change / speed), 0.0)
        first = np.maximum(np.maximum(found_step, by_rate), tolerance / speed)
    else:
        first = np.minimum(FIRST_MOVE / speed, by_rate)
    known = systems.step[which]
    systems.step[which] = np.where(known > 0, known, np.minimum(first, _caps(problem, stepper.stable, rates)))
    return systems


def advance_round(
    problem: Problem,
    pair: Tableau,
    systems: Systems,
    target: float,
    inside: Inside,
    compiled: CompiledTrial | None,
) -> Systems:
    """One trial step of every system before the target, accepted where its error is within the tolerance."""
    which = np.flatnonzero(systems.running & (systems.times < target))
    start = systems.times[which]
    caps, left = _caps(problem, pair.stable, systems.rate[which]), target - start
    asked = np.minimum(systems.step[which], caps)
    longest = np.minimum(STRETCH * asked, caps)
    fitted = (asked < left) & (left <= 2 * longest)  # as in `EmbeddedPair.advance`
    asked = np.where(fitted, np.where(left <= longest, left, left / 2), asked)
    end = _next_times(start, asked, target)
    h = end - start
    _require_resolved(problem, pair, systems, which, end, target)
    looked = inside(which, end)
    if compiled is None:
        trial = _trial(problem, pair, systems, which, start, h, bool(looked.any()))
    else:
        trial = _compiled(compiled, problem, systems, which, h, looked)
        problem.evaluations += compiled.evaluations(trial.error, looked)
    good = trial.error <= 1.0
    rows = np.flatnonzero(good)
    made = which[rows]
    _require_rates(problem, trial.rate[rows], end[rows], made)
    _control(pair.controller, systems, which, h, asked, trial.error, end == target)
    systems.times[made] = end[rows]
    systems.rate[made] = trial.rate[rows]
    systems.take_over(which, rows, trial.points, trial.slope)
    before, stages, unit = trial.before, trial.stages, problem.flow.spherical
    systems.round = Round(made, start[rows], end[rows], before, stages, rows, pair.between, unit)
    return systems


def compiled_trial(problem: Problem, systems: Systems, pair: Tableau) -> CompiledTrial | None:
    """The compiled steps of these systems, where they are attention with constant weights in few dimensions."""
    points = systems.points
    if not points.is_cpu or points.dtype != torch.float64 or points.shape[2] > MAX_COLUMNS:
        return None
    flow = pairwise(problem.flow, len(points))
    return None if flow is None else CompiledTrial(flow, problem.mass.numpy(), points.shape[2], pair)


def _compiled(
    compiled: CompiledTrial,
    problem: Problem,
    systems: Systems,
    which: np.ndarray,
    h: np.ndarray,
    inside: np.ndarray,
) -> Trial:
    allowed = SHARE * problem.rtol, SHARE * problem.atol
    compiled(systems.points.numpy(), systems.slope.numpy(), which, h, inside, allowed)
    a = len(which)
    points, slope, kept = (torch.from_numpy(x) for x in (compiled.points, compiled.slope, compiled.kept))
    error = np.where(np.isfinite(compiled.error[:a]), compiled.error[:a], math.inf)
    return Trial(points[:a], slope[:a], error, compiled.rate[:a], kept[0, :a], kept[1:, :a])


def _trial(
    problem: Problem,
    pair: Tableau,
    systems: Systems,
    which: np.ndarray,
    start: np.ndarray,
    h: np.ndarray,
    inside: bool,
) -> Trial:
    """The same for any flow."""
    index, unit = _index(which, systems), problem.flow.spherical
    x = systems.points[index]
    points, rates = x, np.zeros(len(which))
    stages = torch.empty((len(pair.nodes), *x.shape), dtype=x.dtype, device=x.device)
    stages[0] = systems.slope[index]
    for stage in range(1, len(pair.nodes) if inside else pair.end + 1):
        shifted = combined(x, stages[:stage], h[:, None] * pair.table[stage, :stage], unit)
        found = _field(problem, start + pair.nodes[stage] * h, shifted, which)
        stages[stage] = found.vectors
        if stage == pair.end:
            points, rates = shifted, found.rates.double().cpu().numpy()
    allowed = SHARE * problem.rtol, SHARE * problem.atol
    used, weights = stages[: pair.end + 1], h[None, :, None] * pair.errors[:, None, :]
    error = largest_errors(problem.flow, x, points, used, weights, pair.damping, allowed)
    return Trial(points, stages[pair.end], error, rates, x, stages)


def growth(control: Controller, error: np.ndarray, last_error: np.ndarray, rejected: np.ndarray) -> np.ndarray:
    """`Controller.growth` of every system."""
    wanted = SAFETY * np.maximum(error, LEAST_ERROR) ** -control.recent * last_error**control.before
    return np.minimum(np.where(rejected, 1.0, FASTEST), np.maximum(SLOWEST, wanted))


def after_rejection(control: Controller, error: np.ndarray) -> np.ndarray:
    """`Controller.after_rejection` of every system."""
    shorter = np.maximum(SLOWEST, SAFETY * np.maximum(error, 1.0) ** (-1 / control.order))
    return np.where(np.isfinite(error), shorter, 0.1)


def _control(
    control: Controller,
    systems: Systems,
    which: np.ndarray,
    h: np.ndarray,
    asked: np.ndarray,
    error: np.ndarray,
    cut: np.ndarray,
) -> None:
    """Choose the next step of every system, and count."""
    good = error <= 1.0
    grown = h * growth(control, error, systems.last_error[which], systems.failed[which])
    # A step that was cut short by the limit says little about the next one.
    grown = np.where(cut & (h < asked), np.maximum(grown, asked), grown)
    systems.step[which] = np.where(good, grown, h * after_rejection(control, error))
    systems.last_error[which] = np.where(good, np.maximum(error, LEAST_MEMORY), systems.last_error[which])
    systems.failed[which] = ~good
    systems.accepted[which] += good
    systems.rejected[which] += ~good


def _field(problem: Problem, t: np.ndarray, points: Tensor, which: np.ndarray) -> Velocities:
    problem.evaluations += len(which)
    clock = np.maximum(np.minimum(t, math.nextafter(problem.stretch_end, -math.inf)), problem.stretch_start)
    index = torch.from_numpy(which).to(points.device)
    return problem.flow.evaluate_many(torch.from_numpy(clock), points, problem.mass[index], index)


def _index(which: np.ndarray, systems: Systems) -> Tensor:
    return torch.from_numpy(which).to(systems.points.device)


def _speeds(vectors: Tensor) -> np.ndarray:
    return np.asarray(torch.linalg.vector_norm(vectors, dim=2).amax(dim=1).double().cpu().numpy())


def _caps(problem: Problem, stable: float, rates: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.minimum(problem.max_step, np.where(rates > 0, stable / rates, math.inf))


def _next_times(start: np.ndarray, h: np.ndarray, target: float) -> np.ndarray:
    """t + h, or the target itself where only rounding is left between them (`problem.next_time`)."""
    after = start + h
    left = target - after
    return np.where((left <= 1e-9 * h) | (left <= 1e-14 * np.maximum(abs(after), abs(target))), target, after)


def _require_rates(problem: Problem, rates: np.ndarray, t: np.ndarray, which: np.ndarray) -> None:
    """End the run where what a flow states as its Lipschitz constant is none."""
    wrong = ~(rates >= 0)
    if wrong.any():
        s = int(wrong.argmax())
        raise SolveError(
            f"the rate of {type(problem.flow).__name__}, its Lipschitz constant, must be a number >= 0, got "
            f"{rates[s]} at t = {t[s]:.6g} in system {which[s]}"
        )


def _require_finite(problem: Problem, vectors: Tensor, t: np.ndarray, which: np.ndarray) -> None:
    finite = torch.isfinite(vectors).all(dim=2)
    if not bool(finite.all()):
        row, token = (int(x) for x in (~finite).nonzero()[0])
        raise SolveError(
            f"the velocity of token {token} of system {which[row]} is not finite at t = {t[row]:.6g}; that is what "
            f"{type(problem.flow).__name__} returned there"
        )


def _require_resolved(
    problem: Problem, pair: Tableau, systems: Systems, which: np.ndarray, end: np.ndarray, target: float
) -> None:
    """End the run where a step falls below rounding: the field may be not finite there, or too stiff."""
    start = systems.times[which]
    small = (end - start < np.maximum(16 * np.spacing(np.abs(start)), 1e-300)) & (end < target)
    if not small.any():
        return
    row = int(small.argmax())
    s, t, h = which[row : row + 1], start[row : row + 1], (end - start)[row : row + 1]
    stages = _trial(problem, pair, systems, s, t, h, inside=False).stages[: pair.end + 1]
    for node, vectors in zip(pair.nodes, stages, strict=False):
        _require_finite(problem, vectors, t + node * h, s)
    raise SolveError(
        f"the step of system {s[0]} fell below rounding at t = {t[0]:.6g} (rate {systems.rate[s[0]]:.3g}); the "
        "flow is too stiff or discontinuous there for these tolerances: raise rtol and atol"
    )
