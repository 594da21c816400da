"""`SortedTrial`: steps of some thousand tokens on the circle or on S^2, in the order of a curve.

A stage then takes some hundred microseconds, and the calls of Python around it, the sorting of its tokens and the
choice of a kernel would take as long again: here tokens are sorted, and a kernel is chosen, once for a step. Both
follow from the tokens at its start alone, so that a run that is taken up again makes the same steps.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from metastable import rowwise
from metastable.attention.nearby import LANES, NEARBY, attend_sorted, curve_order, nearby_error
from metastable.attention.operands import Operands
from metastable.attention.select import LEAST_PAIRS, select
from metastable.flows.drift import Velocity
from metastable.flows.softmax import SelfAttention
from metastable.solve.controller import SHARE
from metastable.solve.problem import Problem
from metastable.solve.tableau import Pair
from metastable.solve.trial import Made

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
    ) -> None:
        weights, (_, n, d) = flow.weights_at(0.0), memory.shape
        assert weights.dense_B is not None and flow.rtol is not None
        self.flow, self.mass, self.memory, self.pair, self.allowed = flow, mass, memory, pair, allowed
        self.rtol, self.stretch = flow.rtol, flow.beta * weights.B_norm
        self.rows = [row.numpy() for row in (*pair.stages, pair.weights)]
        self.B, self.V = (flow.beta * weights.dense_B).numpy(), weights.value.clone().numpy()
        self.A = np.ascontiguousarray(self.B.T)
        self.share = (mass / mass.max()).numpy()
        self.x, self.slopes = np.empty((d, n)), np.empty((len(self.rows), d, n))
        self.keys, self.z = np.empty((d + 1, -(-n // LANES) * LANES)), np.empty((d, n))
        self.mean, self.log_z = np.empty((n, d)), np.empty(n)
        self.order, self.kernel = np.arange(n), NEARBY

    def __call__(self, points: Float[Tensor, "n d"], slope: Float[Tensor, "n d"], h: float) -> Made:
        """A step of size h from points whose velocity is the first row of the memory."""
        last = len(self.rows) - 1
        self._sort(points, slope)
        for stage in range(1, last):
            self._move(stage, h)
            self._evaluate(self.slopes[stage])
        self._move(last, h)
        error = _error(self.keys, self.slopes, h * self.pair.errors.numpy(), self.pair.damping) / self.allowed
        after = torch.empty_like(points)
        _unsorted(self.keys, self.order, after.numpy())
        return Made(after, None, error if math.isfinite(error) else math.inf, last - 1, self._end)

    def stages(self, points: Tensor, slope: Tensor, h: float) -> None:
        """Brings those of the last step into the memory, in the order of the tokens."""
        for stage in range(1, len(self.rows) - 1):
            _unsorted(self.slopes[stage], self.order, self.memory[stage].numpy())

    def _end(self, out: Tensor) -> Velocity:
        """The velocity at the end of the step that was made last."""
        self._evaluate(self.slopes[-1])
        _unsorted(self.slopes[-1], self.order, out.numpy())
        return Velocity(out, None)

    def _sort(self, points: Tensor, slope: Tensor) -> None:
        """Tokens in the order of the curve at the start of a step, and the kernel of its stages."""
        x = points.numpy()
        self.order = curve_order(x)
        _sorted(x, self.order, self.x)
        _sorted(slope.numpy(), self.order, self.slopes[0])
        _sorted_mass(self.share, self.order, self.keys)
        queries = rowwise.apply(points, torch.from_numpy(self.B))
        operands = Operands.checked_before(queries, points, points, self.mass, 1.0)
        # Sorted tokens are the better half of NEARBY on the circle.
        nearby = (
            x.shape[1] == 2 and NEARBY.fits(operands, self.rtol) and NEARBY.cost(operands, self.rtol) < math.inf
        )
        self.kernel = NEARBY if nearby else select(operands, self.rtol)
        if self.kernel is NEARBY:
            self.flow._note(NEARBY.name, nearby_error(operands, self.rtol))

    def _move(self, stage: int, h: float) -> None:
        """y, the points of a stage, as keys, and their queries."""
        _moved(self.x, self.slopes, h * self.rows[stage], self.B, self.keys, self.z)

    def _evaluate(self, out: np.ndarray) -> None:
        """The velocities at y, in the order of the curve."""
        if self.kernel is NEARBY:
            attend_sorted(self.keys, self.z, self.A, self.stretch, self.rtol, self.mean, self.log_z)
            mean = self.mean
        else:
            n = self.z.shape[1]
            tokens = torch.from_numpy(self.keys[:-1, :n].T.copy())
            mass = torch.from_numpy(self.keys[-1, :n])
            made = Operands.checked_before(torch.from_numpy(self.z.T.copy()), tokens, tokens, mass, 1.0)
            found = self.kernel.compute(made, self.rtol)
            self.flow._note(found.kernel, found.error)
            mean = found.mean.numpy()
        _velocities(mean, self.V, self.keys, out)


def sorted_trial(problem: Problem, points: Tensor, memory: Tensor, pair: Pair) -> SortedTrial | None:
    """The trial of a run of plain self-attention on the circle or on S^2; None where it is anything else."""
    flow, n = problem.flow, len(points)
    here = points.is_cpu and points.dtype == torch.float64 and points.shape[1] in (2, 3)
    if not here or n > MOST_TOKENS or n * n < LEAST_PAIRS or pair.stable < math.inf:
        return None
    if type(flow) is not SelfAttention or flow.kernel != "auto" or flow.rtol is None or not flow.plain:
        return None
    weights = flow.weights_at(0.0, points)
    if weights.dense_B is None or weights.output is not None or isinstance(flow.beta, Tensor):
        return None
    if not bool((problem.mass > 0).all()):
        return None
    return SortedTrial(flow, problem.mass, memory, pair, SHARE * (problem.atol + problem.rtol))


_FLAGS: Any = dict.fromkeys(("contract", "nsz"), True)
"""In an order that is the same in every process: numba finds on disk what it has compiled by them."""
_compiled: Any = njit(nogil=True, cache=True, error_model="numpy", fastmath=_FLAGS)
_BLOCK = 512
"""Tokens that stay in the first cache while stages are added up."""


@_compiled
def _sorted(rows: Any, order: Any, out: Any) -> None:
    """out[c, i] = rows[order[i], c]."""
    for i in range(len(order)):
        for c in range(rows.shape[1]):
            out[c, i] = rows[order[i], c]


@_compiled
def _unsorted(columns: Any, order: Any, out: Any) -> None:
    """out[order[i], c] = columns[c, i]."""
    for i in range(len(order)):
        for c in range(out.shape[1]):
            out[order[i], c] = columns[c, i]


@_compiled
def _sorted_mass(share: Any, order: Any, keys: Any) -> None:
    """Masses of the keys, none for those that fill up the last group."""
    keys[-1] = 0.0
    for i in range(len(order)):
        keys[-1, i] = share[order[i]]


@_compiled
def _moved(x: Any, slopes: Any, weights: Any, B: Any, keys: Any, z: Any) -> None:
    """y = (x + sum_j w_j k_j)/|...| into the keys, whose last group is filled up, and z = B^T y."""
    d, n = x.shape
    length = np.empty(_BLOCK)
    for first in range(0, n, _BLOCK):
        last = min(first + _BLOCK, n)
        for c in range(d):
            y = keys[c, first:last]
            for i in range(last - first):
                y[i] = x[c, first + i]
            for j in range(len(weights)):
                weight, slope = weights[j], slopes[j, c, first:last]
                if weight != 0.0:
                    for i in range(last - first):
                        y[i] += weight * slope[i]
        for i in range(last - first):
            length[i] = 0.0
        for c in range(d):
            y = keys[c, first:last]
            for i in range(last - first):
                length[i] += y[i] * y[i]
        for i in range(last - first):
            length[i] = np.sqrt(length[i])
        for c in range(d):
            y = keys[c, first:last]
            for i in range(last - first):
                y[i] /= length[i]
        for c in range(d):
            to = z[c, first:last]
            for i in range(last - first):
                to[i] = 0.0
            for a in range(d):
                factor, y = B[a, c], keys[a, first:last]
                for i in range(last - first):
                    to[i] += factor * y[i]
    for c in range(d):
        for i in range(n, keys.shape[1]):
            keys[c, i] = keys[c, n - 1]


@_compiled
def _velocities(mean: Any, V: Any, keys: Any, out: Any) -> None:
    """out = P_y V m, of means (n, d) and y (d, n) in the rows of the keys."""
    d, n = out.shape
    for i in range(n):
        inner = 0.0
        for c in range(d):
            value = 0.0
            for a in range(d):
                value += V[c, a] * mean[i, a]
            out[c, i] = value
            inner += value * keys[c, i]
        for c in range(d):
            out[c, i] -= inner * keys[c, i]


@_compiled
def _error(keys: Any, slopes: Any, weights: Any, damping: float) -> float:
    """max_i e_i^2 / sqrt(e_i^2 + D f_i^2), e = P_y sum_j w_0j k_j, f likewise (`rowwise.largest_damped`)."""
    d, n = slopes.shape[1:]
    error, inner, squares = np.empty(_BLOCK), np.empty(_BLOCK), np.empty((2, _BLOCK))
    worst = 0.0
    for first in range(0, n, _BLOCK):
        last = min(first + _BLOCK, n)
        squares[:] = 0.0
        for which in range(2):
            inner[:] = 0.0
            square = squares[which]
            for c in range(d):
                error[:] = 0.0
                for j in range(weights.shape[1]):
                    weight, slope = weights[which, j], slopes[j, c, first:last]
                    if weight != 0.0:
                        for i in range(last - first):
                            error[i] += weight * slope[i]
                y = keys[c, first:last]
                for i in range(last - first):
                    inner[i] += error[i] * y[i]
                    square[i] += error[i] * error[i]
            for i in range(last - first):
                square[i] -= inner[i] * inner[i]
        for i in range(last - first):
            size, other = squares[0, i], squares[1, i]
            if not np.isfinite(size + other):
                return np.inf
            if size > 0.0:
                worst = max(worst, size / np.sqrt(size + damping * max(other, 0.0)))
    return worst
