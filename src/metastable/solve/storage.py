"""Paths on disk: zarr groups, written aside and swapped in whole, so that a crash never costs an earlier result."""

from __future__ import annotations

import json
import os
import shutil
import uuid
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from metastable.arguments import LONGEST_PLACE, told
from metastable.errors import InvalidInput, StorageError
from metastable.measure import Ensemble, Measure
from metastable.solve.events import Crossing
from metastable.solve.provenance import SCHEMA_VERSION

_KIND = "metastable path"


def create(location: str, times: Tensor, like: Tensor, mass: Tensor) -> Any:
    """A new group with room for every frame: one chunk per saved time, so that frames stream to disk.

    Axes have the names that xarray reads, so that `xarray.open_zarr` opens a path as it is.
    """
    *system, token, axis = (*(["system"] if like.ndim == 3 else []), "token", "axis")
    dtype = "float32" if like.dtype == torch.float32 else "float64"
    group = _group(location, mode="w")
    group.create_array("time", data=times.cpu().numpy(), dimension_names=("time",))
    group.create_array("mass", data=mass.cpu().numpy(), dimension_names=(*system, token))
    group.create_array(
        "points",
        shape=(len(times), *like.shape),
        chunks=(1, *like.shape),
        dtype=dtype,
        fill_value=float("nan"),
        dimension_names=("time", *system, token, axis),
    )
    return group


def finish(
    group: Any,
    end: Measure | Ensemble,
    end_time: float,
    saved: int,
    events: tuple[Crossing, ...],
    provenance: dict[str, Any],
    state: dict[str, np.ndarray] | None = None,
) -> None:
    """Write what is known only at the end and declare the group complete.

    state: where the run stood before its last step, as arrays; it goes into a group of its own.
    """
    import zarr

    # Overwriting makes this repeatable: a run that failed right here finishes when it is called again.
    axes = group["points"].metadata.dimension_names[1:]
    group.create_array("end", data=end.points.cpu().numpy(), dimension_names=axes, overwrite=True)
    if state is not None:
        inner = group.create_group("state", overwrite=True)
        for name, values in state.items():
            inner.create_array(name, data=values)
    # Frames that the run did not reach are not there.
    group["points"].resize((saved, *group["points"].shape[1:]))
    group["time"].resize((saved,))
    group.attrs.update(
        {
            "kind": _KIND,
            "schema_version": SCHEMA_VERSION,
            "provenance": _plain(provenance),
            "events": json.dumps([e.fields() for e in events]),
            "end_time": end_time,
            "saved": saved,
            "sphere": end.sphere,
        }
    )
    with warnings.catch_warnings():  # zarr tells that other implementations may ignore the collected metadata
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(group.store)


def save(
    destination: str,
    times: Tensor,
    mass: Tensor,
    frames: Iterable[Tensor],
    end: Measure | Ensemble,
    end_time: float,
    events: tuple[Crossing, ...],
    provenance: dict[str, Any],
    state: dict[str, np.ndarray] | None = None,
) -> None:
    """Write a path beside its destination, then swap it in."""
    destination = os.path.normpath(destination)
    refuse_foreign(destination)
    aside = f"{destination}.{uuid.uuid4().hex[:8]}.part"
    try:
        with writing(destination):
            group = create(aside, times, end.points, mass)
            for index, points in enumerate(frames):
                group["points"][index] = points.cpu().numpy()
            finish(group, end, end_time, len(times), events, provenance, state)
            swap_in(aside, destination)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def read(where: str) -> dict[str, Any]:
    """All of a stored path but its frames, by the names of `Path`."""
    if not os.path.exists(where):
        raise StorageError(f"there is no file or folder {told(where)}")
    try:
        group = _group(where)
        attributes: dict[str, Any] = dict(group.attrs)
    except Exception as error:  # zarr raises many types for what is not a group
        raise StorageError(f"{told(where)} is not a metastable path: {_first_line(error)}") from error
    if attributes.get("kind") != _KIND:
        raise StorageError(f"{told(where)} is a zarr group but not a complete metastable path")
    version = attributes.get("schema_version")
    if not isinstance(version, int):
        raise StorageError(f"{told(where)} has no readable schema version, got {version!r}")
    if version > SCHEMA_VERSION:
        raise StorageError(
            f"{told(where)} has schema version {version}, newer than {SCHEMA_VERSION}, the newest that this "
            "metastable reads; upgrade metastable"
        )
    try:
        saved = int(attributes["saved"])
        mass = torch.from_numpy(np.asarray(group["mass"]))
        end_points = torch.from_numpy(np.asarray(group["end"]))
        return {
            "times": torch.from_numpy(np.asarray(group["time" if version > 1 else "times"][:saved])),
            "mass": mass,
            "end": (Measure if end_points.ndim == 2 else Ensemble)(
                end_points, mass, sphere=bool(attributes["sphere"]), dtype=end_points.dtype
            ),
            "end_time": float(attributes["end_time"]),
            "provenance": json.loads(attributes["provenance"]),
            "events": tuple(Crossing(*e) for e in json.loads(attributes["events"])),
            "sphere": bool(attributes["sphere"]),
        }
    except Exception as error:  # truncated chunks surface as many types, too
        raise StorageError(f"{told(where)} is damaged: {_first_line(error)}") from error


