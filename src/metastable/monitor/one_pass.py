"""`Room`: the points of a run, place by place, with what is summed over them, in one pass over the model's memory.

Of the chosen tokens x of a text at a place p, with the map onto the sphere s = (x - b) / Gamma (or what stands for
it, see `OntoSphere`):
    points[p, b, i] = s_i(p),    sums[p, b] = sum_i s_i(p),    steps[p, b] = sum_i <s_i(p), s_i(p + 1)>.
A model in single precision on the CPU is read once, by a compiled loop; otherwise tensor arithmetic does the same
where the model runs, the sums are taken at the end of the run, and all of it is brought to the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from metastable.monitor.onto_sphere import OntoSphere
from metastable.monitor.trace import rows_of
from metastable.threads import over_rows

_NANOSECONDS = 0.5
"""Rough cost of one number read, mapped and added up, for the choice of threads."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """The tokens of a batch that are looked at: column[b, i] of the model's tokens where mask[b, i]."""

    column: Integer[Tensor, "b k"]
    mask: Bool[Tensor, "b k"]
    start: Integer[Tensor, "b"]
    """The first token of every text, whatever it is."""

    def to(self, device: torch.device) -> Chosen:
        """The same on the device where the model runs."""
        return Chosen(self.column.to(device), self.mask.to(device), self.start.to(device))


class Room:
    """What is kept of a run."""

    def __init__(self, points: Float[Tensor, "p b k d"], chosen: Chosen) -> None:
        places, b, _, d = points.shape
        self.points = points
        self.first = torch.empty((places, b, d), device=points.device)
        self.sums = torch.empty_like(self.first)
        self.steps = torch.zeros((places - 1, b), device=points.device)
        self.chosen = chosen
        self.fused = points.device.type == "cpu"
        """Whether sums and steps are known."""
        self._full = bool(chosen.mask.all())
        if self.fused:
            picks = (chosen.column, chosen.mask.sum(dim=1), chosen.start)
            kept = (self.points, self.first, self.sums, self.steps)
            self._arrays = tuple(tensor.numpy() for tensor in (*picks, *kept))

    def kept(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Points, first tokens, sums and steps, on the CPU."""
        if not self.fused:
            torch.sum(self.points, dim=2, out=self.sums)
            for step, one, other in zip(self.steps, self.points[:-1], self.points[1:], strict=True):
                torch.linalg.vecdot(one.flatten(1), other.flatten(1), out=step)
        return self.points.cpu(), self.first.cpu(), self.sums.cpu(), self.steps.cpu()

    def take(self, place: int, onto: OntoSphere, x: Float[Tensor, "b t d"]) -> None:
        """Keep the tokens x of a place."""
        self.fused = self.fused and x.dtype == torch.float32 and x.is_contiguous()
        if self.fused:
            self._read(place, onto, x)
            return
        slot, first = self.points[place], self.first[place][:, None]
        onto(rows_of(x, self.chosen.column), slot)
        if not self._full:
            slot.mul_(self.chosen.mask[..., None])
        onto(rows_of(x, self.chosen.start[:, None]), first)

    def _read(self, place: int, onto: OntoSphere, x: Tensor) -> None:
        b, k, d = self.points.shape[1:]
        inverse, shift = onto.arrays
        tokens = x.numpy()

        def work(begin: int, end: int) -> None:
            _read_texts(begin, end, place, tokens, inverse, shift, onto.centred, not onto.exact, *self._arrays)

        over_rows(work, b, cost=_NANOSECONDS * b * k * d)


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
def _onto(row, inverse, shift, centred, scaled, out):  # type: ignore[no-untyped-def]
    square, middle = np.float32(0), np.float32(0)
    if centred:
        for a in range(len(row)):
            middle += row[a]
        middle /= np.float32(len(row))
    if len(inverse):
        for a in range(len(row)):
            s = row[a] * inverse[a] + shift[a]
            square += s * s
            out[a] = s
    else:
        for a in range(len(row)):
            s = row[a] - middle
            square += s * s
            out[a] = s
    if scaled:
        factor = np.float32(1) / max(np.sqrt(square), np.float32(1e-12))
        for a in range(len(row)):
            out[a] *= factor


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
def _read_texts(begin, end, place, x, inverse, shift, centred, scaled, *arrays):  # type: ignore[no-untyped-def]
    column, counts, start, points, first, sums, steps = arrays
    k, d = points.shape[2], points.shape[3]
    at_once = len(inverse) > 0 and not scaled
    nothing = np.zeros(d, np.float32)
    for b in range(begin, end):
        total, moved = sums[place, b], np.float32(0)
        total[:] = 0
        for i in range(counts[b]):
            row, s = x[b, column[b, i]], points[place, b, i]
            before = points[place - 1, b, i] if place else nothing
            if at_once:
                for a in range(d):
                    point = row[a] * inverse[a] + shift[a]
                    s[a] = point
                    total[a] += point
                    moved += point * before[a]
            else:
                _onto(row, inverse, shift, centred, scaled, s)
                for a in range(d):
                    total[a] += s[a]
                    moved += s[a] * before[a]
        for i in range(counts[b], k):
            points[place, b, i, :] = 0
        if place:
            steps[place - 1, b] = moved
        _onto(x[b, start[b]], inverse, shift, centred, scaled, first[place, b])
