"""`RecordedTrial`: all stages of a step on a GPU as one graph of launches, which the host starts as a whole.

With ten thousand tokens an attention takes a quarter of a millisecond, and the host several times as long to launch
the kernels of a stage one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from metastable import rowwise
from metastable.flows.drift import Velocity
from metastable.solve.controller import SHARE
from metastable.solve.problem import Problem
from metastable.solve.tableau import Pair
from metastable.solve.trial import Made

MOST_PAIRS = 2e10
"""Pairs of tokens above which launches cost nothing beside the attention, and a graph would only hold memory."""
AFTER = 2
"""Steps that a run makes before its trial is recorded: recording takes as long as a few of them."""

Field = Callable[[Float[Tensor, "n d"]], Float[Tensor, "n d"]]


class RecordedTrial:
    """k_i = v(x + h sum_j a_ij k_j),   y = x + h sum_j b_j k_j,   k_end = v(y),   and the error of the step.

    field: v, a function of launches alone. memory: k, whose rows are those of the stepper. rows: a_ij and, as the
    last one, b_j. errors, damping: as in `rowwise.damped`; allowed: what the error may be.
    """

    def __init__(
        self,
        field: Field,
        memory: Float[Tensor, "s n d"],
        rows: Sequence[Tensor],
        errors: Float[Tensor, "2 e"],
        damping: float,
        allowed: float,
    ) -> None:
        self.field, self.memory, self.damping, self.allowed = field, memory, damping, allowed
        self.rows, self.errors = [row.to(memory) for row in rows], errors.to(memory)
        self.start, self.h = torch.zeros_like(memory[0]), memory.new_zeros(())
        self.points, self.error = self.start, self.h
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, points: Float[Tensor, "n d"], slope: Float[Tensor, "n d"], h: float) -> Made:
        """A step of size h from points whose velocity is the first row of the memory."""
        self.start.copy_(points)
        self.h.fill_(h)
        if self.graph is None:
            self._record()
        assert self.graph is not None
        self.graph.replay()
        error = float(self.error) / self.allowed
        end = Velocity(self.memory[len(self.rows) - 1], None)
        error = error if math.isfinite(error) else math.inf
        return Made(self.points.clone(), end, error, len(self.rows) - 1)

    def stages(self, points: Tensor, slope: Tensor, h: float) -> None:
        """They are in the memory."""
        return None

    def launch(self) -> None:
        """The step, launch by launch."""
        k, x, end = self.memory, self.start, len(self.rows) - 1
        for stage in range(1, end + 1):
            y = rowwise.combine(x, k[:stage], self.h * self.rows[stage][:stage], unit=True)
            k[stage] = self.field(y)
        used = self.errors.shape[1]
        self.points, self.error = y, rowwise.damped(y, k[:used], self.h * self.errors, self.damping)

    def _record(self) -> None:
        """Launch the step once, so that all kernels are compiled, and once more into a graph."""
        stream = torch.cuda.Stream(self.start.device)
        stream.wait_stream(torch.cuda.current_stream(self.start.device))
        with torch.cuda.stream(stream):
            self.launch()
        torch.cuda.current_stream(self.start.device).wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.launch()


def recorded_trial(problem: Problem, points: Tensor, memory: Tensor, pair: Pair) -> RecordedTrial | None:
    """The trial of this run as a graph of launches; None where the host must see what it does."""
    if len(points) ** 2 > MOST_PAIRS or not problem.flow.spherical:
        return None
    field = problem.flow.launched(points, problem.mass)
    if field is None:
        return None
    allowed = SHARE * (problem.atol + problem.rtol)
    return RecordedTrial(field, memory, (*pair.stages, pair.weights), pair.errors, pair.damping, allowed)
