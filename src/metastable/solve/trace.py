"""`Trace`: the accepted steps of a run, and so few of its states that all of them can be made again.

Of K steps every `stride`-th begins with a state that is kept; the steps between are made again from there, one
segment at a time. The stride doubles while the run goes on, so that states and the stages of one segment take
O(sqrt(K)) arrays of the size of the tokens, however many steps there will be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from metastable.solve.problem import Problem, Step

BALANCE = 48
"""States that are kept for each step of a segment, at most: a step that is made again keeps points and attended
means of up to twelve stages, 24 arrays, and twice as many states cost as much memory as the segment."""


@dataclass(frozen=True)
class Interval:
    """The time of an accepted step, and the stretch on which the field was continuous (see `Problem`)."""

    start: float
    end: float
    stretch_start: float
    stretch_end: float

    def enter(self, problem: Problem) -> None:
        """Let the problem stand where the step was made."""
        problem.stretch_start, problem.stretch_end = self.stretch_start, self.stretch_end


class Trace:
    """What is kept of a run while it is made."""

    def __init__(self) -> None:
        self.intervals: list[Interval] = []
        self.kept: list[Float[Tensor, "n d"]] = []
        self.stride = 1

    def add(self, problem: Problem, step: Step) -> None:
        """Remember an accepted step."""
        if len(self.intervals) % self.stride == 0:
            self.kept.append(step.start.points)
            if len(self.kept) > BALANCE * self.stride:
                self.kept = self.kept[::2]
                self.stride *= 2
        self.intervals.append(Interval(step.start.t, step.t, problem.stretch_start, problem.stretch_end))

    def segments(self) -> Iterator[tuple[Float[Tensor, "n d"], list[Interval]]]:
        """The last segment first: the state that it begins with, and its steps; what was given is forgotten."""
        while self.kept:
            first = (len(self.kept) - 1) * self.stride
            yield self.kept.pop(), self.intervals[first:]
            del self.intervals[first:]
