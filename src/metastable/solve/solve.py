"""`solve`: the one loop that integrates a flow; state lives here and nowhere else."""

from __future__ import annotations

import bisect
import itertools
import math
import operator
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metastable.errors import InvalidInput, SolveError
from metastable.flows.flow import Flow
from metastable.flows.zero_temperature import ZeroTemperature
from metastable.measure import Measure, as_measure
from metastable.solve.adaptive import Adaptive
from metastable.solve.checkpoint import Checkpoint
from metastable.solve.euler import Euler
from metastable.solve.events import Crossing, Event, crossing
from metastable.solve.exact import Exact
from metastable.solve.path import Path
from metastable.solve.problem import Problem, State, Step, Stepper
from metastable.solve.progress import reporter
from metastable.solve.provenance import fingerprint, provenance
from metastable.solve.recorder import InMemory, OnDisk, Recorder
from metastable.solve.rk4 import RK4
from metastable.weights import Schedule

METHODS: dict[str, type[Stepper]] = {"adaptive": Adaptive, "rk4": RK4, "euler": Euler, "exact": Exact}
"""Integration methods by name: adaptive 5(4), RK4 (order 4), Euler (order 1), exact (zero temperature only)."""

DEFAULT_STEP = 0.01


def solve(
    flow: Flow,
    rho0: Measure | Any,
    t: float,
    times: Any = None,
    method: str = "auto",
    rtol: float = 1e-8,
    atol: float = 1e-10,
    progress: bool = False,
    *,
    step: float | None = None,
    max_step: float | None = None,
    max_steps: int | None = None,
    dtype: torch.dtype | None = None,
    events: Sequence[Event] = (),
    out: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
    resume: bool = True,
    seed: int | None = None,
) -> Path:
    """Solve x_i' = v_i(t, x) from the tokens `rho0` up to time t.

    times: increasing times in [0, t] at which tokens are kept; None keeps the first and the last, an integer m
        keeps m equidistant ones. Memory is that of the kept frames plus a few times n x d.
    method: "adaptive" (order 5(4), error control per token), "rk4" and "euler" (fixed `step`, default 0.01; Euler
        with step 1/L is a network of L layers), "exact" (zero temperature only); "auto" takes exact where it
        exists, rk4 where the field jumps (Hardmax) or a `step` is given, else adaptive.
    rtol, atol: the largest tangential error of any token in one step is a tenth of atol + rtol |x|.
    max_step, max_steps: bounds for the adaptive method; besides, step * rate of the flow stays below 2.5.
    dtype: torch.float32 for single precision; by default that of `rho0` (float64).
    events: `Event`s to record, or to stop at.
    out: stream the frames to this zarr group, with a checkpoint every `checkpoint_every` seconds. The same call
        after an interruption goes on from the last checkpoint and gives the same digits; after completion it
        just opens the result. `resume=False` starts anew.
    seed: recorded in the provenance, for the samples behind `rho0`.

    >>> from metastable import AttentionWeights, SelfAttention
    >>> w = AttentionWeights(V=[[1.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
    >>> path = solve(SelfAttention(w, beta=0.0), [[1.0, 0.0], [0.0, 1.0]], t=1.0)
    >>> abs(float(path.end.points[0] @ path.end.points[1]) - math.tanh(1.0)) < 1e-9
    True
    """
    rho = _initial_measure(flow, rho0, dtype)
    t = _final_time(t)
    save_times = _save_times(times, t)
    rtol, atol = _number(rtol, "rtol"), _number(atol, "atol")
    step, max_step = (None if v is None else _number(v, n) for v, n in ((step, "step"), (max_step, "max_step")))
    max_steps = None if max_steps is None else _integer(max_steps, "max_steps")
    seed = None if seed is None else _integer(seed, "seed")
    if isinstance(events, Event) or not all(isinstance(e, Event) for e in events):
        raise InvalidInput("events must be a sequence of Event")
    for name, value in (("rtol", rtol), ("atol", atol)):
        if not (math.isfinite(value) and value >= 0):
            raise InvalidInput(f"{name} must be finite and >= 0, got {value}")
    if rtol + atol <= 0:
        raise InvalidInput("rtol and atol must not both be 0")
    for name, optional in (("step", step), ("max_step", max_step), ("max_steps", max_steps)):
        if optional is not None and not (optional > 0):
            raise InvalidInput(f"{name} must be > 0, got {optional}")
    stepper, step = _stepper(flow, method, step, t, bool(events))
    tiny = 4 * torch.finfo(rho.points.dtype).eps
    problem = Problem(flow, rho.mass, max(rtol, tiny), atol, step, max_step or math.inf)

    parameters = {
        "flow": flow.describe(),
        "t": t,
        "times": save_times,
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
    mark = fingerprint(parameters, rho.points, rho.mass)
    record = provenance(parameters, seed) | {"fingerprint": mark}
    grid = torch.tensor(save_times, dtype=torch.float64)
    recorder: Recorder
    resumed: Checkpoint | None = None
    if out is None:
        recorder = InMemory(grid, rho.points, rho.mass)
    else:
        destination = os.path.normpath(os.fspath(out))
        if resume and (done := OnDisk.finished(destination, mark)) is not None:
            return done
        on_disk = OnDisk(destination, grid, rho.points, rho.mass, mark, checkpoint_every, resume)
        recorder, resumed = on_disk, on_disk.resumed

    with reporter(progress, t, type(flow).__name__) as report:
        run = _Run(problem, stepper, rho, save_times, tuple(events), recorder, mark, max_steps)
        try:
            state = run.to(t, resumed, report)
        except KeyboardInterrupt:
            run.interrupted()
            raise
    end = Measure(state.points, rho.mass, sphere=flow.spherical, dtype=rho.points.dtype)
    record["statistics"] = {
        "accepted_steps": state.accepted,
        "rejected_steps": state.rejected,
        "evaluations": problem.evaluations,
    }
    return recorder.path(run.saved, end, state.t, tuple(run.crossings), record)


class _Run:
    """The loop over steps: it feeds save times, events and checkpoints from the steps of one stepper."""

    def __init__(
        self,
        problem: Problem,
        stepper: Stepper,
        rho: Measure,
        save_times: list[float],
        events: tuple[Event, ...],
        recorder: Recorder,
        mark: str,
        max_steps: int | None,
    ) -> None:
        self.problem, self.stepper, self.rho, self.save_times = problem, stepper, rho, save_times
        self.events, self.recorder, self.mark, self.max_steps = events, recorder, mark, max_steps
        self.saved = 0
        self.crossings: list[Crossing] = []
        self.gaps: tuple[float, ...] = ()
        self.last: State | None = None

    def to(self, t_end: float, resumed: Checkpoint | None, report: Any) -> State:
        """Integrate to t_end, or to the event that stops the run."""
        if resumed is None:
            state = State(0.0, self.rho.points)
            self.gaps = tuple(e.gap(self.rho.points, self.rho.mass) for e in self.events)
            self._save_up_to(0.0, lambda times: [self.rho.points for _ in times])
        else:
            state, self.saved, self.gaps = resumed.state, resumed.saved, resumed.gaps
            self.crossings = list(resumed.events)
            self.problem.evaluations = resumed.evaluations
        jumps = self.problem.flow.breakpoints
        for begin, end in itertools.pairwise(_stretches(jumps, t_end)):
            if state.t >= end:
                continue
            self.problem.stretch_end = min((b for b in jumps if b > begin and _same(b, end)), default=math.inf)
            if state.t == begin:
                state = self.stepper.begin(self.problem, state)
            while state.t < end:
                if self.max_steps is not None and state.accepted >= self.max_steps:
                    raise SolveError(
                        f"max_steps = {self.max_steps} steps ended at t = {state.t:.6g} of {t_end:g}; raise "
                        "max_steps, or the tolerances"
                    )
                step = self.stepper.advance(self.problem, state, end)
                state, stopped = self._take(step)
                report(state.t, state.accepted)
                if stopped:
                    return state
        return state

    def _take(self, step: Step) -> tuple[State, bool]:
        """Record events and frames of a step; a stopping event cuts it short."""
        stop_at: float | None = None
        if self.events:
            gaps = tuple(e.gap(step.end.points, self.rho.mass) for e in self.events)
            found = [
                (event, hit)
                for event, before, after in zip(self.events, self.gaps, gaps, strict=True)
                if (hit := crossing(event, step, before, after, self.rho.mass)) is not None
            ]
            self.gaps = gaps
            for event, hit in sorted(found, key=lambda pair: pair[1].time):
                self.crossings.append(hit)
                if event.stop:
                    stop_at = hit.time
                    break
        end = step.end
        if stop_at is not None and stop_at < end.t:
            self._save_up_to(stop_at, step.interpolate)
            return State(
                stop_at, step.interpolate([stop_at])[0], accepted=end.accepted, rejected=end.rejected
            ), True

        def frames(times: Sequence[float]) -> list[Tensor]:
            inside = [time for time in times if time < end.t]
            return (step.interpolate(inside) if inside else []) + [end.points] * (len(times) - len(inside))

        self._save_up_to(end.t, frames)
        if stop_at is None:
            self.last = end
            self.recorder.pause(self._checkpoint(end))
        return end, stop_at is not None

    def _checkpoint(self, state: State) -> Checkpoint:
        return Checkpoint(self.mark, state, self.saved, tuple(self.crossings), self.gaps, self.problem.evaluations)

    def interrupted(self) -> None:
        """Keep what was computed when the user interrupts the run between two checkpoints."""
        if self.last is not None:
            self.recorder.pause(self._checkpoint(self.last), now=True)

    def _save_up_to(self, t: float, frames: Any) -> None:
        last = bisect.bisect_right(self.save_times, t)
        due = self.save_times[self.saved : last]
        # In small groups, so that a step that spans many save times does not hold them all in memory.
        for first in range(0, len(due), 32):
            for points in frames(due[first : first + 32]):
                self.recorder.frame(self.saved, points)
                self.saved += 1


def _initial_measure(flow: Flow, rho0: Any, dtype: torch.dtype | None) -> Measure:
    if not isinstance(flow, Flow):
        raise InvalidInput(f"flow must be a Flow such as SelfAttention, got {type(flow).__name__}")
    if dtype not in (None, torch.float32, torch.float64):
        raise InvalidInput(f"dtype must be torch.float32 or torch.float64, got {dtype}")
    rho = as_measure(rho0, sphere=flow.spherical, dtype=dtype)
    if rho.d != flow.d:
        raise InvalidInput(f"the tokens have dimension {rho.d} but the flow's weights have dimension {flow.d}")
    if flow.spherical and not rho.sphere:
        raise InvalidInput("this flow lives on the sphere but the measure was built with sphere=False")
    return rho


def _final_time(t: Any) -> float:
    value = _number(t, "t")
    if not (math.isfinite(value) and value >= 0):
        raise InvalidInput(f"t must be finite and >= 0, got {t}")
    return value


def _save_times(times: Any, t: float) -> list[float]:
    if times is None:
        return [0.0, t] if t > 0 else [0.0]
    if isinstance(times, int | np.integer) and not isinstance(times, bool):
        if times < 2:
            raise InvalidInput(f"times as a number of frames must be >= 2, got {times}")
        return [float(x) for x in np.linspace(0.0, t, int(times))] if t > 0 else [0.0]
    try:
        array = np.asarray(times, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"times must be numbers, got {times!r}") from None
    if array.ndim != 1 or isinstance(times, bool):
        raise InvalidInput(f"times must be one row of numbers or a number of frames, got {times!r}")
    grid = [float(x) for x in array]
    if not grid:
        raise InvalidInput("times must hold at least one time, got none")
    if not all(math.isfinite(x) for x in grid) or any(b <= a for a, b in itertools.pairwise(grid)):
        raise InvalidInput(f"times must be finite and strictly increasing, got {_short(grid)}")
    if grid[0] < 0 or grid[-1] > t * (1 + 1e-12):
        raise InvalidInput(f"times must lie in [0, t] = [0, {t:g}], got {grid[0]:g} .. {grid[-1]:g}")
    return [min(x, t) for x in grid]


def _stepper(flow: Flow, method: str, step: float | None, t: float, events: bool) -> tuple[Stepper, float | None]:
    if method == "auto":
        solvable = isinstance(flow, ZeroTemperature) and (
            not isinstance(flow.weights, Schedule) or flow.weights.piecewise_constant
        )
        method = "exact" if solvable else "adaptive" if flow.smooth and step is None else "rk4"
    if method not in METHODS:
        raise InvalidInput(f"unknown method {method!r}; choose from auto, {', '.join(METHODS)}")
    if method == "exact" and isinstance(flow, ZeroTemperature):
        if isinstance(flow.weights, Schedule) and not flow.weights.piecewise_constant:
            raise InvalidInput("method 'exact' needs constant or layered weights; use 'adaptive' for this Schedule")
        # Events are looked for between steps, so the one big step is cut when there are any.
        return Exact(), step or (t / 256 if events and t > 0 else None)
    if method == "adaptive":
        if step is not None:
            raise InvalidInput("method 'adaptive' chooses its own steps; give max_step, or use 'rk4' or 'euler'")
        return Adaptive(), None
    return METHODS[method](), step or DEFAULT_STEP


def _stretches(jumps: Sequence[float], t_end: float) -> list[float]:
    """0, the times between which the field is continuous, t_end; times that only rounding separates are one."""
    inside = [0.0]
    for b in sorted(jumps):
        if b > 0 and not _same(b, inside[-1]) and b < t_end and not _same(b, t_end):
            inside.append(float(b))
    return [*inside, t_end]


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-300)


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be a number, got {value!r}") from None


def _integer(value: Any, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidInput(f"{name} must be an integer, got {value!r}") from None


def _short(values: Sequence[float]) -> str:
    shown = ", ".join(f"{v:g}" for v in values[:4])
    return f"[{shown}{', ...' if len(values) > 4 else ''}]"
