"""`Checkpoint`: the integrator's state in one file, replaced atomically, from which a run goes on bit for bit."""

from __future__ import annotations

import json
import os
import uuid
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from metastable.arguments import told
from metastable.errors import StorageError
from metastable.solve.events import Crossing
from metastable.solve.problem import State


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Where a run stood: its fingerprint, the state, the frames already saved, the events and the flow's record."""

    fingerprint: str
    state: State
    saved: int = 0
    events: tuple[Crossing, ...] = ()
    gaps: tuple[float, ...] = ()
    evaluations: int = 0
    record: Mapping[str, Any] = field(default_factory=dict)

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it as arrays of numbers."""
        s = self.state
        events = [e.fields() for e in self.events]
        words = json.dumps([self.fingerprint, events, self.gaps, self.record])
        arrays: dict[str, np.ndarray] = {
            "points": s.points.cpu().numpy(),
            "scalars": np.array([s.t, s.rate, s.step, s.last_error]),
            "counts": np.array([s.accepted, s.rejected, self.saved, self.evaluations]),
            "words": np.frombuffer(words.encode(), dtype=np.uint8),
        }
        return arrays if s.slope is None else arrays | {"slope": s.slope.cpu().numpy()}

    @classmethod
    def of(cls, arrays: Mapping[str, Any], device: torch.device) -> Checkpoint:
        """The checkpoint that gave these arrays."""
        t, rate, step, last_error = (float(x) for x in arrays["scalars"])
        accepted, rejected, saved, evaluations = (int(x) for x in arrays["counts"])
        fingerprint, events, gaps, record = json.loads(bytes(arrays["words"]))
        points, slope = (
            torch.from_numpy(np.array(arrays[name])).to(device) if name in arrays else None
            for name in ("points", "slope")
        )
        assert points is not None
        state = State(t, points, slope, rate, step, last_error, accepted, rejected)
        crossings = tuple(Crossing(*e) for e in events)
        return cls(fingerprint, state, saved, crossings, tuple(gaps), evaluations, record)

    def write(self, location: str) -> None:
        """Write beside the file, flush to disk, rename over it."""
        aside = f"{location}.{uuid.uuid4().hex[:8]}.part"
        try:
            with open(aside, "wb") as file:
                np.savez(file, **self.arrays())  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, location)
        finally:
            if os.path.exists(aside):
                os.remove(aside)

    def __repr__(self) -> str:
        return f"Checkpoint({self.state!r}, {self.saved} frames saved)"


def read(location: str, device: torch.device) -> Checkpoint:
    """The checkpoint in a file."""
    try:
        with np.load(location, allow_pickle=False) as file:
            return Checkpoint.of(file, device)
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0][:60] if str(error) else type(error).__name__
        raise StorageError(
            f"the checkpoint {told(location)} cannot be read ({reason}); delete it to start the run anew"
        ) from error
