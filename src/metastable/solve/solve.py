"""`solve`: a flow, tokens and a time become a path. What happens along the way is done by observers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, overload

import torch

from metastable.arguments import flag, instance, integer, number, place, sequence
from metastable.flows.common_noise import CommonNoise
from metastable.flows.flow import Flow
from metastable.flows.plan import Plan
from metastable.measure import Ensemble, Measure
from metastable.solve.abreast import abreast_stepper, integrate_abreast
from metastable.solve.arguments import initial_ensemble, initial_measure, interval, positive, save_times, tolerances
from metastable.solve.checkpoint import Checkpoint
from metastable.solve.events import Event
from metastable.solve.extend import Onward
from metastable.solve.frames import InMemory, OnDisk, finished
from metastable.solve.integrate import integrate
from metastable.solve.lock import Lock
from metastable.solve.many import integrate_many, many_stepper
from metastable.solve.methods import choose_stepper
from metastable.solve.observer import Observer, observers_of
from metastable.solve.path import Path
from metastable.solve.problem import State
from metastable.solve.progress import progress_observers
from metastable.solve.provenance import digest
from metastable.solve.stepper import Stepper
from metastable.solve.task import Task


@overload
def solve(
    flow: Flow,
    rho0: Ensemble,
    t: float,
    times: Any = ...,
    method: str | Stepper = ...,
    rtol: float = ...,
    atol: float = ...,
    progress: bool | Callable[[float, int], Any] | None = ...,
    *,
    step: float | None = ...,
    max_step: float | None = ...,
    max_steps: int | None = ...,
    dtype: torch.dtype | None = ...,
    events: Sequence[Event] = ...,
    seed: int | None = ...,
    t0: float = ...,
    key: str | None = ...,
) -> Path[Ensemble]: ...


@overload
def solve(
    flow: Flow,
    rho0: Measure | Any,
    t: float,
    times: Any = ...,
    method: str | Stepper = ...,
    rtol: float = ...,
    atol: float = ...,
    progress: bool | Callable[[float, int], Any] | Observer | None = ...,
    *,
    step: float | None = ...,
    max_step: float | None = ...,
    max_steps: int | None = ...,
    dtype: torch.dtype | None = ...,
    events: Sequence[Event] = ...,
    observers: Sequence[Observer] = ...,
    out: str | os.PathLike[str] | None = ...,
    checkpoint_every: float = ...,
    resume: bool = ...,
    seed: int | None = ...,
    t0: float = ...,
    key: str | None = ...,
) -> Path: ...


def solve(
    flow: Flow,
    rho0: Measure | Ensemble | Any,
    t: float,
    times: Any = None,
    method: str | Stepper = "auto",
    rtol: float = 1e-8,
    atol: float = 1e-10,
    progress: bool | Callable[[float, int], Any] | Observer | None = False,
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
    t0: float = 0.0,
    key: str | None = None,
) -> Path | Path[Ensemble]:
    """Solve x_i' = v_i(t, x) from the tokens `rho0` at time t0 up to time t.

    rho0: a `Measure`, points (n, d), or an `Ensemble` of independent systems: then every system has steps of its
        own by the adaptive method, as if it were alone, and an event stops only the system that it happens in.

    times: increasing times in [t0, t] at which tokens are kept; None keeps the first and the last, an integer m
        keeps m equidistant ones. Memory is that of the kept frames plus a few times n x d.
    method: "dop853" and "adaptive" (order 8(5,3) and 5(4), error control per token), "rk4" and "euler" (fixed
        `step`, default 0.01; Euler with step 1/L is a network of L layers), "exact" (zero temperature only),
        "switching" (Hardmax only: its jumps are located); for `CommonNoise` "heun" and "euler-maruyama" (fixed
        `step`, strong order 1/2, weak order 1) and "layers" (a random transformer); the name of a registered
        stepper, or a `Stepper`; "auto" takes exact or switching where they apply, rk4 where the field jumps
        otherwise or a `step` is given, else the pair that needs fewer evaluations: dop853, or adaptive for coarse
        tolerances and float32; with noise heun where the field has features, else euler-maruyama.
    rtol, atol: the largest tangential error of any token in one step is a tenth of atol + rtol |x|.
    max_step: bound for both pairs; besides, no step is longer than the flow's time scale.
    max_steps: the run ends with an error after so many; without it a run of more than 10^9 steps is refused.
    dtype: torch.float32 for single precision; by default that of `rho0` (float64).
    progress: True for a bar on the terminal, or a function of (t, steps), or an `Observer`.
    events: `Event`s to record, or to stop at.
    observers: `Observer`s that see every step, and may end the run; they do not change its digits or its identity.
    out: stream the frames to this zarr group, with a checkpoint every `checkpoint_every` seconds. The same call
        after an interruption goes on from the last checkpoint and gives the same digits; after completion it
        just opens the result, and no observer sees a step. `resume=False` starts anew, and replaces what is there
        when the new run is complete. One run at a time writes there (see `lock`).
    seed: of the noise of a flow that has one, 0 by default; otherwise only recorded in the provenance, for the
        samples behind `rho0`.
    t0: the time at which `rho0` stands, for weights that depend on time.
    key: a word that stands for what cannot be read of the flow, the method or the events (an open file, a compiled
        network); runs with `out` are told apart by it. Everything else is told apart by code and values.

    >>> from metastable import AttentionWeights, SelfAttention
    >>> w = AttentionWeights(V=[[1.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
    >>> path = solve(SelfAttention(w, beta=0.0), [[1.0, 0.0], [0.0, 1.0]], t=1.0)
    >>> abs(float(path.end.points[0] @ path.end.points[1]) - 0.7615941559557649) < 1e-9  # tanh(1)
    True
    """
    rho = initial_ensemble(flow, rho0, dtype) if isinstance(rho0, Ensemble) else initial_measure(flow, rho0, dtype)
    t0, t = interval(t0, t)
    kept = save_times(times, t, t0)
    rtol, atol = tolerances(rtol, atol)
    step, max_step = positive(step, "step"), positive(max_step, "max_step")
    max_steps = None if max_steps is None else integer(max_steps, "max_steps", least=1)
    every, resume = number(checkpoint_every, "checkpoint_every", least=0), flag(resume, "resume")
    watched = sequence(events, "events", Event, "Events")
    guests = (*observers_of(observers), *progress_observers(progress))
    for event in watched:
        event.gap(*((rho.points, rho.mass) if isinstance(rho, Measure) else (rho.points[0], rho.mass[0])))
    seed = None if seed is None else integer(seed, "seed")
    prepared = flow.for_run(Plan(t0, t, rtol, atol, step, rho.points.dtype))
    tolerance = rtol + atol if rho.points.dtype == torch.float64 else math.inf
    stepper: Stepper
    if isinstance(rho, Ensemble) and isinstance(prepared, CommonNoise):
        stepper = abreast_stepper(prepared, method, step, watched, observers, out)
        prepared = prepared.abreast(rho.b)
    elif isinstance(rho, Ensemble):
        stepper = many_stepper(prepared, method, step, tolerance, observers, out)
    else:
        stepper = choose_stepper(prepared, method, step, tolerance)
    how = {
        "t0": t0,
        "t": t,
        "times": kept,
        "rtol": max(rtol, 4 * torch.finfo(rho.points.dtype).eps),
        "atol": atol,
        "step": stepper.step_size(step, t - t0, bool(watched)),
        "max_step": max_step,
        **({"b": rho.b} if isinstance(rho, Ensemble) else {}),
        "n": rho.n,
        "d": rho.d,
        "dtype": str(rho.points.dtype).removeprefix("torch."),
        "tokens": digest(rho.points, rho.mass),
    }
    if flow.stochastic:
        seed = how["seed"] = seed or 0
    task = Task.of(
        prepared,
        rho.mass if isinstance(rho, Measure) else rho.mass.reshape(-1) if flow.stochastic else rho.mass,
        stepper,
        watched,
        how,
        seed=seed,
        key=None if key is None else instance(key, "key", str, "a word"),
        bounded=max_steps is not None or len(guests) > 0,
    )
    if isinstance(rho, Ensemble) and flow.stochastic:
        return integrate_abreast(task, rho, guests, max_steps)
    if isinstance(rho, Ensemble):
        return integrate_many(task, rho, guests, max_steps)
    start = Checkpoint(task.fingerprint, State(t0, rho.points))
    grid = torch.tensor(kept, dtype=torch.float64)
    onward = Onward(flow, stepper, watched)
    if out is None:
        held = InMemory(grid, rho.points, rho.mass)
        return integrate(task, start, held, guests, max_steps=max_steps, continuation=onward)
    task.require_identity()
    destination = os.path.normpath(place(out, "out"))
    names = tuple(type(guest).__name__ for guest in guests)
    # Once without the lock, so that a result can be opened where nothing can be written; and once under it, because
    # another process may have completed the run in between.
    if resume and (done := finished(destination, task.fingerprint, names)) is not None:
        return replace(done, continuation=onward)
    with Lock(destination, task.fingerprint) as lock:
        if resume and (done := finished(destination, task.fingerprint, names)) is not None:
            return replace(done, continuation=onward)
        frames = OnDisk(lock, grid, rho.points, rho.mass, task.fingerprint, resume)
        return integrate(
            task,
            frames.resumed or start,
            frames,
            guests,
            max_steps=max_steps,
            checkpoint_every=every,
            continuation=onward,
        )
