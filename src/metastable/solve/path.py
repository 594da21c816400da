"""`Path`: the tokens at the chosen times, with the record of where they come from."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from metastable.errors import InvalidInput
from metastable.measure import Measure
from metastable.solve import storage
from metastable.solve.events import Crossing

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True, eq=False)
class Path:
    """Tokens (m, n, d) at increasing times (m,), with fixed masses (n,).

    `end` is the measure at the last time that was computed (the final time, or the time of the event that stopped
    the run), whether or not it is one of the saved times. A path that lives in a store reads its frames from
    there: `measure(i)` one of them, `points` all of them.
    """

    times: Float[Tensor, "m"]
    mass: Float[Tensor, "n"]
    end: Measure
    end_time: float
    provenance: dict[str, Any]
    events: tuple[Crossing, ...] = ()
    sphere: bool = True
    frames: Float[Tensor, "m n d"] | None = field(default=None, repr=False)
    store: str | None = None

    @cached_property
    def points(self) -> Float[Tensor, "m n d"]:
        """All saved tokens (m, n, d); a stored path reads them from disk on first use."""
        if self.frames is not None:
            return self.frames
        assert self.store is not None
        return storage.read_frames(self.store, slice(None), self.provenance.get("fingerprint"))

    def measure(self, index: int) -> Measure:
        """The tokens at saved time number `index` (negative counts from the last)."""
        m = len(self.times)
        if not -m <= index < m:
            raise InvalidInput(f"the path has {m} saved times, got index {index}")
        if self.frames is None and self.store is not None and "points" not in self.__dict__:
            points = storage.read_frames(self.store, index % m, self.provenance.get("fingerprint"))
        else:
            points = self.points[index]
        return Measure(points, self.mass, sphere=self.sphere, dtype=points.dtype)

    def __len__(self) -> int:
        return len(self.times)

    def save(self, destination: str | os.PathLike[str]) -> None:
        """Write the path as a zarr group; atomic: what was at `destination` stays until the new one is whole."""
        frames = (self.measure(index).points for index in range(len(self)))
        ends = (self.end, self.end_time, self.events, self.provenance)
        storage.save(os.fspath(destination), self.times, self.mass, frames, *ends)

    def to_xarray(self) -> xarray.Dataset:
        """Dataset with `points` (time, token, axis), `mass` (token,), and the provenance as attributes."""
        import json

        import xarray

        return xarray.Dataset(
            {
                "points": (("time", "token", "axis"), self.points.cpu().numpy()),
                "mass": (("token",), self.mass.cpu().numpy()),
            },
            coords={"time": self.times.cpu().numpy()},
            attrs={"provenance": json.dumps(self.provenance, sort_keys=True), "end_time": self.end_time},
        )

    def __repr__(self) -> str:
        span = f"t = {float(self.times[0]):g} .. {float(self.times[-1]):g}" if len(self) else "no saved times"
        where = f", stored in {self.store}" if self.store else ""
        return f"Path({len(self)} times, {span}, {self.end.n} tokens in R^{self.end.d}{where})"


def load(location: str | os.PathLike[str]) -> Path:
    """Read a path that `Path.save` or `solve(out=...)` wrote; its frames stay on disk until they are asked for."""
    where = os.fspath(location)
    return Path(**storage.read(where), store=where)
