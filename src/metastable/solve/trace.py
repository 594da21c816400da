"""`Trace`: the accepted steps of a run, and so few of its states that all of them can be made again.

Of K steps every `stride`-th begins with a state that is kept; the steps between are made again from there, one
segment at a time. The stride doubles while the run goes on, so that states and the stages of one segment take
O(sqrt(K)) arrays of the size of the tokens, however many steps there will be. The stages of the last O(sqrt(K))
steps, or of as many as take little memory, are kept as they were computed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from metastable.solve.problem import Problem, Step
from metastable.solve.recording import Tape

BALANCE = 48
"""States that are kept for each step of a segment, at most: a step that is made again keeps points and attended
means of up to twelve stages, 24 arrays, and twice as many states cost as much memory as the segment."""
COMPILED_BALANCE = 256
"""The same where steps are taken back as wholes, and a segment keeps no stages but states alone."""
LITTLE, MUCH = 1 << 22, 1 << 25
"""Numbers, 32 and 256 MB: stages of the last steps are kept while they take no more than the first, and those of
`MORE` (1 + sqrt(K)) of K steps while they take no more than the second."""
MORE = 3.0
"""All of nine steps are kept, and three quarters of twenty-three: a step that is made again costs a third of
taking it back, and with sqrt(K) + 3 kept steps a gradient in 64 dimensions took five runs
(benchmarks/gradient.py)."""


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


class Segment(NamedTuple):
    """Steps that follow each other, the state that they begin with, and the last of them as they were made."""

    points: Float[Tensor, "n d"]
    intervals: list[Interval]
    tapes: list[Tape]


class Trace:
    """What is kept of a run while it is made."""

    def __init__(self, balance: int = BALANCE) -> None:
        self.balance = balance
        self.intervals: list[Interval] = []
        self.kept: list[Float[Tensor, "n d"]] = []
        self.tapes: deque[Tape] = deque()
        self.stride = 1

    def add(self, problem: Problem, step: Step, tape: Tape | None = None) -> None:
        """Remember an accepted step, with its stages if they are known."""
        if len(self.intervals) % self.stride == 0:
            self.kept.append(step.start.points)
            if len(self.kept) > self.balance * self.stride:
                self.kept = self.kept[::2]
                self.stride *= 2
        self.intervals.append(Interval(step.start.t, step.t, problem.stretch_start, problem.stretch_end))
        if tape is None:
            self.tapes.clear()
            return
        self.tapes.append(tape)
        if len(self.tapes) > self._most_tapes(max(tape.numbers, 1)):
            self.tapes.popleft()

    def _most_tapes(self, numbers: int) -> int:
        """How many are kept of so many numbers each."""
        root = int(MORE * (1 + math.sqrt(len(self.intervals))))
        return max(self.stride, LITTLE // numbers, min(root, MUCH // numbers))

    def segments(self) -> Iterator[Segment]:
        """The last segment first; what was given is forgotten."""
        while self.kept:
            first = (len(self.kept) - 1) * self.stride
            intervals = self.intervals[first:]
            tapes = [self.tapes.pop() for _ in range(min(len(intervals), len(self.tapes)))]
            del self.intervals[first:]
            yield Segment(self.kept.pop(), intervals, tapes[::-1])