def read_state(location: str, fingerprint: str | None) -> dict[str, np.ndarray] | None:
    """Where a stored run stood before its last step, as arrays; None if that was not stored."""
    try:
        group = _group(location)
        stored = json.loads(str(group.attrs["provenance"])).get("fingerprint")
        state = {name: np.asarray(array) for name, array in group["state"].arrays()} if "state" in group else None
    except Exception as error:
        raise StorageError(f"{told(location)} cannot be read: {_first_line(error)}") from error
    if stored != fingerprint:
        raise StorageError(f"{told(location)} holds another run now")
    return state


def reopen(location: str, times: Tensor) -> Any:
    """The unfinished group of an interrupted run, to write on."""
    group = _group(location, mode="r+", collected=False)
    if group["time"].shape != times.shape:  # the run was interrupted when it was about to be complete
        group.create_array("time", data=times.cpu().numpy(), dimension_names=("time",), overwrite=True)
        group["points"].resize((len(times), *group["points"].shape[1:]))
    return group


def refuse_foreign(destination: str) -> None:
    """Refuse to replace anything that is not a path of ours."""
    if not os.path.exists(destination):
        return
    try:
        ours = dict(_group(destination).attrs).get("kind") == _KIND
    except Exception:  # zarr raises many types for what is not a group
        ours = False
    if not ours:
        raise StorageError(f"{told(destination)} exists and is not a metastable path; choose another name")


def read_frames(location: str, index: int | slice, fingerprint: str | None) -> Tensor:
    """Frames of a stored path, if the run with this fingerprint is still what is stored there."""
    try:
        group = _group(location)
        stored = json.loads(str(group.attrs["provenance"])).get("fingerprint")
        missing = group["points"].nchunks_initialized < int(group.attrs["saved"])
        frames = (
            group["points"][: int(group.attrs["saved"])] if isinstance(index, slice) else group["points"][index]
        )
    except Exception as error:
        raise StorageError(f"{told(location)} cannot be read: {_first_line(error)}") from error
    if stored != fingerprint:
        raise StorageError(f"{told(location)} holds another run now; this path's frames are gone")
    if missing:
        raise StorageError(f"{told(location)} is damaged: frames are missing")
    return torch.from_numpy(np.asarray(frames))


def swap_in(aside: str, destination: str) -> None:
    """Put `aside` at `destination` by renaming; an older result moves away only when the new one is whole."""
    if not os.path.exists(destination):
        os.rename(aside, destination)
        return
    retired = f"{destination}.{uuid.uuid4().hex[:8]}.old"
    os.rename(destination, retired)
    try:
        os.rename(aside, destination)
    except OSError:
        os.rename(retired, destination)
        raise
    if os.path.isdir(retired):
        shutil.rmtree(retired, ignore_errors=True)
    else:
        os.remove(retired)


@contextmanager
def writing(destination: str) -> Iterator[None]:
    """Turn a full disk or a forbidden folder into one sentence."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        reason = error.strerror or _first_line(error)
        raise StorageError(f"cannot write {told(destination)}: {reason}; what was there is untouched") from error


def _plain(provenance: dict[str, Any]) -> str:
    try:
        return json.dumps(provenance, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput("the provenance of a path must be numbers, strings, lists and dicts of them") from None


def _group(location: str, mode: Literal["r", "r+", "w"] = "r", collected: bool | None = None) -> Any:
    import zarr

    return zarr.open_group(location, mode=mode, use_consolidated=collected)


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return text if len(text) <= LONGEST_PLACE else f"{text[: LONGEST_PLACE - 3]}..."
