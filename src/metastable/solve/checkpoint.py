"""Checkpoints: the integrator's state in one file, replaced atomically, from which a run goes on bit for bit."""

from __future__ import annotations

import os
import uuid
import zipfile
from dataclasses import dataclass

import numpy as np
import torch

from metastable.errors import StorageError
from metastable.solve.events import Crossing
from metastable.solve.problem import State


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
