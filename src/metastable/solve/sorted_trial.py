"""`SortedTrial`: steps of some thousand tokens on the circle or on S^2, in the order of a curve.

A stage then takes some hundred microseconds, and the calls of Python around it, the sorting of its tokens and the
choice of a kernel would take as long again: here tokens are sorted, and a kernel is chosen, once for a step. Both
follow from the tokens at its start alone, so that a run that is taken up again makes the same steps. A `Recording`
is told of y, |y| before it was normalised, m and log Z, in that order.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable import rowwise
from metastable.attention.kernel import Attended
from metastable.attention.nearby import LANES, NEARBY, attend_sorted, curve_order, nearby_error
from metastable.attention.operands import Operands
from metastable.attention.select import LEAST_PAIRS, select
from metastable.flows.drift import Velocity
from metastable.flows.pullback import Pullback
from metastable.flows.softmax import SelfAttention
from metastable.solve.controller import SHARE
from metastable.solve.problem import Problem
from metastable.solve.recording import Recording, StackedStages, put_back
from metastable.solve.sorted_rows import (
    keep,
    largest_error,
    moved,
    sorted_columns,
    sorted_mass,
    unsorted_rows,
    velocities,
)
from metastable.solve.tableau import Pair
from metastable.solve.trial import Made
from metastable.solve.wide_trial import plain_weights

MOST_TOKENS = 50_000
"""Tokens above which what is spared is nothing beside the attention, whose threads share the other work, too."""


class SortedTrial:
    """k_i = P_y V m(y),   y = x + h sum_j a_ij k_j back on the sphere: stages of `SelfAttention` for d = 2, 3."""

    def __init__(
        self,
        flow: SelfAttention,
        mass: Float[Tensor, "n"],
        memory: Float[Tensor, "s n d"],
        pair: Pair,
        allowed: float,
        recording: Recording | None = None,
    ) -> None:
        weights, (_, n, d) = flow.weights_at(0.0), memory.shape
        assert weights.dense_B is not None and flow.rtol is not None
        self.flow, self.mass, self.memory, self.pair, self.allowed = flow, mass, memory, pair, allowed
        self.weights, self.recording, self.log_mass = weights, recording, math.log(float(mass.max()))
        self.rtol, self.stretch = flow.rtol, flow.beta * weights.B_norm
        self.rows = [row.numpy() for row in (*pair.stages, pair.weights)]
        self.B, self.V = (flow.beta * weights.dense_B).numpy(), weights.value.clone().numpy()
        self.A = np.ascontiguousarray(self.B.T)
        self.share = (mass / mass.max()).numpy()
        self.x, self.slopes = np.empty((d, n)), np.empty((len(self.rows), d, n))
        self.keys, self.z = np.empty((d + 1, -(-n // LANES) * LANES)), np.empty((d, n))
        self.mean, self.log_z, self.length = np.empty((n, d)), np.empty(n), np.empty(n)
        self.order, self.kernel = np.arange(n), NEARBY
        self.operands: Operands | None = None
        """Those at the start of a step, whose kernel and plan are those of its stages."""
        self.here = torch.empty(0)
        """The tokens at the end of the step that was made last."""

    def __call__(self, points: Float[Tensor, "n d"], slope: Float[Tensor, "n d"], h: float) -> Made:
        """A step of size h from points whose velocity is the first row of the memory."""
        last = len(self.rows) - 1
        self._sort(points, slope)
        kept = None if self.recording is None else self._kept(last - 1)
        for stage in range(1, last):
            self._move(stage, h)
            self._evaluate(self.slopes[stage])
            if kept is not None:
                y, length, mean, log_z = (part[stage - 1] for part in kept)
                keep(self.keys, self.length, self.mean, self.log_z, self.log_mass, y, length, mean, log_z)
        self._move(last, h)
        error = (
            largest_error(self.keys, self.slopes, h * self.pair.errors.numpy(), self.pair.damping) / self.allowed
        )
        self.here = torch.empty_like(points)
        unsorted_rows(self.keys, self.order, self.here.numpy())
        if kept is not None and self.recording is not None:
            self._tell(self.recording, kept)
        return Made(self.here, None, error if math.isfinite(error) else math.inf, last - 1, self._end)

    def stages(self, points: Tensor, slope: Tensor, h: float) -> None:
        """Brings those of the last step into the memory, in the order of the tokens."""
        for stage in range(1, len(self.rows) - 1):
            unsorted_rows(self.slopes[stage], self.order, self.memory[stage].numpy())

    def _end(self, out: Tensor) -> Velocity:
        """The velocity at the end of the step that was made last."""
        self._evaluate(self.slopes[-1])
        unsorted_rows(self.slopes[-1], self.order, out.numpy())
        if self.recording is not None:
            mean, log_z = (put_back(torch.from_numpy(part), self.order) for part in (self.mean, self.log_z))
            self.recording.remember(self.here, self._pullback(self.here, mean, log_z + self.log_mass))
        return Velocity(out, None)

    def _kept(self, count: int) -> tuple[np.ndarray, ...]:
        """Memory for y (d, n), its lengths, m (d, n) and log Z of so many stages."""
        d, n = self.x.shape
        return np.empty((count, d, n)), np.empty((count, n)), np.empty((count, d, n)), np.empty((count, n))

    def _tell(self, recording: Recording, kept: tuple[np.ndarray, ...]) -> None:
        """The stages of the step, and how long its end was before it was normalised."""
        y, length, mean, log_z = (torch.from_numpy(part) for part in kept)
        rows, order = (y.mT, length[:, :, None], mean.mT, log_z), self.order
        recording.remember_step(lambda first: StackedStages(first, *rows, self._pullback, order))
        recording.normalised(self.here, put_back(torch.from_numpy(self.length), order)[:, None])

    def _pullback(self, points: Tensor, mean: Tensor, log_partition: Tensor) -> Pullback:
        attended = Attended(mean, log_partition, self.kernel.name)
        return self.flow._pullback_of(0.0, points, self.mass, attended, self.weights)

    def _sort(self, points: Tensor, slope: Tensor) -> None:
        """Tokens in the order of the curve at the start of a step, and the kernel of its stages."""
        x = points.numpy()
        self.order = curve_order(x)
        sorted_columns(x, self.order, self.x)
        sorted_columns(slope.numpy(), self.order, self.slopes[0])
        sorted_mass(self.share, self.order, self.keys)
        queries = rowwise.apply(points, torch.from_numpy(self.B))
        operands = Operands.known(queries, points, self.mass, 1.0, torch.from_numpy(self.B))
        # Sorted tokens are the better half of NEARBY on the circle.
        nearby = (
            x.shape[1] == 2 and NEARBY.fits(operands, self.rtol) and NEARBY.cost(operands, self.rtol) < math.inf
        )
        self.kernel, self.operands = NEARBY if nearby else select(operands, self.rtol), operands
        if self.kernel is NEARBY:
            self.flow._note(NEARBY.name, nearby_error(operands, self.rtol))

    def _move(self, stage: int, h: float) -> None:
        """y, the points of a stage, as keys, and their queries."""
        moved(self.x, self.slopes, h * self.rows[stage], self.B, self.keys, self.z, self.length)

    def _evaluate(self, out: np.ndarray) -> None:
        """The velocities at y, in the order of the curve."""
        if not math.isfinite(float(self.length.sum())):  # a step far too long, which its error then rejects
            out.fill(math.nan)
            self.mean, self.log_z = np.full_like(self.mean, math.nan), np.full_like(self.log_z, math.nan)
            return
        if self.kernel is NEARBY:
            attend_sorted(self.keys, self.z, self.A, self.stretch, self.rtol, self.mean, self.log_z)
        else:
            n = self.z.shape[1]
            tokens = torch.from_numpy(self.keys[:-1, :n].T.copy())
            mass = torch.from_numpy(self.keys[-1, :n])
            assert self.operands is not None
            made = self.operands.moved(torch.from_numpy(self.z.T.copy()), tokens, mass)
            found = self.kernel.compute(made, self.rtol)
            self.flow._note(found.kernel, found.error)
            self.mean, self.log_z = found.mean.numpy(), found.log_partition.numpy()
        velocities(self.mean, self.V, self.keys, out)


def sorted_trial(problem: Problem, points: Tensor, memory: Tensor, pair: Pair) -> SortedTrial | None:
    """The trial of a run of plain self-attention on the circle or on S^2; None where it is anything else."""
    flow = sorted_flow(problem, points)
    if flow is None or pair.stable < math.inf:
        return None
    recording = problem if isinstance(problem, Recording) else None
    return SortedTrial(flow, problem.mass, memory, pair, SHARE * (problem.atol + problem.rtol), recording)


def sorted_flow(problem: Problem, points: Float[Tensor, "n d"]) -> SelfAttention | None:
    """The flow, where it is plain self-attention of some thousand tokens on the circle or on S^2; else None."""
    flow, n = problem.flow, len(points)
    here = points.is_cpu and points.dtype == torch.float64 and points.shape[1] in (2, 3)
    if not here or n > MOST_TOKENS or n * n < LEAST_PAIRS:
        return None
    if not isinstance(flow, SelfAttention) or flow.kernel != "auto" or flow.rtol is None:
        return None
    positive = bool((problem.mass > 0).all())
    return flow if positive and plain_weights(flow, points) is not None else None
