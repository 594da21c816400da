"""`WideTranspose`: the transpose of the derivative of a step of plain self-attention in more than a few dimensions.

The equations are those of `solve.adjoint`. For a stage v = P_x V m(x) with cotangents c = h sum_i a_ij f_i,

    w = P_x c,   g = w V,   s = <g, m>,   q = beta x B,      (by_query, by_key) of attention from them,
    f = P_x (by_key + beta by_query B^T - <x, V m> c - <x, c> V m)/|z|,      V <- w^T m,   B <- beta x^T by_query:

two passes over rows beside attention. With a few hundred tokens each of these operations takes less time than its
call, and its run is made as wholes, too (`WideTrial`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.backwards import Backwards
from metastable.attention.direct import (
    LEAST_SHARED,
    MOST_FUSED,
    adjoint_over_pairs,
    multiply_turned,
    pack,
    product_address,
    room,
    tile_memory,
    transposed_rows,
)
from metastable.flows.pullback import HeadCotangent
from metastable.flows.softmax import SelfAttention
from metastable.solve.problem import Problem
from metastable.solve.recording import StackedStages, Stage, Tape
from metastable.solve.runge_kutta import RungeKutta
from metastable.solve.wide_rows import compiled, factor, times
from metastable.solve.wide_trial import NANOSECONDS, plain_weights
from metastable.threads import blas_can_be_held, over_rows
from metastable.weights import AttentionWeights

_BLOCK = 128
"""Rows that stay in the second cache between two products."""


class WideTranspose:
    """Steps taken back of a flow with these weights, for tokens with these masses."""

    def __init__(
        self, weights: AttentionWeights, beta: float, mass: Float[Tensor, "n"], d: int, table: RungeKutta
    ) -> None:
        assert weights.dense_B is not None
        self.beta, self.dense_B, self.columns = beta, weights.dense_B, table.columns.numpy()
        self.factors: tuple[Any, ...] = (*factor(weights.value), *factor(beta * weights.dense_B))
        self.log_mass, n = torch.log(mass), len(mass)
        self.c, self.w, self.g, self.q = (room(n, d) for _ in range(4))
        self.shift, self.found = np.empty(n), room(len(table.nodes) + 1, n, d)
        self.whole: tuple[Any, ...] | None = None
        if n < LEAST_SHARED:
            packed, top, sums = room(n, d + 2), np.empty(n), (room(n, d), room(n, d))
            self.whole = (self.log_mass.numpy(), packed, top, *tile_memory(n, n, d), *sums)

    def step_back(
        self, tape: Tape, cotangent: Float[Tensor, "n d"]
    ) -> tuple[Float[Tensor, "n d"], list[Sequence[HeadCotangent]]]:
        """From cotangents of the tokens after a step to those of the tokens before it and of the weights."""
        count, weights = len(tape.stages), tape.h * self.columns
        d, given = cotangent.shape[1], cotangent.contiguous().numpy()
        V, scores = np.zeros((d, d)), np.zeros((d, d))
        _unnormalised(given, tape.points.numpy(), _lengths(tape.length), self.found[count])
        for number in reversed(range(count)):
            later = self.found[number + 1 :], weights[number, number + 1 :]
            self._stage_back(_numbers(tape.stages, number), *later, self.found[number], V, scores)
        of_scores = torch.from_numpy(scores)
        beta = float((self.dense_B * of_scores).sum())
        head = HeadCotangent(torch.from_numpy(V), self.beta * of_scores, beta)
        return torch.from_numpy(self.found.sum(0)), [(head,)]

    def velocity_back(self, stage: Stage, cotangent: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """From cotangents of the velocities to those of the tokens they are at."""
        n, d = cotangent.shape
        found, unused = room(n, d), np.zeros((2, d, d))
        self._stage_back(_numbers((stage,), 0), cotangent.contiguous().numpy()[None], np.ones(1), found, *unused)
        return torch.from_numpy(found)

    def _stage_back(
        self,
        stage: tuple[Tensor, Tensor, Tensor, Tensor | None],
        later: np.ndarray,
        weights: np.ndarray,
        found: np.ndarray,
        V: np.ndarray,
        scores: np.ndarray,
    ) -> None:
        """f of a stage; what it adds to the cotangents of V and of the scores' B."""
        points, means, log_partition, length = stage
        x, mean, c, w, g, q = points.numpy(), means.numpy(), self.c, self.w, self.g, self.q
        inward: tuple[Any, ...] = (x, mean, later, weights, *self.factors, c, w, g, q, self.shift)
        if self.whole is not None:
            log_z, made = log_partition.numpy(), (_lengths(length), found, V, scores)
            _stage_at_once(product_address(), *inward, log_z, *self.whole, *made)
            return
        self._over(lambda start, stop: _inward(product_address(), start, stop, *inward))
        by_query, by_key = adjoint_over_pairs(
            Backwards(
                *(torch.from_numpy(q), points, self.log_mass, log_partition),
                *(torch.from_numpy(g), torch.from_numpy(self.shift), means),
            )
        )
        sums: tuple[Any, ...] = (by_query.numpy(), by_key.numpy())
        outward: tuple[Any, ...] = (x, mean, c, *self.factors, *sums, _lengths(length), q, found)
        self._over(lambda start, stop: _outward(product_address(), start, stop, *outward))
        _of_weights(product_address(), w, mean, x, sums[0], V, scores)

    def _over(self, work: Callable[[int, int], None]) -> None:
        n, d = self.c.shape
        if blas_can_be_held():
            over_rows(work, n, cost=4 * NANOSECONDS * n * d * d, quantum=_BLOCK)
        else:
            work(0, n)


