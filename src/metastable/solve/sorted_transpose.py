"""`SortedTranspose`: the transpose of the derivative of a step of plain self-attention on the circle or on S^2.

The equations are those of `solve.wide_transpose`, for tokens in the order of a curve, as `SortedTrial` had them:
attention is taken back by series, or over the pairs that count, and a pass over the tokens on either side of it is
all that is left of a stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.adjoint import columns_adjoint
from metastable.attention.nearby import curve_order
from metastable.attention.operands import TokensOfStep
from metastable.flows.pullback import HeadCotangent
from metastable.flows.softmax import SelfAttention
from metastable.solve.problem import Problem
from metastable.solve.recording import StackedStages, Stage, Tape
from metastable.solve.runge_kutta import RungeKutta
from metastable.solve.sorted_rows import sorted_columns, unsorted_rows
from metastable.solve.sorted_trial import sorted_flow
from metastable.solve.wide_rows import compiled
from metastable.weights import AttentionWeights

_BLOCK = 512
"""Tokens that stay in the first cache between two lines of a pass."""


class Numbers(NamedTuple):
    """A stage in the order of the curve."""

    x: Float[np.ndarray, "d n"]
    mean: Float[np.ndarray, "d n"]
    log_partition: Float[np.ndarray, "n"]
    length: Float[np.ndarray, "n"]
    """Empty where nothing was normalised."""


class SortedTranspose:
    """Steps taken back of a flow with these weights, for tokens with these masses."""

    def __init__(
        self, flow: SelfAttention, weights: AttentionWeights, mass: Float[Tensor, "n"], table: RungeKutta
    ) -> None:
        assert weights.dense_B is not None and flow.rtol is not None
        self.beta, self.rtol, self.dense_B = flow.beta, flow.rtol, weights.dense_B
        self.columns, self.mass = table.columns.numpy(), mass.numpy()
        self.V, self.B = weights.value.clone().numpy(), (flow.beta * weights.dense_B).numpy()
        n, d = len(mass), len(self.B)
        self.c, self.w, self.g, self.z = np.empty((4, d, n))
        self.shift, self.found = np.empty(n), np.empty((len(table.nodes) + 1, d, n))

    def step_back(
        self, tape: Tape, cotangent: Float[Tensor, "n d"]
    ) -> tuple[Float[Tensor, "n d"], list[Sequence[HeadCotangent]]]:
        """From cotangents of the tokens after a step to those of the tokens before it and of the weights."""
        stages, weights, count = tape.stages, tape.h * self.columns, len(tape.stages)
        order = stages.order if isinstance(stages, StackedStages) else None
        order = curve_order(stages[0].points.numpy()) if order is None else order
        V, scores = np.zeros_like(self.V), np.zeros_like(self.B)
        assert tape.length is not None
        _unnormalised(
            _columns(cotangent, order),
            _columns(tape.points, order),
            tape.length.numpy()[order, 0],
            self.found[count],
        )
        share, step = self.mass[order], TokensOfStep(torch.from_numpy(self.B))
        for number in reversed(range(count)):
            later = self.found[number + 1 :], weights[number, number + 1 :]
            numbers = _numbers(stages, number, order)
            self._stage_back(numbers, step, share, *later, self.found[number], V, scores)
        of_scores = torch.from_numpy(scores)
        beta = float((self.dense_B * of_scores).sum())
        head = HeadCotangent(torch.from_numpy(V), self.beta * of_scores, beta)
        return _rows(self.found.sum(0), order), [(head,)]

    def velocity_back(self, stage: Stage, cotangent: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """From cotangents of the velocities to those of the tokens they are at."""
        order = curve_order(stage.points.numpy())
        given, found, unused = _columns(cotangent, order)[None], np.empty_like(self.c), np.zeros((2, *self.V.shape))
        numbers = _numbers((stage,), 0, order)
        step = TokensOfStep(torch.from_numpy(self.B))
        self._stage_back(numbers, step, self.mass[order], given, np.ones(1), found, *unused)
        return _rows(found, order)

    def _stage_back(
        self,
        stage: Numbers,
        step: TokensOfStep,
        mass: np.ndarray,
        later: np.ndarray,
        weights: np.ndarray,
        found: np.ndarray,
        V: np.ndarray,
        scores: np.ndarray,
    ) -> None:
        """f of a stage; what it adds to the cotangents of V and of the scores' B."""
        x, mean, log_partition, length = stage
        _inward(x, mean, later, weights, self.V, self.B, self.c, self.w, self.g, self.z, self.shift)
        by_query, by_key = columns_adjoint(
            self.z, x, mass, log_partition, self.g, self.shift, mean, self.rtol, step
        )
        _outward(x, mean, self.c, self.w, self.V, self.B, by_query, by_key, length, found, V, scores)


def sorted_transpose(problem: Problem, points: Float[Tensor, "n d"], table: RungeKutta) -> SortedTranspose | None:
    """The transpose of a run of plain self-attention on the circle or on S^2; None where it is anything else."""
    flow = sorted_flow(problem, points)
    if flow is None or (table.ambient and flow.residual):
        return None
    return SortedTranspose(flow, flow.weights_at(0.0, points), problem.mass, table)


