"""Where kept frames go: into memory, or to disk as they come; both make a `Path` of them."""

from __future__ import annotations

import os
import shutil
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from metastable.errors import StorageError
from metastable.measure import Measure
from metastable.solve import checkpoint, storage
from metastable.solve.checkpoint import Checkpoint
from metastable.solve.events import Crossing
from metastable.solve.path import Path, load
from metastable.solve.provenance import SCHEMA_VERSION


@runtime_checkable
class Frames(Protocol):
    """Takes the frames of a run one by one and makes a `Path` of them."""

    def keep(self, index: int, points: Tensor) -> None:
        """Keep the tokens at saved time number `index`."""
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

    def keep(self, index: int, points: Tensor) -> None:
        """Copy the frame into its row."""
        self.frames[index] = points

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

    def __init__(self, out: str, times: Tensor, like: Tensor, mass: Tensor, fingerprint: str, resume: bool) -> None:
        self.out = out
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
                self.group = storage.reopen(self.store)
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

    def keep(self, index: int, points: Tensor) -> None:
        """Write one chunk."""
        with storage.writing(self.out):
            self.group["points"][index] = points.cpu().numpy()

    def path(
        self, saved: int, end: Measure, end_time: float, events: tuple[Crossing, ...], provenance: dict[str, Any]
    ) -> Path:
        """Declare the group complete, swap it in, and open it."""
        assert provenance["schema_version"] == SCHEMA_VERSION
        with storage.writing(self.out):
            storage.finish(self.group, end, end_time, saved, events, provenance)
            storage.swap_in(self.store, self.out)
            shutil.rmtree(self.partial, ignore_errors=True)
        return load(self.out)


def finished(out: str, fingerprint: str, observers: tuple[str, ...] = ()) -> Path | None:
    """The same run, if it is already complete at `out`; another run there is an error.

    observers: names of those who look at the new run; one that ended the stored run must be among them.
    """
    if not os.path.exists(out):
        return None
    path = load(out)
    if path.provenance.get("fingerprint") != fingerprint:
        raise StorageError(
            f"{out!r} holds another run; choose another out, or replace it with resume=False (--overwrite on "
            "the command line), which happens when the new run is complete"
        )
    ended_by = path.provenance.get("ended_by")
    if ended_by is not None and ended_by not in observers:
        raise StorageError(
            f"{out!r} holds a run that the observer {ended_by} ended at t = {path.end_time:g}; pass such an "
            "observer, choose another out, or replace it with resume=False"
        )
    return path
