"""`solve` of an `Ensemble`: many systems become one path, each by its own steps."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metastable.arguments import shown
from metastable.errors import InvalidInput
from metastable.flows.flow import Flow
from metastable.measure import Ensemble
from metastable.solve.adaptive import Adaptive
from metastable.solve.events import Crossing, Event, crossing
from metastable.solve.frames import InMemory
from metastable.solve.many_steps import rounds
from metastable.solve.methods import choose_stepper
from metastable.solve.observer import Audience, Observer, Run
from metastable.solve.path import Path
from metastable.solve.problem import State, Step
from metastable.solve.stepper import Stepper
from metastable.solve.systems import Round, Systems
from metastable.solve.task import Task


def integrate_many(task: Task, many: Ensemble, guests: Sequence[Observer], max_steps: int | None) -> Path[Ensemble]:
    """The run of all systems from their start to its end; guests, who show progress, see what all have reached."""
    problem, t0 = task.problem(), float(task.parameters["t0"])
    systems = Systems.at_rest(many.points.clone(), t0)
    grid = torch.tensor(task.times, dtype=torch.float64)
    frames = InMemory(grid, many.points, many.mass).frames
    recorder, watch = ManyRecorder(task.times, frames, systems), ManyWatch(task.events, many)
    audience = Audience(guests)
    seen = State(t0, many.points[0])
    audience.begin(Run(task.flow, task.mass, seen, task.t, tuple(task.times), task.stepper.name))
    inside = everywhere if task.events else recorder.inside
    made_rounds = rounds(problem, systems, task.t, max_steps, t_start=t0, bounded=task.bounded, inside=inside)
    for made in made_rounds:
        assert made.round is not None
        watch.look(made)
        recorder.keep(made)
        if guests:
            seen = audience.show(slowest(made, seen, task.t)).end
    recorder.finish(systems)
    sphere = task.flow.spherical
    end = Ensemble(systems.points, many.mass, sphere=sphere, dtype=many.points.dtype)
    record = task.record() | task.flow.record()
    record["statistics"] = {
        "accepted_steps": int(systems.accepted.sum()),
        "rejected_steps": int(systems.rejected.sum()),
        "evaluations": problem.evaluations,
        "steps_of_systems": systems.accepted.tolist(),
    }
    audience.end(None)
    return Path(
        times=grid,
        mass=many.mass,
        end=end,
        end_time=task.t,
        provenance=record,
        events=tuple(sorted(watch.crossings, key=lambda hit: hit.time)),
        sphere=sphere,
        frames=frames,
    )


def many_stepper(
    flow: Flow, method: str | Stepper, step: float | None, observers: Sequence[Any], out: Any
) -> Stepper:
    """The method of a run of many systems; what such a run cannot do is refused."""
    wanted = "adaptive" if isinstance(method, str) and method == "auto" and flow.smooth else method
    stepper = choose_stepper(flow, wanted, step)
    if not isinstance(stepper, Adaptive):
        raise InvalidInput(f"an Ensemble is solved by the method 'adaptive', got {shown(stepper.name)}")
    if observers:
        raise InvalidInput("systems of an Ensemble are at different times, so it takes no observers; use events")
    if out is not None:
        raise InvalidInput("a run of an Ensemble is not streamed to disk; save its path with path.save")
    return stepper


def slowest(systems: Systems, before: State, t_end: float) -> Step:
    """What those who show progress see of a round: the system that is behind all others, and the steps of all."""
    s = int(np.where(systems.running, systems.times, math.inf).argmin())
    t = min(systems.t, t_end)
    end = State(t, systems.points[s], accepted=int(systems.accepted.sum()))
    return Step(before, end, lambda times: [systems.points[s] for _ in times])


def everywhere(which: np.ndarray, _ends: np.ndarray) -> np.ndarray:
    """Events may look inside any step."""
    return np.ones(len(which), dtype=bool)


class ManyRecorder:
    """Keeps the tokens of every system at the save times that its last step has passed."""

    def __init__(self, times: Sequence[float], frames: Tensor, systems: Systems) -> None:
        self.times, self.frames = np.array(times), frames
        self.saved = np.zeros(len(systems.times), dtype=np.int64)
        """How many frames of every system are kept."""
        if bisect.bisect_right(times, systems.t):
            frames[0] = systems.points
            self.saved += 1

    def inside(self, which: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Whether a save time lies inside the steps of these systems, which end at `ends`."""
        next_time = np.append(self.times, math.inf)[self.saved[which]]
        return np.asarray(next_time < ends)

    def keep(self, systems: Systems) -> None:
        """Interpolate at the save times inside the last step of every system."""
        made = systems.round
        assert made is not None
        ends = systems.times[made.which]
        due = np.searchsorted(self.times, ends + 4 * np.spacing(np.abs(ends)), side="right")
        count = due - self.saved[made.which]
        if not count.any():
            return
        picked = np.repeat(np.arange(len(count)), count)
        first = np.repeat(np.cumsum(count) - count, count)
        frame = np.repeat(self.saved[made.which], count) + np.arange(len(picked)) - first
        times, which = self.times[frame], made.which[picked]
        at_end = (times >= ends[picked]) | (ends[picked] - times <= 4 * np.spacing(np.abs(ends[picked])))
        inside = ~at_end
        if at_end.any():
            put(self.frames, frame[at_end], which[at_end], taken(systems.points, which[at_end]))
        if inside.any():
            put(self.frames, frame[inside], which[inside], made.at(picked[inside], times[inside]))
        self.saved[made.which] = due

    def finish(self, systems: Systems) -> None:
        """A system that an event stopped stays where it is."""
        for s in np.flatnonzero(self.saved < len(self.times)):
            self.frames[self.saved[s] :, s] = systems.points[s]


