"""`solve`: a flow, tokens and a time become a path. What happens along the way is done by observers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from metastable.errors import InvalidInput
from metastable.flows.flow import Flow
from metastable.flows.identity import identity, unidentified
from metastable.flows.plan import Plan
from metastable.measure import Measure
from metastable.solve.arguments import (
    final_time,
    initial_measure,
    integer,
    positive,
    positive_integer,
    save_times,
    tolerances,
)
from metastable.solve.checkpoint import Checkpoint, Checkpoints
from metastable.solve.events import Event
from metastable.solve.frames import Frames, InMemory, OnDisk, finished
from metastable.solve.methods import choose_stepper
from metastable.solve.observer import Audience, Observer, Run, check_observer
from metastable.solve.path import Path
from metastable.solve.problem import Problem, State
from metastable.solve.progress import progress_observers
from metastable.solve.provenance import fingerprint, provenance
from metastable.solve.recorder import Recorder
from metastable.solve.stepper import Stepper
from metastable.solve.stretches import steps
from metastable.solve.watch import Watch


def solve(
    flow: Flow,
    rho0: Measure | Any,
    t: float,
    times: Any = None,
    method: str | Stepper = "auto",
    rtol: float = 1e-8,
    atol: float = 1e-10,
    progress: bool | Callable[[float, int], Any] | Observer = False,
    *,
    step: float | None = None,
    max_step: float | None = None,
    max_steps: int | None = None,
    dtype: torch.dtype | None = None,
    events: Sequence[Event] = (),
    observers: Sequence[Observer] = (),
    out: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
    resume: bool = True,
    seed: int | None = None,
) -> Path:
    """Solve x_i' = v_i(t, x) from the tokens `rho0` up to time t.

    times: increasing times in [0, t] at which tokens are kept; None keeps the first and the last, an integer m
        keeps m equidistant ones. Memory is that of the kept frames plus a few times n x d.
    method: "adaptive" (order 5(4), error control per token), "rk4" and "euler" (fixed `step`, default 0.01; Euler
        with step 1/L is a network of L layers), "exact" (zero temperature only), the name of a registered stepper,
        "switching" (Hardmax only: its jumps are located), or a `Stepper`; "auto" takes exact or switching where
        they apply, rk4 where the field jumps otherwise or a `step` is given, else adaptive.
    rtol, atol: the largest tangential error of any token in one step is a tenth of atol + rtol |x|.
    max_step, max_steps: bounds for the adaptive method; besides, step * rate of the flow stays below 2.5.
    dtype: torch.float32 for single precision; by default that of `rho0` (float64).
    progress: True for a bar on the terminal, or a function of (t, steps), or an `Observer`.
    events: `Event`s to record, or to stop at.
    observers: `Observer`s that see every step, and may end the run; they do not change its digits or its identity.
    out: stream the frames to this zarr group, with a checkpoint every `checkpoint_every` seconds. The same call
        after an interruption goes on from the last checkpoint and gives the same digits; after completion it
        just opens the result, and no observer sees a step. `resume=False` starts anew.
    seed: recorded in the provenance, for the samples behind `rho0`.

    >>> from metastable import AttentionWeights, SelfAttention
    >>> w = AttentionWeights(V=[[1.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
    >>> path = solve(SelfAttention(w, beta=0.0), [[1.0, 0.0], [0.0, 1.0]], t=1.0)
    >>> abs(float(path.end.points[0] @ path.end.points[1]) - math.tanh(1.0)) < 1e-9
    True
    """
    rho = initial_measure(flow, rho0, dtype)
    t = final_time(t)
    kept = save_times(times, t)
    rtol, atol = tolerances(rtol, atol)
    step, max_step = positive(step, "step"), positive(max_step, "max_step")
    max_steps = positive_integer(max_steps, "max_steps")
    seed = None if seed is None else integer(seed, "seed")
    if isinstance(events, Event) or not all(isinstance(e, Event) for e in events):
        raise InvalidInput("events must be a sequence of Event")
    guests = _guests(observers)
    flow = flow.for_run(Plan(0.0, t, rtol, atol, step, rho.points.dtype))
    stepper = choose_stepper(flow, method, step)
    step = stepper.step_size(step, t, bool(events))
    tiny = 4 * torch.finfo(rho.points.dtype).eps
    problem = Problem(flow, rho.mass, max(rtol, tiny), atol, step, max_step or math.inf)

    parameters = {
        "flow": flow.describe(),
        "t": t,
        "times": kept,
        "method": stepper.name,
        "rtol": problem.rtol,
        "atol": atol,
        "step": step,
        "max_step": max_step,
        "n": rho.n,
        "d": rho.d,
        "dtype": str(rho.points.dtype).removeprefix("torch."),
        "events": [[e.name, e.level, e.direction, e.stop, e.gap(rho.points, rho.mass)] for e in events],
    }
    if own := identity(stepper, stepper.caches):
        parameters["stepper"] = own
    mark = fingerprint(parameters, rho.points, rho.mass)
    record = provenance(parameters, seed) | {"fingerprint": mark}
    grid = torch.tensor(kept, dtype=torch.float64)
    frames: Frames
    resumed: Checkpoint | None = None
    if out is None:
        frames = InMemory(grid, rho.points, rho.mass)
    else:
        _require_identity(parameters)
        destination = os.path.normpath(os.fspath(out))
        names = tuple(type(guest).__name__ for guest in guests)
        if resume and (done := finished(destination, mark, names)) is not None:
            return done
        frames = OnDisk(destination, grid, rho.points, rho.mass, mark, resume)
        resumed = frames.resumed

    if resumed is None:
        state, watch, recorder = State(0.0, rho.points), Watch(events), Recorder(kept, frames)
    else:
        state = resumed.state
        watch = Watch(events, resumed.gaps, resumed.events)
        recorder = Recorder(kept, frames, resumed.saved)
        problem.evaluations = resumed.evaluations

    def checkpoint(state: State) -> Checkpoint:
        return Checkpoint(mark, state, recorder.saved, tuple(watch.crossings), watch.gaps, problem.evaluations)

    # Events and guests may end the run inside a step, so they see it before those who write it down.
    keepers: list[Observer] = [recorder]
    if isinstance(frames, OnDisk):
        keepers.append(Checkpoints(checkpoint, frames.checkpoint, checkpoint_every))
    watching = (watch,) if watch.events else ()
    audience = Audience((*watching, *guests, *progress_observers(progress), *keepers))
    try:
        audience.begin(Run(flow, rho.mass, state, t, tuple(kept), stepper.name))
        for made in steps(problem, stepper, state, t, max_steps):
            shown = audience.show(made)
            state = shown.end
            if shown.ended:
                break
        end = Measure(state.points, rho.mass, sphere=flow.spherical, dtype=rho.points.dtype)
        record["statistics"] = {
            "accepted_steps": state.accepted,
            "rejected_steps": state.rejected,
            "evaluations": problem.evaluations,
        }
        record |= flow.record()
        if audience.ended_by is not None and audience.ended_by is not watch:
            record["ended_by"] = type(audience.ended_by).__name__
        crossings = tuple(hit for hit in watch.crossings if hit.time <= state.t)
        path = frames.path(recorder.saved, end, state.t, crossings, record)
    except BaseException:
        audience.end(None)
        raise
    if (error := audience.end(path)) is not None:
        raise error
    return path


def _guests(observers: Any) -> tuple[Observer, ...]:
    """The observers from outside."""
    if isinstance(observers, Observer) or not isinstance(observers, Sequence):
        raise InvalidInput(f"observers must be a sequence of Observer, got {type(observers).__name__}")
    for observer in observers:
        check_observer(observer, "an observer")
    return tuple(observers)


def _require_identity(parameters: dict[str, Any]) -> None:
    """Refuse to store a run that could not be told from another one."""
    if unread := unidentified([parameters["flow"], parameters.get("stepper")]):
        raise InvalidInput(
            f"a run with out= needs a flow that can be told from others, and {', '.join(sorted(set(unread)))} "
            "cannot be read; give the flow a method describe that returns what defines it"
        )
