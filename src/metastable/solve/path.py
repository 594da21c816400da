"""`Path`: the tokens at the chosen times, with the record of where they come from."""

from __future__ import annotations

import bisect
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, overload

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import flag, instance, integer, number, place, sequence, shown
from metastable.errors import InvalidInput
from metastable.flows.flow import Flow
from metastable.measure import Ensemble, Measure
from metastable.solve import storage
from metastable.solve.checkpoint import Checkpoint
from metastable.solve.events import Crossing, Event
from metastable.solve.lock import Lock

if TYPE_CHECKING:
    import xarray
    from typing_extensions import TypeVar

    R = TypeVar("R", bound=Measure | Ensemble, default=Measure)
else:
    from typing import TypeVar

    R = TypeVar("R")

SAME_TIME = 1e-12
"""Part of the largest time within which two times are one: what rounding makes of a time that is computed twice."""


Continuation = Callable[..., "Path"]
"""Whoever can go on with a path: takes it and what `Path.extend` was given, and returns it longer."""


@dataclass(frozen=True, eq=False)
class Path(Generic[R]):
    """Tokens (m, n, d) at increasing times (m,), with fixed masses (n,); of an `Ensemble` (m, b, n, d) and (b, n).

    A path is a sequence of measures: `len(path)`, `path[i]`, `for rho in path`. `end` is the measure at the last
    time that was computed (the final time, or the time of the event that stopped the run), whether or not it is one
    of the saved times. Of an ensemble `path[i]` and `end` are Ensembles; a system that an event stopped stays where
    it was then, and `end_times` says when. A path that lives in a store reads its frames from there: `path[i]` one
    of them, `points` all of them.
    """

    times: Float[Tensor, "m"]
    mass: Float[Tensor, "*b n"]
    end: R
    end_time: float
    provenance: dict[str, Any]
    events: tuple[Crossing, ...] = ()
    sphere: bool = True
    frames: Float[Tensor, "m *b n d"] | None = field(default=None, repr=False)
    store: str | None = None
    before: Checkpoint | None = field(default=None, repr=False)
    """Where the run stood before its last step, if it is known; a stored path has it in its store."""
    continuation: Continuation | None = field(default=None, repr=False)
    """What `extend` calls."""

    def __post_init__(self) -> None:
        if not isinstance(self.end, Measure | Ensemble):
            raise InvalidInput(f"end must be a Measure or an Ensemble, got {shown(self.end)}")
        shape = tuple(self.end.points.shape)
        for name, dimensions, expected in (("times", 1, None), ("mass", len(shape) - 1, shape[:-1])):
            value = getattr(self, name)
            if not (
                isinstance(value, Tensor) and value.ndim == dimensions and expected in (None, tuple(value.shape))
            ):
                raise InvalidInput(f"{name} of a Path must be a tensor of {dimensions} axes, got {shown(value)}")
        if self.frames is not None and not isinstance(self.frames, Tensor):
            raise InvalidInput(f"frames of a Path must be a tensor, got {shown(self.frames)}")
        if self.frames is not None and self.frames.shape != (len(self.times), *shape):
            axes = ", ".join(str(size) for size in shape)
            raise InvalidInput(
                f"frames must be one per time, ({len(self.times)}, {axes}), got {shown(self.frames)}"
            )
        if self.frames is None and self.store is None:
            raise InvalidInput("a Path needs its frames, or the store that has them, got neither")
        number(self.end_time, "end_time")
        instance(self.provenance, "provenance", dict, "a dict")
        sequence(self.events, "events", Crossing, "Crossings")
        flag(self.sphere, "sphere")

    @cached_property
    def points(self) -> Float[Tensor, "m *b n d"]:
        """All saved tokens (m, n, d) or (m, b, n, d); a stored path reads them from disk on first use."""
        if self.frames is not None:
            return self.frames
        assert self.store is not None
        return storage.read_frames(self.store, slice(None), self.provenance.get("fingerprint"))

    def measure(self, index: int | None = None, *, t: float | None = None) -> R:
        """The tokens at saved time number `index` (negative counts from the last), or at the saved time t."""
        if (index is None) == (t is None):
            raise InvalidInput("a measure of a path is asked for by its index or by its time t=, one of them")
        m = len(self.times)
        index = self._index_at(t) if index is None else integer(index, "index")
        if not -m <= index < m:
            raise InvalidInput(f"the path has {m} saved times, got index {shown(index)}")
        points = self.frame(index % m)
        return type(self.end)(points, self.mass, sphere=self.sphere, dtype=points.dtype)

    @property
    def end_times(self) -> Float[Tensor, "*b"]:
        """When each system of an ensemble ended: at the end of the run, or when an event stopped it."""
        stopping = {e["name"] for e in self.provenance.get("parameters", {}).get("events", ()) if e.get("stop")}
        ends = torch.full(self.mass.shape[:-1], self.end_time, dtype=torch.float64)
        for hit in self.events:
            if hit.system is not None and hit.name in stopping:
                ends[hit.system] = min(hit.time, float(ends[hit.system]))
        return ends

    def event_times(self, name: str) -> Float[Tensor, "*b"]:
        """When the event of that name happened first, in every system of an ensemble; NaN where it did not."""
        name = instance(name, "name", str, "the name of an event")
        first = torch.full(self.mass.shape[:-1], math.nan, dtype=torch.float64)
        for hit in reversed(self.events):
            if hit.name == name:
                first[() if hit.system is None else hit.system] = hit.time
        return first

    def frame(self, index: int) -> Float[Tensor, "*b n d"]:
        """The tokens at saved time number `index` >= 0, to the bit, as a tensor."""
        index = integer(index, "index", least=0, most=len(self.times) - 1)
        if self.frames is None and self.store is not None and "points" not in self.__dict__:
            return storage.read_frames(self.store, index, self.provenance.get("fingerprint"))
        return self.points[index]

    def _index_at(self, t: Any) -> int:
        t, saved = number(t, "t"), self.times.tolist()
        at = bisect.bisect_left(saved, t)
        near = sorted(range(max(at - 1, 0), min(at + 1, len(saved))), key=lambda i: abs(saved[i] - t))
        if near and abs(saved[near[0]] - t) <= SAME_TIME * max(abs(saved[0]), abs(saved[-1])):
            return near[0]
        known = " and ".join(repr(saved[i]) for i in sorted(near))
        raise InvalidInput(f"t = {t!r} is no saved time; the nearest are {known}: give it to solve in times=")

    def __len__(self) -> int:
        return len(self.times)

    @overload
    def __getitem__(self, index: int) -> R: ...

    @overload
    def __getitem__(self, index: slice) -> list[R]: ...

    def __getitem__(self, index: int | slice) -> R | list[R]:
        """The measure at a saved time, or those of a slice."""
        if not isinstance(index, slice):
            return self.measure(integer(index, "index"))
        try:
            chosen = range(*index.indices(len(self)))
        except (TypeError, ValueError):
            raise InvalidInput(f"a slice of a path must be of whole numbers, got {shown(index)}") from None
        return [self.measure(i) for i in chosen]

    def __iter__(self) -> Iterator[R]:
        """The measures at the saved times, read one by one."""
        return (self.measure(index) for index in range(len(self)))

    def extend(
        self,
        t: float,
        times: Any = None,
        *,
        flow: Flow | None = None,
        events: Sequence[Event] | None = None,
        observers: Sequence[Any] = (),
        progress: Any = False,
        max_steps: int | None = None,
        out: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 30.0,
    ) -> Path:
        """The same run up to a later time t, at the digits of one run that was asked for t at once.

        times: those to keep after the end of this path: given, a number of equidistant ones, or t alone.
        flow: needed where a path was loaded and its record does not hold its whole flow (a schedule, a flow of
            one's own, factors of low rank, d > 16).
        events: needed where a path was loaded or was stopped by an event: those that count from here on, or [].
        observers, progress, max_steps, out, checkpoint_every: as in `solve`; `out` may be the store of this path,
            which is replaced when the longer run is complete.

        The digits are not quite those of one run where that run would have chosen its steps by its final time: the
        method "exact" with events, and a schedule whose time scale is found by probing.

        >>> import metastable as ms
        >>> w = ms.AttentionWeights(V=[[1.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
        >>> flow = ms.SelfAttention(w, beta=2.0)
        >>> path = ms.solve(flow, ms.sphere.uniform(5, 2, seed=1), 1.0).extend(2.0)
        >>> once = ms.solve(flow, ms.sphere.uniform(5, 2, seed=1), 2.0, times=[0.0, 1.0, 2.0])
        >>> bool((path.points == once.points).all())
        True
        """
        if isinstance(self.end, Ensemble):
            raise InvalidInput("a path of an Ensemble is not extended; solve from path.end with t0=")
        if self.continuation is None:
            raise InvalidInput(
                "this path was not made by solve and cannot be extended; solve from path.end with t0="
            )
        return self.continuation(
            self,
            t,
            times,
            flow=flow,
            events=events,
            observers=observers,
            progress=progress,
            max_steps=max_steps,
            out=out,
            checkpoint_every=checkpoint_every,
        )

    def last_state(self) -> Checkpoint | None:
        """Where the run stood before its last step, if that is known."""
        if self.before is not None or self.store is None:
            return self.before
        state = storage.read_state(self.store, self.provenance.get("fingerprint"))
        return None if state is None else Checkpoint.of(state, self.mass.device)

    def save(self, destination: str | os.PathLike[str]) -> None:
        """Write the path as a zarr group; atomic: what was at `destination` stays until the new one is whole."""
        where = os.path.normpath(place(destination, "destination"))
        before = self.last_state()
        frames = (self.frame(index) for index in range(len(self)))
        ends = (self.end, self.end_time, self.events, self.provenance, None if before is None else before.arrays())
        with Lock(where, str(self.provenance.get("fingerprint"))):
            storage.save(where, self.times, self.mass, frames, *ends)

    def to_xarray(self) -> xarray.Dataset:
        """Dataset with `points` (time, token, axis), `mass` (token,), and the provenance as attributes.

        Of an ensemble, both have the axis `system` before that of the tokens.
        """
        import json

        import xarray

        systems = ("system",) if isinstance(self.end, Ensemble) else ()
        return xarray.Dataset(
            {
                "points": (("time", *systems, "token", "axis"), self.points.cpu().numpy()),
                "mass": ((*systems, "token"), self.mass.cpu().numpy()),
            },
            coords={"time": self.times.cpu().numpy()},
            attrs={"provenance": json.dumps(self.provenance, sort_keys=True), "end_time": self.end_time},
        )

    def __repr__(self) -> str:
        span = f"t = {float(self.times[0]):g} .. {float(self.times[-1]):g}" if len(self) else "no saved times"
        where = f", stored in {self.store}" if self.store else ""
        systems = f"{len(self.end)} systems of " if isinstance(self.end, Ensemble) else ""
        return f"Path({len(self)} times, {span}, {systems}{self.end.n} tokens in R^{self.end.d}{where})"


def stored(location: str) -> Path:
    """The path in a store; its frames stay there until they are asked for."""
    return Path(**storage.read(location), store=location)
