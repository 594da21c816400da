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
from numba import njit
from torch import Tensor

from metastable.attention.direct import (
    LARGEST_SCORE,
    PRODUCTS,
    attended_rows,
    multiply,
    product_address,
    room,
    rows_of_block,
)
from metastable.attention.exp2 import LN_2, LOG2_E
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
from metastable.threads import blas_can_be_held, over_rows
from metastable.weights import AttentionWeights

LEAST_COLUMNS = 5
"""Dimensions from which two products are faster than the fused kernel for more than some hundred tokens: 1.3 ns
a pair at n = 2000 against 1.6 for d = 5, and 2.5 for d = 8."""


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
        _, n, d = memory.shape
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
            _moved_rows(product_address(), start, stop, *given, self.share, self.equal, self.block, *made)

        self._over_rows(some)
        self.shifted = bool(self.longest.max() > (LARGEST_SCORE * LOG2_E) ** 2)

    def _evaluate(self, out: Tensor) -> None:
        """The velocities at y."""
        _, n, d = self.memory.shape
        given: tuple[Any, ...] = (self.points, self.weighted, self.share, self.queries, self.shifted, *self.V)
        given = (*given, self.log_mass)
        into = out.numpy()

        def some(start: int, stop: int) -> None:
            held: tuple[Any, ...] | None = getattr(self._held, "arrays", None)
            if held is None:
                height = min(self.block, n)
                held = self._held.arrays = room(height, n), room(height, d), room(height)
            scores, *some_rows = held
            _velocity_rows(product_address(), start, stop, *given, scores, *(self.found or some_rows), into)

        self._over_rows(some)

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
        self._over_rows(lambda start, stop: _error_rows(start, stop, *given))
        return float(found.max())

    def _over_rows(self, work: Any) -> None:
        _, n, d = self.memory.shape
        if blas_can_be_held():
            over_rows(work, n, cost=NANOSECONDS * n * d * (n + d), quantum=self.block)
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
    operands = Operands.checked_before(points, points, points, problem.mass, flow.beta)
    if n * n > (PRODUCTS.most_pairs or 0) or not PRODUCTS.fits(operands, None):
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


def factor(matrix: Float[Tensor, "d d"]) -> tuple[np.ndarray, bool]:
    """The matrix, and whether it is diagonal: then its diagonal as one row."""
    diagonal = torch.diagonal(matrix)
    if bool((matrix == torch.diag(diagonal)).all()):
        return diagonal.clone()[None].numpy(), True
    return matrix.clone(memory_format=torch.contiguous_format).numpy(), False


_FLAGS: Any = dict.fromkeys(("contract", "nsz", "reassoc"), True)
"""In an order that is the same in every process: numba finds on disk what it has compiled by them."""
compiled: Any = njit(nogil=True, cache=True, error_model="numpy", fastmath=_FLAGS)
"""For passes over rows, here and on the way back."""


@compiled
def times(address: int, rows: Any, matrix: Any, diagonal: bool, turned: bool, out: Any) -> None:
    """X A, or X A^T if `turned`; A may be the row of its diagonal."""
    n, d = rows.shape
    if diagonal:
        for i in range(n):
            for a in range(d):
                out[i, a] = rows[i, a] * matrix[0, a]
    else:
        multiply(address, turned, n, d, d, rows.ctypes.data, matrix.ctypes.data, out.ctypes.data, d)


@compiled
def _moved_rows(
    address: int, start: int, stop: int, x: Any, stages: Any, weights: Any, B: Any, diagonal: bool, share: Any,
    equal: bool, block: int, y: Any, weighted: Any, queries: Any, longest: Any, lengths: Any,
) -> None:  # fmt: skip
    """Rows start to stop of y = (x + sum_j w_j k_j)/|...|, of s y and of q = y B, and |q|^2."""
    d = x.shape[1]
    for first in range(start, stop, block):
        last = min(first + block, stop)
        for i in range(first, last):
            row = y[i]
            for c in range(d):
                row[c] = x[i, c]
            for j in range(len(weights)):
                weight, stage = weights[j], stages[j, i]
                if weight != 0.0:
                    for c in range(d):
                        row[c] += weight * stage[c]
            square = 0.0
            for c in range(d):
                square += row[c] * row[c]
            inverse = 1.0 / np.sqrt(square)
            if len(lengths) > 0:
                lengths[i] = np.sqrt(square)
            for c in range(d):
                row[c] *= inverse
            if not equal:
                for c in range(d):
                    weighted[i, c] = share[i] * row[c]
        times(address, y[first:last], B, diagonal, False, queries[first:last])
        for i in range(first, last):
            square = 0.0
            for c in range(d):
                square += queries[i, c] * queries[i, c]
            longest[i] = square


@compiled
def _velocity_rows(
    address: int, start: int, stop: int, y: Any, weighted: Any, share: Any, queries: Any, shifted: bool, V: Any,
    diagonal: bool, log_mass: float, scores: Any, means: Any, log_partition: Any, out: Any,
) -> None:  # fmt: skip
    """Rows start to stop of P_y V m; m and log Z of all rows, or of those at hand where there is no more room."""
    d, whole = y.shape[1], len(means) == len(y)
    for first in range(start, stop, len(scores)):
        last = min(first + len(scores), stop)
        mean = means[first:last] if whole else means[: last - first]
        log_z = log_partition[first:last] if whole else log_partition
        attended_rows(address, queries[first:last], y, weighted, share, shifted, scores, mean, log_z)
        for i in range(last - first):
            log_z[i] = log_z[i] * LN_2 + log_mass
        times(address, mean, V, diagonal, False, out[first:last])
        for i in range(first, last):
            inner = 0.0
            for c in range(d):
                inner += y[i, c] * out[i, c]
            for c in range(d):
                out[i, c] -= inner * y[i, c]


@compiled
def _error_rows(start: int, stop: int, y: Any, stages: Any, weights: Any, damping: float, out: Any) -> None:
    """Rows start to stop of e^2 / sqrt(e^2 + D f^2), the lengths of e = P_y sum_j w_0j k_j and f likewise."""
    d = y.shape[1]
    error, squares = np.empty(d), np.empty(2)
    for i in range(start, stop):
        for which in range(2):
            inner, square = 0.0, 0.0
            for c in range(d):
                error[c] = 0.0
            for j in range(weights.shape[1]):
                weight, stage = weights[which, j], stages[j, i]
                if weight != 0.0:
                    for c in range(d):
                        error[c] += weight * stage[c]
            for c in range(d):
                inner += error[c] * y[i, c]
                square += error[c] * error[c]
            squares[which] = max(square - inner * inner, 0.0) if np.isfinite(square) else np.inf
        first, second = squares
        out[i] = np.inf if not np.isfinite(first + second) else 0.0
        if 0.0 < first < np.inf and second < np.inf:
            out[i] = first / np.sqrt(first + damping * second)
