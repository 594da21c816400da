"""`integrate`: the one place where steps are made, shown to the observers, and become a path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from metastable.measure import Measure
from metastable.solve.checkpoint import Checkpoint
from metastable.solve.frames import Frames, OnDisk
from metastable.solve.keeper import Checkpoints
from metastable.solve.observer import Audience, Observer, Run
from metastable.solve.path import Continuation, Path
from metastable.solve.problem import State
from metastable.solve.recorder import Recorder
from metastable.solve.stretches import steps
from metastable.solve.task import Task
from metastable.solve.watch import Watch


def integrate(
    task: Task,
    start: Checkpoint,
    frames: Frames,
    guests: Sequence[Observer] = (),
    *,
    max_steps: int | None = None,
    checkpoint_every: float = 0.0,
    continuation: Continuation | None = None,
) -> Path:
    """The run from `start`, its first state or one that was written down, to its end.

    continuation: how the path will be able to go on.
    """
    problem, record, mark = task.problem(start.evaluations), task.record(), task.fingerprint
    state = start.state
    task.flow.recall(dict(start.record))
    watch = Watch(task.events, start.gaps or None, start.events)
    recorder = Recorder(task.times, frames, start.saved)

    def checkpoint(state: State) -> Checkpoint:
        crossings, told = tuple(watch.crossings), task.flow.record()
        return Checkpoint(mark, state, recorder.saved, crossings, watch.gaps, problem.evaluations, told)

    # Events and guests may end the run inside a step, so they see it before those who write it down.
    keepers: list[Observer] = [recorder]
    if isinstance(frames, OnDisk):
        keepers.append(Checkpoints(checkpoint, frames.write, checkpoint_every))
    audience = Audience((*((watch,) if watch.events else ()), *guests, *keepers))
    try:
        audience.begin(Run(task.flow, task.mass, state, task.t, tuple(task.times), task.stepper.name))
        # The last state to which t made no difference, mostly that before the last step: from there a longer run is
        # the same run.
        before, free = checkpoint(state), True
        begun, bounded = task.parameters["t0"], task.bounded
        for made in steps(problem, task.stepper, state, task.t, max_steps, t_start=begun, bounded=bounded):
            shown = audience.show(made)
            free = free and made.tried != task.t
            state = shown.end
            if shown.ended:
                break
            if state.t < task.t and free:
                before = checkpoint(state)
        end = Measure(state.points, task.mass, sphere=task.flow.spherical, dtype=state.points.dtype)
        record |= task.flow.record()
        record["statistics"] = _statistics(state, problem.evaluations)
        if audience.ended_by is not None and audience.ended_by is not watch:
            record["ended_by"] = type(audience.ended_by).__name__
        crossings = tuple(hit for hit in watch.crossings if hit.time <= state.t)
        path = frames.path(recorder.saved, end, state.t, crossings, record, before)
        path = replace(path, continuation=continuation)
    except BaseException:
        audience.end(None)
        raise
    if (error := audience.end(path)) is not None:
        raise error
    return path


def _statistics(state: State, evaluations: int) -> dict[str, Any]:
    return {"accepted_steps": state.accepted, "rejected_steps": state.rejected, "evaluations": evaluations}