def _numbers(stages: Sequence[Stage], number: int, order: np.ndarray) -> Numbers:
    """A stage as the passes take it."""
    if isinstance(stages, StackedStages) and stages.order is not None and number > 0:
        k = number - 1
        x, mean = stages.points[k].numpy().T, stages.mean[k].numpy().T
        return Numbers(x, mean, stages.log_partition[k].numpy(), stages.length[k, :, 0].numpy())
    stage = stages[number]
    attended = stage.pullback.attended
    assert attended is not None
    length = np.empty(0) if stage.length is None else stage.length.numpy()[order, 0]
    of_mean = _columns(attended.mean, order)
    return Numbers(_columns(stage.points, order), of_mean, attended.log_partition.numpy()[order], length)


def _columns(rows: Float[Tensor, "n d"], order: np.ndarray) -> np.ndarray:
    """(d, n) in that order."""
    found = np.empty(tuple(rows.shape[::-1]))
    sorted_columns(rows.numpy(), order, found)
    return found


def _rows(columns: np.ndarray, order: np.ndarray) -> Float[Tensor, "n d"]:
    """(n, d) in the order of the tokens."""
    found = np.empty(columns.shape[::-1])
    unsorted_rows(columns, order, found)
    return torch.from_numpy(found)


# Rows of a block as arrays of their own, few in a loop: of indices that might be negative, and of many arrays that
# might overlap, LLVM makes no vectors.
@compiled
def _multiplied(factor: float, given: Any, out: Any) -> None:
    for i in range(len(out)):
        out[i] += factor * given[i]


@compiled
def _product(one: Any, other: Any, out: Any) -> None:
    for i in range(len(out)):
        out[i] += one[i] * other[i]


@compiled
def _without(share: Any, direction: Any, out: Any) -> None:
    for i in range(len(out)):
        out[i] -= share[i] * direction[i]


@compiled
def _inner(one: Any, other: Any) -> float:
    total = 0.0
    for i in range(len(one)):
        total += one[i] * other[i]
    return total


@compiled
def _unnormalised(given: Any, x: Any, length: Any, out: Any) -> None:
    """P_x c/|z|, the transpose of z -> z/|z|; c itself where nothing was normalised."""
    d, n = x.shape
    share = np.empty(_BLOCK)
    for first in range(0, n, _BLOCK):
        last = min(first + _BLOCK, n)
        for a in range(d):
            to, row = out[a, first:last], given[a, first:last]
            for i in range(len(to)):
                to[i] = row[i]
        if len(length) > 0:
            inner, size = share[: last - first], length[first:last]
            inner[:] = 0.0
            for a in range(d):
                _product(x[a, first:last], out[a, first:last], inner)
            for a in range(d):
                to = out[a, first:last]
                _without(inner, x[a, first:last], to)
                for i in range(len(to)):
                    to[i] /= size[i]


@compiled
def _inward(
    x: Any, mean: Any, later: Any, weights: Any, V: Any, B: Any, c: Any, w: Any, g: Any, z: Any, shift: Any
) -> None:
    """c = sum_j a_j f_j,   w = P_x c,   g = w V,   s = <g, m>,   z = x (beta B)."""
    d, n = x.shape
    share = np.empty(_BLOCK)
    for first in range(0, n, _BLOCK):
        last = min(first + _BLOCK, n)
        inner, of_mean = share[: last - first], shift[first:last]
        inner[:], of_mean[:] = 0.0, 0.0
        for a in range(d):
            to, copy = c[a, first:last], w[a, first:last]
            to[:] = 0.0
            for j in range(len(weights)):
                if weights[j] != 0.0:
                    _multiplied(weights[j], later[j, a, first:last], to)
            _product(to, x[a, first:last], inner)
            for i in range(len(to)):
                copy[i] = to[i]
        for a in range(d):
            _without(inner, x[a, first:last], w[a, first:last])
        for a in range(d):
            inward, query = g[a, first:last], z[a, first:last]
            inward[:], query[:] = 0.0, 0.0
            for b in range(d):
                _multiplied(V[b, a], w[b, first:last], inward)
                _multiplied(B[b, a], x[b, first:last], query)
            _product(inward, mean[a, first:last], of_mean)


@compiled
def _outward(
    x: Any, mean: Any, c: Any, w: Any, V: Any, B: Any, by_query: Any, by_key: Any, length: Any, found: Any,
    of_V: Any, scores: Any,
) -> None:  # fmt: skip
    """f = P_x (by_key + by_query (beta B)^T - <x, V m> c - <x, c> V m)/|z|,   V += w^T m,   S += x^T by_query."""
    d, n = x.shape
    shares, fields = np.empty((2, _BLOCK)), np.empty((d, _BLOCK))
    for first in range(0, n, _BLOCK):
        last = min(first + _BLOCK, n)
        along, beside = shares[0, : last - first], shares[1, : last - first]
        along[:], beside[:] = 0.0, 0.0
        for a in range(d):
            field = fields[a, : last - first]
            field[:] = 0.0
            for b in range(d):
                _multiplied(V[a, b], mean[b, first:last], field)
            _product(x[a, first:last], field, along)
            _product(x[a, first:last], c[a, first:last], beside)
        for a in range(d):
            to, row = found[a, first:last], by_key[a, first:last]
            for i in range(len(to)):
                to[i] = row[i]
            _without(along, c[a, first:last], to)
            _without(beside, fields[a, : last - first], to)
            for b in range(d):
                _multiplied(B[a, b], by_query[b, first:last], to)
                scores[a, b] += _inner(x[a, first:last], by_query[b, first:last])
                of_V[a, b] += _inner(w[a, first:last], mean[b, first:last])
    _unnormalised(found, x, length, found)
