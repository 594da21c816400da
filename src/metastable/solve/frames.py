"""Where kept frames go: into memory, or to disk as they come; both make a `Path` of them."""

from __future__ import annotations

import os
import shutil
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from metastable.arguments import told
from metastable.errors import SolveError, StorageError
from metastable.measure import Measure
from metastable.solve import checkpoint, storage
from metastable.solve.checkpoint import Checkpoint
from metastable.solve.events import Crossing
from metastable.solve.lock import Lock
from metastable.solve.path import Path, stored


@runtime_checkable
class Frames(Protocol):
    """Takes the frames of a run one by one and makes a `Path` of them."""

    def keep(self, index: int, points: Tensor) -> None:
        """Keep the tokens at saved time number `index`."""
        ...

    def path(
        self,
        saved: int,
        end: Measure,
        end_time: float,
        events: tuple[Crossing, ...],
        provenance: dict[str, Any],
        before: Checkpoint | None = None,
    ) -> Path:
        """The finished path; `before` is where the run stood before its last step."""
        ...


class InMemory:
    """Frames in one tensor (m, n, d)."""

    def __init__(self, times: Tensor, like: Tensor, mass: Tensor) -> None:
        self.times, self.mass = times, mass
        shape = (len(times), *like.shape)
        try:
            self.frames = torch.empty(shape, dtype=like.dtype, device=like.device)
        except RuntimeError:
            size = len(times) * like.numel() * like.element_size() / 2**30
            raise SolveError(
                f"{len(times)} frames of {like.shape[0]} tokens need {size:.3g} GiB of memory; keep fewer times, "
                "or stream them to disk with out="
            ) from None

    def keep(self, index: int, points: Tensor) -> None:
        """Copy the frame into its row."""
        self.frames[index] = points

    def path(
        self,
        saved: int,
        end: Measure,
        end_time: float,
        events: tuple[Crossing, ...],
        provenance: dict[str, Any],
        before: Checkpoint | None = None,
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
            before=before,
        )


class OnDisk:
    """Frames in `<out>.partial/` until the run is whole, then swapped in as `<out>`, under the lock of `out`."""

    def __init__(
        self, lock: Lock, times: Tensor, like: Tensor, mass: Tensor, fingerprint: str, resume: bool
    ) -> None:
        self.lock, self.out = lock, lock.out
        self.partial = f"{self.out}.partial"
        self.store = os.path.join(self.partial, "path.zarr")
        self.checkpoint = os.path.join(self.partial, "checkpoint.npz")
        self.resumed: Checkpoint | None = None
        if resume and os.path.exists(self.checkpoint):
            found = checkpoint.read(self.checkpoint, like.device)
            if found.fingerprint != fingerprint:
                raise StorageError(
                    f"{told(self.partial)} holds an unfinished run with other parameters; delete it, choose "
                    "another out, or pass resume=False"
                )
            self.resumed = found
            try:
                self.group = storage.reopen(self.store, times)
            except Exception as error:  # zarr raises many types for what is not a group
                raise StorageError(
                    f"{told(self.partial)} has a checkpoint but no frames; delete it to start the run anew"
                ) from error
        else:
            storage.refuse_foreign(self.out)
            with storage.writing(self.out):
                shutil.rmtree(self.partial, ignore_errors=True)
                os.makedirs(self.partial)
                self.group = storage.create(self.store, times, like, mass)

    def keep(self, index: int, points: Tensor) -> None:
        """Write one chunk."""
        self.lock.check()
        with storage.writing(self.out):
            self.group["points"][index] = points.cpu().numpy()

    def write(self, point: Checkpoint) -> None:
        """Write a checkpoint."""
        self.lock.check()
        with storage.writing(self.checkpoint):
            point.write(self.checkpoint)

    def path(
        self,
        saved: int,
        end: Measure,
        end_time: float,
        events: tuple[Crossing, ...],
        provenance: dict[str, Any],
        before: Checkpoint | None = None,
    ) -> Path:
        """Declare the group complete, swap it in, and open it."""
        self.lock.check()
        storage.refuse_foreign(self.out)
        state = None if before is None else before.arrays()
        with storage.writing(self.out):
            storage.finish(self.group, end, end_time, saved, events, provenance, state)
            storage.swap_in(self.store, self.out)
            shutil.rmtree(self.partial, ignore_errors=True)
        return stored(self.out)


def finished(
    out: str, fingerprint: str, observers: tuple[str, ...] = (), replaced: str | None = None
) -> Path | None:
    """The same run, if it is already complete at `out`; another run there is an error.

    observers: names of those who look at the new run; one that ended the stored run must be among them.
    replaced: fingerprint of a run that the new one contains, and may replace.
    """
    if not os.path.exists(out):
        return None
    path = stored(out)
    found = path.provenance.get("fingerprint")
    if found != fingerprint:
        if replaced is not None and found == replaced:
            return None
        raise StorageError(
            f"{told(out)} holds another run; choose another out, or replace it with resume=False (--overwrite), "
            "which happens when the new run is complete"
        )
    ended_by = path.provenance.get("ended_by")
    if ended_by is not None and ended_by not in observers:
        raise StorageError(
            f"{told(out)} holds a run that the observer {ended_by} ended at t = {path.end_time:g}; pass such an "
            "observer, choose another out, or replace it with resume=False"
        )
    return path
