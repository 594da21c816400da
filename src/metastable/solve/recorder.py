"""Where saved frames go: into memory, or to disk as they come, with checkpoints beside them."""

from __future__ import annotations

import os
import shutil
import time
from typing import Any, Protocol, runtime_checkable

import torch
import zarr
from torch import Tensor

from metastable.errors import StorageError
from metastable.measure import Measure
from metastable.solve import checkpoint, storage
from metastable.solve.checkpoint import Checkpoint
from metastable.solve.events import Crossing
from metastable.solve.path import Path
from metastable.solve.provenance import SCHEMA_VERSION


@runtime_checkable
class Recorder(Protocol):
    """Takes the frames of a run one by one and makes a `Path` of them."""

    def frame(self, index: int, points: Tensor) -> None:
        """Keep the tokens at saved time number `index`."""
        ...

    def pause(self, point: Checkpoint, now: bool = False) -> None:
        """A safe place between two steps: write a checkpoint if one is due, or in any case if `now`."""
        ...

    def path(
        self, saved: int, end: Measure, end_time: float, events: tuple[Crossing, ...], provenance: dict[str, Any]
    ) -> Path:
        """The finished path."""
        ...


class InMemory:
    """Frames in one tensor (m, n, d)."""

    def __init__(self, times: Tensor, like: Tensor, mass: Tensor) -> None:
        self.times, self.mass = times, mass
        self.frames = torch.empty((len(times), *like.shape), dtype=like.dtype, device=like.device)

    def frame(self, index: int, points: Tensor) -> None:
        """Copy the frame into its row."""
        self.frames[index] = points

    def pause(self, point: Checkpoint, now: bool = False) -> None:
        """Nothing survives the process, so nothing is written."""

    def path(
        self, saved: int, end: Measure, end_time: float, events: tuple[Crossing, ...], provenance: dict[str, Any]
    ) -> Path:
        """A path that holds its frames."""
        return Path(
            times=self.times[:saved],
            mass=self.mass,
            end=end,
            end_time=end_time,
            provenance=provenance,
            events=events,
            sphere=end.sphere,
            frames=self.frames[:saved],
        )


class OnDisk:
    """Frames in `<out>.partial/` until the run is whole, then swapped in as `<out>`."""

    def __init__(
        self, out: str, times: Tensor, like: Tensor, mass: Tensor, fingerprint: str, every: float, resume: bool
    ) -> None:
        self.out, self.every = out, every
        self.partial = f"{out}.partial"
        self.store = os.path.join(self.partial, "path.zarr")
        self.checkpoint = os.path.join(self.partial, "checkpoint.npz")
        self.resumed: Checkpoint | None = None
        if resume and os.path.exists(self.checkpoint):
            found = checkpoint.read(self.checkpoint, like.device)
            if found.fingerprint != fingerprint:
                raise StorageError(
                    f"{self.partial!r} holds an unfinished run with other parameters; delete it, choose another "
                    "out, or pass resume=False"
                )
            self.resumed = found
            try:
                self.group: Any = zarr.open_group(self.store, mode="r+")
            except Exception as error:  # zarr raises many types for what is not a group
                raise StorageError(
                    f"{self.partial!r} has a checkpoint but no frames; delete it to start the run anew"
                ) from error
        else:
            storage.refuse_foreign(out)
            with storage.writing(out):
                shutil.rmtree(self.partial, ignore_errors=True)
                os.makedirs(self.partial)
                self.group = storage.create(self.store, times, like, mass)
        self._last = time.monotonic()

    @staticmethod
    def finished(out: str, fingerprint: str) -> Path | None:
        """The same run, if it is already complete at `out`; another run there is an error."""
        if not os.path.exists(out):
            return None
        path = storage.load(out)
        if path.provenance.get("fingerprint") != fingerprint:
            raise StorageError(
                f"{out!r} holds another run; choose another out, or replace it with resume=False (--overwrite on "
                "the command line), which happens when the new run is complete"
            )
        return path

    def frame(self, index: int, points: Tensor) -> None:
        """Write one chunk."""
        with storage.writing(self.out):
            self.group["points"][index] = points.cpu().numpy()

    def pause(self, point: Checkpoint, now: bool = False) -> None:
        """Write a checkpoint when the last one is older than `every` seconds, or `now`."""
        if now or time.monotonic() - self._last >= self.every:
            with storage.writing(self.checkpoint):
                point.write(self.checkpoint)
            self._last = time.monotonic()

    def path(
        self, saved: int, end: Measure, end_time: float, events: tuple[Crossing, ...], provenance: dict[str, Any]
    ) -> Path:
        """Declare the group complete, swap it in, and open it."""
        assert provenance["schema_version"] == SCHEMA_VERSION
        with storage.writing(self.out):
            storage.finish(self.group, end, end_time, saved, events, provenance)
            storage.swap_in(self.store, self.out)
            shutil.rmtree(self.partial, ignore_errors=True)
        return storage.load(self.out)
