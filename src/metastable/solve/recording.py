"""`Recording`: the problem of a run whose steps are to be taken back, which remembers where its field was asked.

A stepper asks for the field at the points of every stage, and whoever takes the step back needs no more than these
points and what was found there: a step that was just made need not be made again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable import rowwise
from metastable.arguments import integer
from metastable.flows.drift import Velocity
from metastable.flows.pullback import Pullback
from metastable.solve.problem import Problem, Step


@dataclass(frozen=True, eq=False)
class Stage:
    """Where the field was asked, what it answered, and how long the row was before it was normalised."""

    points: Float[Tensor, "n d"]
    length: Float[Tensor, "n 1"] | None
    """None where nothing was normalised."""
    pullback: Pullback


@dataclass(frozen=True, eq=False)
class StackedStages(Sequence[Stage]):
    """Stages whose numbers are in one piece of memory: as objects they would cost more to keep than to compute."""

    first: Stage
    points: Float[Tensor, "s n d"]
    length: Float[Tensor, "s n 1"]
    mean: Float[Tensor, "s n d"]
    log_partition: Float[Tensor, "s n"]
    pullback: Callable[[Tensor, Tensor, Tensor], Pullback]
    """The field at points from attended means and log Z."""
    order: np.ndarray | None = None
    """(n,): which token each row is, of all stages but the first; None: that of its number."""

    def __len__(self) -> int:
        return 1 + len(self.points)

    def __getitem__(self, index: Any) -> Any:
        number = range(len(self))[index] - 1
        if number < 0:
            return self.first
        rows = (part[number] for part in (self.points, self.length, self.mean, self.log_partition))
        points, length, mean, log_partition = (
            rows if self.order is None else (put_back(r, self.order) for r in rows)
        )
        return Stage(points, length, self.pullback(points, mean, log_partition))


def put_back(rows: Float[Tensor, "n *c"], order: np.ndarray) -> Float[Tensor, "n *c"]:
    """Row i at place order[i]."""
    found = torch.empty_like(rows)
    found[torch.from_numpy(order)] = rows
    return found


@dataclass(frozen=True, eq=False)
class Tape:
    """A step with all that its transpose needs."""

    h: float
    stages: Sequence[Stage]
    points: Float[Tensor, "n d"]
    """The tokens at its end: bit for bit those of the run, or, made again in another order, to the digits of
    attention."""
    length: Float[Tensor, "n 1"] | None

    @property
    def numbers(self) -> int:
        """How many it holds, about: points and attended means of every stage."""
        first = self.stages[0]
        return len(self.stages) * (1 + max(len(first.pullback.heads), 1)) * first.points.numel()


class Asked(NamedTuple):
    """When and where the field was asked, and what it answered."""

    t: float
    points: Tensor
    pullback: Pullback


@dataclass(repr=False)
class Recording(Problem):
    """A `Problem` whose field is asked together with its transpose, and which can tell the stages of a step.

    The field and its digits are those of `Problem`.
    """

    count: int = 1
    """Stages of a step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.count = integer(self.count, "count", least=1)
        self._asked: deque[Stage] = deque(maxlen=self.count)
        """Where the field was asked last: the stages of a step but its first, and maybe its end."""
        self._known: Asked | None = None
        """At the state that the run has reached."""
        self._reached: Tensor | None = None
        """The tokens of that state."""
        self._moved: tuple[Tensor, Tensor] | None = None
        """Rows that were normalised last, and their lengths before."""
        self._stacked: Callable[[Stage], StackedStages] | None = None
        """The stages of the step that was made last, from its first, if it was made as a whole."""

    def pullback(self, t: float, points: Float[Tensor, "n d"]) -> Pullback:
        """The field with its transpose, at a state of the run: asked twice, it is found once."""
        known = self._known
        if known is None or known.points is not points or known.t != self._inside(t):
            known = self._known = Asked(self._inside(t), points, super().pullback(t, points))
        return known.pullback

    def velocity(self, t: float, points: Float[Tensor, "n d"], out: Float[Tensor, "n d"] | None = None) -> Velocity:
        """The field, which is remembered."""
        state = self._reached if self._known is None else self._known.points
        if state is None or points is state:  # what is asked first is the state that the run begins with
            found = self.pullback(t, points)
        else:
            found = super().pullback(t, points)
            self.remember(points, found)
        return Velocity(self.flow._projected(points, found.drift, out), found.drift.lipschitz)

    def remember(self, points: Float[Tensor, "n d"], found: Pullback) -> None:
        """The field at points which are no state of the run."""
        self._asked.append(Stage(points, self._length(points), found))

    def remember_step(self, stages: Callable[[Stage], StackedStages]) -> None:
        """A step that was made as a whole: all its stages, from the first."""
        self._stacked = stages

    def normalised(self, points: Float[Tensor, "n d"], lengths: Float[Tensor, "n 1"]) -> None:
        """Rows that were so long before."""
        self._moved = points, lengths

    def combine(
        self, points: Float[Tensor, "n d"], stages: Float[Tensor, "s n d"], weights: Float[Tensor, "s"]
    ) -> Float[Tensor, "n d"]:
        """x + sum_j w_j k_j, back on the sphere; its length before is remembered."""
        if not self.flow.spherical:
            return super().combine(points, stages, weights)
        lengths = points.new_empty(len(points))
        moved = rowwise.combine(points, stages, weights, unit=True, lengths=lengths)
        self.normalised(moved, lengths[:, None])
        return moved

    def retract(self, points: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Back to the sphere; the length before is remembered."""
        moved = super().retract(points)
        if self.flow.spherical:
            self.normalised(moved, torch.linalg.vector_norm(points, dim=1, keepdim=True))
        return moved

    def tape(self, step: Step) -> Tape | None:
        """The step that was made just now; None where its stages were not asked for one by one."""
        start, end, first, asked = step.start, step.end, self._known, list(self._asked)
        ended = bool(asked) and asked[-1].points is end.points
        last = asked.pop() if ended else None
        stages, length, stacked = asked[len(asked) - self.count + 1 :], self._length(end.points), self._stacked
        self._asked.clear()
        self._stacked = None
        self._reached = end.points
        self._known = None if last is None else Asked(self._inside(end.t), end.points, last.pullback)
        if first is None or first.points is not start.points or first.t != self._inside(start.t):
            return None
        if self.flow.spherical and length is None:
            return None
        begin = Stage(start.points, None, first.pullback)
        whole: Sequence[Stage] = (begin, *stages) if stacked is None else stacked(begin)
        return Tape(end.t - start.t, whole, end.points, length) if len(whole) == self.count else None

    def _length(self, points: Tensor) -> Tensor | None:
        return self._moved[1] if self._moved is not None and self._moved[0] is points else None
