"""`Path.extend`: a run goes on to a later time, at the digits of one run; and `load`, whose paths do so, too."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from metastable.arguments import instance, integer, number, numbers, place, sequence, shown
from metastable.errors import InvalidInput
from metastable.flows.flow import Flow
from metastable.flows.identity import identity, vouched
from metastable.flows.plan import Plan
from metastable.solve.arguments import MOST_TIMES
from metastable.solve.events import Event
from metastable.solve.frames import InMemory, OnDisk, finished
from metastable.solve.integrate import integrate
from metastable.solve.lock import Lock
from metastable.solve.methods import METHODS
from metastable.solve.observer import Observer, observers_of
from metastable.solve.path import Path, stored
from metastable.solve.progress import progress_observers
from metastable.solve.rebuild import rebuilt
from metastable.solve.stepper import Stepper
from metastable.solve.task import Task


def load(location: str | os.PathLike[str]) -> Path:
    """Read a path that `Path.save` or `solve(out=...)` wrote; its frames stay on disk until they are asked for."""
    return replace(stored(place(location, "location")), continuation=Onward())


@dataclass(frozen=True, eq=False)
class Onward:
    """Goes on with a path. A run that was just made knows its flow, method and events; a record names them."""

    flow: Flow | None = None
    stepper: Stepper | None = None
    events: tuple[Event, ...] | None = None

    def __reduce__(self) -> tuple[type[Onward], tuple[()]]:
        """A path that goes to another process is as one that was loaded: functions may not travel."""
        return Onward, ()

    def __call__(
        self,
        path: Path,
        t: float,
        times: Any = None,
        *,
        flow: Flow | None = None,
        events: Sequence[Event] | None = None,
        observers: Sequence[Observer] = (),
        progress: Any = False,
        max_steps: int | None = None,
        out: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 30.0,
    ) -> Path:
        """The path up to time t; see `Path.extend`."""
        end, kept = _end(path, t), path.times.tolist()
        before = path.last_state()
        if before is None:
            raise InvalidInput("this path was stored without its last state; solve from path.end with t0=")
        later = _later(times, end, path)
        guests = (*observers_of(observers), *progress_observers(progress))
        max_steps = None if max_steps is None else integer(max_steps, "max_steps", least=1)
        every = number(checkpoint_every, "checkpoint_every", least=0)
        record = path.provenance["parameters"]
        how = {name: record[name] for name in PLAIN if name in record} | {"t": end, "times": kept + later}
        own = self._flow(flow, record)
        plan = Plan(how["t0"], end, how["rtol"], how["atol"], dtype=before.state.points.dtype)
        task = Task.of(
            own.for_run(plan),
            path.mass,
            self._stepper(record),
            self._events(events, path, record),
            how,
            seed=path.provenance["seed"],
            key=path.provenance.get("key"),
            bounded=max_steps is not None or len(guests) > 0,
        )
        if vouched(task.parameters["flow"], "") != vouched(record["flow"], ""):
            raise InvalidInput(
                "the flow of this path cannot be rebuilt from its record; pass it as flow="
                if flow is None
                else "flow= must be the flow of this path; for another one solve from path.end with t0="
            )
        start = replace(before, fingerprint=task.fingerprint, gaps=())
        going_on = replace(self, flow=own, stepper=task.stepper, events=task.events)
        grid, like = torch.tensor(kept + later, dtype=torch.float64), before.state.points
        if out is None:
            frames = InMemory(grid, like, path.mass)
            frames.frames[: before.saved] = path.points[: before.saved]
            return integrate(task, start, frames, guests, max_steps=max_steps, continuation=going_on)
        task.require_identity()
        destination = os.path.normpath(place(out, "out"))
        names = tuple(type(guest).__name__ for guest in guests)
        with Lock(destination, task.fingerprint) as lock:
            contained = path.provenance.get("fingerprint")
            if (done := finished(destination, task.fingerprint, names, replaced=contained)) is not None:
                return replace(done, continuation=going_on)
            streamed = OnDisk(lock, grid, like, path.mass, task.fingerprint, resume=True)
            if streamed.resumed is None:
                for index in range(before.saved):
                    streamed.keep(index, path.frame(index))
                streamed.write(start)
            return integrate(
                task,
                streamed.resumed or start,
                streamed,
                guests,
                max_steps=max_steps,
                checkpoint_every=every,
                continuation=going_on,
            )

    def _flow(self, given: Any, record: dict[str, Any]) -> Flow:
        if given is not None:
            return instance(given, "flow", Flow, "a Flow such as SelfAttention")
        flow = self.flow or rebuilt(record["flow"])
        if flow is None:
            raise InvalidInput("the flow of this path cannot be rebuilt from its record; pass it as flow=")
        return flow

    def _stepper(self, record: dict[str, Any]) -> Stepper:
        if self.stepper is not None:
            return self.stepper
        kind = METHODS.get(record["method"])
        stepper = None if kind is None else kind()
        if stepper is None or (identity(stepper, stepper.caches) or None) != record.get("stepper"):
            raise InvalidInput(
                f"the method {shown(record['method'])} of this path is not known here; register_stepper makes it"
            )
        return stepper

    def _events(self, given: Any, path: Path, record: dict[str, Any]) -> tuple[Event, ...]:
        if given is not None:
            return sequence(given, "events", Event, "Events")
        events = () if not record["events"] else self.events
        if events is None:
            raise InvalidInput("this path was made with events; pass them as events=, or [] to go on without")
        if any(e.stop and Onward._stopped(e, path) for e in events):
            raise InvalidInput(
                f"an event stopped this path at t = {path.end_time:g}; pass events= to say which count from here on"
            )
        return events

    @staticmethod
    def _stopped(event: Event, path: Path) -> bool:
        return any(hit.name == event.name and hit.time == path.end_time for hit in path.events)


PLAIN = ("t0", "rtol", "atol", "step", "max_step", "n", "d", "dtype", "tokens", "seed")
"""Parameters of a run that its continuation takes over as they are; the seed is one of those with noise."""


def _end(path: Path, t: Any) -> float:
    end = number(t, "t")
    if end <= path.end_time:
        raise InvalidInput(f"t must be > {path.end_time:g}, where the path ends, got {shown(end)}")
    return end


def _later(times: Any, t: float, path: Path) -> list[float]:
    """The times to keep after the end of a path."""
    if times is None:
        return [t]
    if isinstance(times, int | np.integer) and not isinstance(times, bool):
        count = integer(times, "times as a number of frames", least=1, most=MOST_TIMES)
        return [float(x) for x in np.linspace(path.end_time, t, count + 1)[1:]]
    grid = numbers(times, "times", increasing=True)
    last = float(path.times[-1]) if len(path) else -np.inf
    if grid and (grid[0] <= last or grid[0] < path.end_time or grid[-1] > t):
        raise InvalidInput(
            f"times must lie after those of the path and up to t, in ({path.end_time:g}, {t:g}], got {shown(grid)}"
        )
    return grid
