"""Checkpoints: the integrator's state in one file, replaced atomically, from which a run goes on bit for bit."""

from __future__ import annotations

import os
import time
import uuid
import zipfile
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from metastable.errors import StorageError
from metastable.solve import storage
from metastable.solve.events import Crossing
from metastable.solve.observer import Observer
from metastable.solve.path import Path
from metastable.solve.problem import State, Step


@dataclass(frozen=True)
class Checkpoint:
    """Where a run stood: its fingerprint, the state, the frames already saved, the events so far."""

    fingerprint: str
    state: State
    saved: int
    events: tuple[Crossing, ...]
    gaps: tuple[float, ...]
    evaluations: int

    def write(self, location: str) -> None:
        """Write beside the file, flush to disk, rename over it."""
        s = self.state
        arrays: dict[str, np.ndarray] = {
            "fingerprint": np.array(self.fingerprint),
            "points": s.points.cpu().numpy(),
            "scalars": np.array([s.t, s.rate, s.step, s.last_error]),
            "counts": np.array([s.accepted, s.rejected, self.saved, self.evaluations]),
            "event_names": np.array([e.name for e in self.events], dtype=np.str_),
            "event_values": np.array([[e.time, e.direction] for e in self.events], dtype=np.float64),
            "gaps": np.array(self.gaps, dtype=np.float64),
        }
        if s.slope is not None:
            arrays["slope"] = s.slope.cpu().numpy()
        aside = f"{location}.{uuid.uuid4().hex[:8]}.part"
        try:
            with open(aside, "wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, location)
        finally:
            if os.path.exists(aside):
                os.remove(aside)


class Checkpoints(Observer):
    """Writes a checkpoint when the last one is older than `every` seconds, and when the run breaks off.

    take: makes the checkpoint of a state, from what the observers before this one have seen.
    """

    def __init__(self, take: Callable[[State], Checkpoint], location: str, every: float) -> None:
        self.take, self.location, self.every = take, location, every
        self.latest: Checkpoint | None = None
        self._written = time.monotonic()

    def step(self, step: Step) -> None:
        """A safe place between two steps. The end that an observer made is none: the run would go on from it."""
        if step.ended:
            return
        self.latest = self.take(step.end)
        if time.monotonic() - self._written >= self.every:
            self._write(self.latest)

    def end(self, path: Path | None) -> None:
        """Keep what was computed when the run breaks off between two checkpoints."""
        if path is None and self.latest is not None:
            self._write(self.latest)

    def _write(self, point: Checkpoint) -> None:
        with storage.writing(self.location):
            point.write(self.location)
        self._written = time.monotonic()


def read(location: str, device: torch.device) -> Checkpoint:
    """The checkpoint in a file."""
    try:
        with np.load(location, allow_pickle=False) as file:
            t, rate, step, last_error = (float(x) for x in file["scalars"])
            accepted, rejected, saved, evaluations = (int(x) for x in file["counts"])
            slope = torch.from_numpy(file["slope"]).to(device) if "slope" in file else None
            state = State(
                t, torch.from_numpy(file["points"]).to(device), slope, rate, step, last_error, accepted, rejected
            )
            events = tuple(
                Crossing(str(name), float(values[0]), int(values[1]))
                for name, values in zip(file["event_names"], file["event_values"], strict=True)
            )
            gaps = tuple(float(g) for g in file["gaps"])
            return Checkpoint(str(file["fingerprint"]), state, saved, events, gaps, evaluations)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise StorageError(
            f"the checkpoint {location!r} cannot be read ({error}); delete it to start the run anew"
        ) from error