def taken(points: Tensor, which: np.ndarray) -> Tensor:
    """Rows of a tensor; on the CPU by numpy, which does not wait for threads of other processes."""
    if points.is_cpu:
        return torch.from_numpy(points.numpy()[which])
    return points[torch.from_numpy(which).to(points.device)]


def put(frames: Tensor, frame: np.ndarray, which: np.ndarray, points: Tensor) -> None:
    """frames[frame, which] = points."""
    if frames.is_cpu:
        frames.numpy()[frame, which] = points.numpy()
    else:
        index = (torch.from_numpy(x).to(frames.device) for x in (frame, which))
        frames[tuple(index)] = points


class ManyWatch:
    """Looks for events in the last step of every system; one that stops a run stops only its system."""

    def __init__(self, events: Sequence[Event], many: Ensemble) -> None:
        self.events, self.mass = tuple(events), many.mass
        self.crossings: list[Crossing] = []
        self.gaps = np.array([event.gaps(many.points, many.mass) for event in self.events])
        """Observable minus level, of every event and system."""

    def look(self, systems: Systems) -> None:
        """Record the crossings inside the last steps; stop the systems in which an event says so."""
        made = systems.round
        assert made is not None
        if not self.events or not len(made.which):
            return
        points, mass = taken(systems.points, made.which), taken(self.mass, made.which)
        after = np.array([event.gaps(points, mass) for event in self.events])
        before = self.gaps[:, made.which]
        self.gaps[:, made.which] = after
        crossed = (np.sign(before) * np.sign(after) <= 0) & (before != 0)
        for row in np.flatnonzero(crossed.any(axis=0)):
            self._crossings(systems, made, int(row), before[:, row], after[:, row])

    def _crossings(self, systems: Systems, made: Round, row: int, before: np.ndarray, after: np.ndarray) -> None:
        s = int(made.which[row])
        step = step_of(made, row, systems.points[s])
        found = [
            (event, replace(hit, system=s))
            for event, one, other in zip(self.events, before, after, strict=True)
            if (hit := crossing(event, step, float(one), float(other), self.mass[s])) is not None
        ]
        for event, hit in sorted(found, key=lambda pair: pair[1].time):
            self.crossings.append(hit)
            if event.stop:
                systems.running[s] = False
                systems.points[s] = step.at([hit.time])[0]
                systems.times[s] = hit.time
                return


def step_of(made: Round, row: int, points: Tensor) -> Step:
    """The last step of one system, as the events of a single run see it."""

    def interpolate(times: Sequence[float]) -> list[Tensor]:
        asked = np.array(times)
        return list(made.at(np.full(len(asked), row), asked))

    start = State(float(made.start[row]), made.points[int(made.rows[row])])
    return Step(start, State(float(made.end[row]), points), interpolate)