def wide_transpose(problem: Problem, points: Float[Tensor, "n d"], table: RungeKutta) -> WideTranspose | None:
    """The transpose of a run of plain self-attention by matrix products; None where it is anything else."""
    flow = problem.flow
    if not points.is_cpu or points.shape[1] <= MOST_FUSED or (table.ambient and flow.residual):
        return None
    weights = plain_weights(flow, points)
    if weights is None or not isinstance(flow, SelfAttention):
        return None
    return WideTranspose(weights, flow.beta, problem.mass, points.shape[1], table)


def _numbers(stages: Sequence[Stage], number: int) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Points, means, log Z and lengths of a stage."""
    if isinstance(stages, StackedStages) and number > 0:
        k = number - 1
        return stages.points[k], stages.mean[k], stages.log_partition[k], stages.length[k]
    stage = stages[number]
    assert stage.pullback.attended is not None
    return stage.points, stage.pullback.attended.mean, stage.pullback.attended.log_partition, stage.length


def _lengths(length: Tensor | None) -> np.ndarray:
    return np.empty(0) if length is None else length.view(-1).numpy()


@compiled
def _unnormalised(given: Any, x: Any, length: Any, out: Any) -> None:
    """P_x c/|z|, the transpose of z -> z/|z|; c itself where nothing was normalised."""
    n, d = x.shape
    for i in range(n):
        inner, share = 0.0, 1.0
        if len(length) > 0:
            share = 1.0 / length[i]
            for a in range(d):
                inner += x[i, a] * given[i, a]
        for a in range(d):
            out[i, a] = share * (given[i, a] - inner * x[i, a])


@compiled
def _inward(
    address: int, start: int, stop: int, x: Any, mean: Any, later: Any, weights: Any, V: Any, diagonal_V: bool,
    B: Any, diagonal_B: bool, c: Any, w: Any, g: Any, q: Any, shift: Any,
) -> None:  # fmt: skip
    """Rows start to stop of c, w, g, q and s."""
    d = x.shape[1]
    for first in range(start, stop, _BLOCK):
        last = min(first + _BLOCK, stop)
        for i in range(first, last):
            row, inner = c[i], 0.0
            for a in range(d):
                row[a] = 0.0
            for j in range(len(weights)):
                weight, other = weights[j], later[j, i]
                if weight != 0.0:
                    for a in range(d):
                        row[a] += weight * other[a]
            for a in range(d):
                inner += x[i, a] * row[a]
            for a in range(d):
                w[i, a] = row[a] - inner * x[i, a]
        times(address, w[first:last], V, diagonal_V, False, g[first:last])
        times(address, x[first:last], B, diagonal_B, False, q[first:last])
        for i in range(first, last):
            inner = 0.0
            for a in range(d):
                inner += g[i, a] * mean[i, a]
            shift[i] = inner


@compiled
def _outward(
    address: int, start: int, stop: int, x: Any, mean: Any, c: Any, V: Any, diagonal_V: bool, B: Any,
    diagonal_B: bool, by_query: Any, by_key: Any, length: Any, field: Any, found: Any,
) -> None:  # fmt: skip
    """Rows start to stop of f; field: memory for V m."""
    d = x.shape[1]
    for first in range(start, stop, _BLOCK):
        last = min(first + _BLOCK, stop)
        times(address, by_query[first:last], B, diagonal_B, True, found[first:last])
        times(address, mean[first:last], V, diagonal_V, True, field[first:last])
        for i in range(first, last):
            along, beside = 0.0, 0.0
            for a in range(d):
                along += x[i, a] * field[i, a]
                beside += x[i, a] * c[i, a]
            for a in range(d):
                found[i, a] += by_key[i, a] - along * c[i, a] - beside * field[i, a]
        part = found[first:last]
        _unnormalised(part, x[first:last], length[first:last] if len(length) > 0 else length, part)


@compiled
def _of_weights(address: int, w: Any, mean: Any, x: Any, by_query: Any, V: Any, scores: Any) -> None:
    """V += w^T m,   S += x^T by_query."""
    n, d = x.shape
    multiply_turned(address, d, d, n, w.ctypes.data, d, mean.ctypes.data, V.ctypes.data)
    multiply_turned(address, d, d, n, x.ctypes.data, d, by_query.ctypes.data, scores.ctypes.data)


@compiled
def _stage_at_once(
    address: int, x: Any, mean: Any, later: Any, weights: Any, V: Any, diagonal_V: bool, B: Any, diagonal_B: bool,
    c: Any, w: Any, g: Any, q: Any, shift: Any, log_partition: Any, log_mass: Any, packed: Any, top: Any, left: Any,
    right: Any, tile: Any, by_query: Any, by_key: Any, length: Any, found: Any, of_V: Any, scores: Any,
) -> None:  # fmt: skip
    """All of a stage for few tokens: one call of Python."""
    n = len(x)
    _inward(address, 0, n, x, mean, later, weights, V, diagonal_V, B, diagonal_B, c, w, g, q, shift)
    pack(x, log_mass, log_partition, packed, top)
    by_key[:] = 0.0
    transposed_rows(address, 0, n, q, x, g, shift, packed, top, n, left, right, tile, by_query, by_key)
    _outward(address, 0, n, x, mean, c, V, diagonal_V, B, diagonal_B, by_query, by_key, length, q, found)
    _of_weights(address, w, mean, x, by_query, of_V, scores)
