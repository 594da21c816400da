"""`WideTrial`: steps of tokens in many dimensions on the CPU, in memory that is kept from stage to stage.

With a hundred to two thousand tokens a stage is four matrix products. Fresh memory for what stands between them,
one pass over it for every operation, and the calls of Python together take as long again.
"""

from __future__ import annotations

import math
import mmap
import threading
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.direct import (
    MAX_COLUMNS,
    MOST_AT_ONCE,
    PRODUCTS,
    WIDE_LIBRARIES,
    product_address,
    room,
    rows_of_block,
)
from metastable.attention.exp2 import LOG2_E
from metastable.attention.kernel import Attended
from metastable.attention.operands import Operands
from metastable.flows.drift import Velocity
from metastable.flows.flow import Flow
from metastable.flows.pullback import Pullback
from metastable.flows.softmax import SelfAttention
from metastable.solve.controller import SHARE
from metastable.solve.problem import Problem
from metastable.solve.recording import Recording, StackedStages
from metastable.solve.tableau import Pair
from metastable.solve.trial import Made
from metastable.solve.wide_rows import LARGEST_SQUARE, error_rows, factor, moved_rows, step_rows, velocity_rows
from metastable.threads import blas_can_be_held, over_rows, shared_among_threads
from metastable.weights import AttentionWeights

LEAST_COLUMNS = 5 if WIDE_LIBRARIES else 8
"""Dimensions from which steps by products are faster than steps by the fused kernel: on a Xeon for more than some
hundred tokens, 1.3 ns a pair at n = 2000 against 1.6 for d = 5; on AMD's (`direct.processor`) because they are made
as wholes, 16 ms against 19 for runs of 400 tokens in eight dimensions at beta = 64."""
MOST_IN_FEW = 600
"""Tokens up to which that holds on AMD's where the fused kernel can take the dimensions: runs of 800 tokens took 45
ms against 38 by that kernel, runs of 2400 .54 s against .35."""

NANOSECONDS = 0.015
"""Rough cost of one multiplication in a product of matrices, for the choice of threads."""

OWN_PAGES = 1 << 17
"""Numbers, 1 MB, from which stages that are kept get pages of their own, which go back when they are dropped. In
the heap, states that stay would settle in the gaps of stages that do not: 123 MB for a hundred steps of 600 tokens
in 20 dimensions, against 52."""


