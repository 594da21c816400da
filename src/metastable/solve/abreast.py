"""`solve` of an `Ensemble` with noise: all systems make the same steps side by side, each with its own noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from metastable.errors import InvalidInput
from metastable.flows.common_noise import CommonNoise
from metastable.measure import Ensemble
from metastable.solve.checkpoint import Checkpoint
from metastable.solve.frames import InMemory
from metastable.solve.integrate import integrate
from metastable.solve.methods import choose_stepper
from metastable.solve.observer import Observer
from metastable.solve.path import Path
from metastable.solve.problem import State
from metastable.solve.stepper import Stepper
from metastable.solve.task import Task


def abreast_stepper(
    flow: CommonNoise, method: str | Stepper, step: float | None, events: Sequence[Any], observers: Any, out: Any
) -> Stepper:
    """The method of such a run; what it cannot do is refused."""
    if observers:
        raise InvalidInput("an Ensemble takes no observers")
    if events:
        raise InvalidInput("systems with noise step together, so that an Ensemble of them has no events")
    if out is not None:
        raise InvalidInput("a run of an Ensemble is not streamed to disk; save its path with path.save")
    return choose_stepper(flow, method, step)


def integrate_abreast(
    task: Task, many: Ensemble, guests: Sequence[Observer], max_steps: int | None
) -> Path[Ensemble]:
    """The run of all systems as one of all their tokens."""
    points, mass = many.points.reshape(-1, many.d), many.mass.reshape(-1)
    grid = torch.tensor(task.times, dtype=torch.float64)
    start = Checkpoint(task.fingerprint, State(float(task.parameters["t0"]), points))
    path = integrate(task, start, InMemory(grid, points, mass), guests, max_steps=max_steps)
    assert path.frames is not None
    return Path(
        times=path.times,
        mass=many.mass,
        end=Ensemble(path.end.points.view(many.shape), many.mass, dtype=points.dtype),
        end_time=path.end_time,
        provenance=path.provenance,
        frames=path.frames.view(-1, *many.shape),
    )