class WideTrial:
    """k_i = P_y V m(y),   y = x + h sum_j a_ij k_j back on the sphere: stages of `SelfAttention`.

    A stage is two passes over blocks of rows: y and q = y B; then m, V m and its projection. Products with a
    diagonal matrix are none. A `Recording` is told of y, |y| before it was normalised, m and log Z.
    """

    def __init__(
        self,
        flow: SelfAttention,
        mass: Float[Tensor, "n"],
        memory: Float[Tensor, "s n d"],
        pair: Pair,
        allowed: float,
        recording: Recording | None = None,
    ) -> None:
        weights = flow.weights_at(0.0)
        assert weights.dense_B is not None
        self.memory, self.pair, self.allowed = memory, pair, allowed
        self.flow, self.mass, self.weights, self.recording = flow, mass, weights, recording
        self.log_mass = math.log(float(mass.max()))
        self.rows = [row.numpy() for row in (*pair.stages, pair.weights)]
        self.table = np.stack([np.pad(row, (0, len(pair.weights) - len(row))) for row in self.rows])
        _, n, d = memory.shape
        self.cost = NANOSECONDS * n * d * (n + d)
        self.B = factor(flow.beta * LOG2_E * weights.dense_B)
        self.V = factor(weights.value.T)
        self.share = (mass / mass.max()).numpy()
        self.equal = bool((mass == mass[0]).all())
        self.points, self.queries = room(n, d), room(n, d)
        self.weighted = self.points if self.equal else room(n, d)
        self.longest, self.lengths = np.empty(n), np.empty(n if recording else 0)
        self.here = torch.from_numpy(self.points)
        self.kept: tuple[np.ndarray, ...] = ()
        self.found: list[np.ndarray] = []
        """m and log Z at y, where they are recorded."""
        self.block, self.shifted = rows_of_block(n, d), False
        self._held = threading.local()

    def __call__(self, points: Float[Tensor, "n d"], slope: Float[Tensor, "n d"], h: float) -> Made:
        """A step of size h from points whose velocity is the first row of the memory."""
        last = len(self.rows) - 1
        if self.recording is not None:  # which keeps what is found there
            self.kept = self._arrays(last - 1)
            y, length, mean, log_z = (torch.from_numpy(part) for part in self.kept)
            self.recording.remember_step(lambda first: StackedStages(first, y, length, mean, log_z, self._pullback))
        if self.recording is None and not self._shared():
            self._stages_at_once(points, h)
        else:
            for stage in range(1, last):
                self._move(points, stage, h)
                self._evaluate(self.memory[stage])
            self._move(points, last, h)
        error = self._error(h) / self.allowed
        after = torch.from_numpy(self.points.copy()) if self.recording is None else self.here
        return Made(after, None, error if math.isfinite(error) else math.inf, last - 1, self._end)

    def stages(self, points: Tensor, slope: Tensor, h: float) -> None:
        """They are in the memory."""
        return None

    def _end(self, out: Tensor) -> Velocity:
        """The velocity at the end of the step that was made last."""
        self._evaluate(out)
        if self.recording is not None:
            found = (torch.from_numpy(part) for part in self.found)
            self.recording.remember(self.here, self._pullback(self.here, *found))
        return Velocity(out, None)

    def _stages_at_once(self, points: Tensor, h: float) -> None:
        """All of a step in one call, where one thread makes it."""
        made = (self.points, self.weighted, self.queries, self.longest, self.lengths)
        given = (points.numpy(), self.memory.numpy(), h * self.table, *self.B, *self.V, self.share, self.equal)
        address, rows = product_address(), self._rows_at_hand()
        self.shifted = step_rows(address, *given, self.log_mass, self.block, *made, *rows)

    def _move(self, points: Tensor, stage: int, h: float) -> None:
        """y, the points of a stage, and what attention takes of them."""
        if self.recording is not None:
            # What is at the end outlives the rest.
            at_end = stage == len(self.rows) - 1
            now = self._arrays(1) if at_end else self.kept
            self.points, lengths, *self.found = (part[0 if at_end else stage - 1] for part in now)
            self.lengths = lengths[:, 0]
            self.weighted = self.points if self.equal else self.weighted
            if at_end:
                self.here = torch.from_numpy(self.points)
                self.recording.normalised(self.here, torch.from_numpy(lengths))
        given: tuple[Any, ...] = (points.numpy(), self.memory.numpy(), h * self.rows[stage], *self.B)
        made = (self.points, self.weighted, self.queries, self.longest, self.lengths)

        def some(start: int, stop: int) -> None:
            moved_rows(product_address(), start, stop, *given, self.share, self.equal, self.block, *made)

        self._over_rows(some)
        self.shifted = bool(self.longest.max() > LARGEST_SQUARE)

    def _evaluate(self, out: Tensor) -> None:
        """The velocities at y."""
        given: tuple[Any, ...] = (self.points, self.weighted, self.share, self.queries, self.shifted, *self.V)
        given = (*given, self.log_mass)
        into = out.numpy()

        def some(start: int, stop: int) -> None:
            scores, *some_rows = self._rows_at_hand()
            velocity_rows(product_address(), start, stop, *given, scores, *(self.found or some_rows), into)

        self._over_rows(some)

    def _rows_at_hand(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """This thread's memory for the scores, m and log Z of a block."""
        held: tuple[np.ndarray, np.ndarray, np.ndarray] | None = getattr(self._held, "arrays", None)
        if held is None:
            _, n, d = self.memory.shape
            height = min(self.block, n)
            held = self._held.arrays = room(height, n), room(height, d), room(height)
        return held

    def _pullback(self, points: Tensor, mean: Tensor, log_partition: Tensor) -> Pullback:
        attended = Attended(mean, log_partition, PRODUCTS.name)
        return self.flow._pullback_of(0.0, points, self.mass, attended, self.weights)

    def _arrays(self, count: int) -> tuple[np.ndarray, ...]:
        """Memory for y, its lengths, m and log Z of so many stages, each beginning at a line of the cache."""
        _, n, d = self.memory.shape
        shape = 2, count, -(-n * d // 8) * 8
        memory = room(*shape) if math.prod(shape) < OWN_PAGES else _own_pages(shape)
        wide = memory[:, :, : n * d].reshape(2, count, n, d)
        thin = np.empty((2, count, n))
        return wide[0], thin[0, :, :, None], wide[1], thin[1]

    def _error(self, h: float) -> float:
        """max_i e_i^2 / sqrt(e_i^2 + D f_i^2) of the step to y, as in `rowwise.largest_damped`."""
        found = np.empty(len(self.points))
        given = (self.points, self.memory.numpy(), h * self.pair.errors.numpy(), self.pair.damping, found)
        self._over_rows(lambda start, stop: error_rows(start, stop, *given))
        return float(found.max())

    def _shared(self) -> bool:
        """Whether several threads make a stage."""
        return self.block < len(self.share) and blas_can_be_held() and shared_among_threads(self.cost)

    def _over_rows(self, work: Any) -> None:
        n = len(self.share)
        if blas_can_be_held():
            over_rows(work, n, cost=self.cost, quantum=self.block)
        else:
            work(0, n)


def wide_trial(problem: Problem, points: Tensor, memory: Tensor, pair: Pair) -> WideTrial | None:
    """The trial of a run of plain self-attention in more than a few dimensions; None where it is anything else."""
    flow, n = problem.flow, len(points)
    here = points.is_cpu and points.dtype == torch.float64 and points.shape[1] >= LEAST_COLUMNS
    if not here or pair.stable < math.inf or not isinstance(flow, SelfAttention) or flow.kernel != "auto":
        return None
    if plain_weights(flow, points) is None:
        return None
    if not WIDE_LIBRARIES and points.shape[1] <= MAX_COLUMNS and n > MOST_IN_FEW:
        return None
    operands = Operands.checked_before(points, points, points, problem.mass, flow.beta)
    if n * n > MOST_AT_ONCE or not PRODUCTS.fits(operands, None):
        return None
    if not bool((problem.mass > 0).all()):
        return None
    flow._note(PRODUCTS.name, None)
    recording = problem if isinstance(problem, Recording) else None
    return WideTrial(flow, problem.mass, memory, pair, SHARE * (problem.atol + problem.rtol), recording)


def _own_pages(shape: tuple[int, ...]) -> np.ndarray:
    """Memory of float64 that is nobody else's."""
    return np.frombuffer(mmap.mmap(-1, 8 * math.prod(shape)), dtype=np.float64).reshape(shape)


def plain_weights(flow: Flow, points: Float[Tensor, "n d"]) -> AttentionWeights | None:
    """The weights of plain self-attention, where they are matrices that stay the same; else None."""
    if type(flow) is not SelfAttention or not flow.plain or isinstance(flow.beta, Tensor):
        return None
    weights = flow.weights_at(0.0, points)
    return None if weights.dense_B is None or weights.output is not None else weights
