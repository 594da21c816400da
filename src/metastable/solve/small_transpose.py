"""`SmallTranspose`: the transpose of the derivative of a step of one small system, compiled: a call for all stages.

The equations are those of `solve.adjoint`, of attention with constant weights (`Pairwise`) and few tokens, whose
runs `SmallSystem` makes: beside its steps, stages that are called one by one from Python take all the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from metastable.attention.direct import ABSENT, adjoint_kernel, row_sums, written_out
from metastable.attention.exp2 import LOG2_E, REDUCTION
from metastable.attention.lanes import LANES
from metastable.flows.multihead import MultiHead
from metastable.flows.pairwise import Pairwise, pairwise
from metastable.flows.pullback import HeadCotangent
from metastable.solve.compiled_trial import BOUND, LEAST_SHARE
from metastable.solve.problem import Problem
from metastable.solve.runge_kutta import RungeKutta
from metastable.solve.small_system import suits

FORWARDS, STEP_BACK, VELOCITY_BACK = range(3)
"""What the compiled function is asked for."""


class SmallTranspose:
    """A step of one small system made again, and its transpose."""

    def __init__(self, flow: Pairwise, factor: float, mass: Float[np.ndarray, "n"], table: RungeKutta) -> None:
        self.flow, self.factor, count = flow, factor, len(table.nodes)
        rows = [*table.stages, table.weights]
        self.table = np.zeros((count + 1, count))
        for stage, row in enumerate(rows):
            self.table[stage, : len(row)] = row.numpy()
        largest = float(mass.max())
        share = mass / largest
        with np.errstate(divide="ignore"):
            log_share = np.maximum(np.log2(share), -ABSENT)
        in_exponent = bool((share[share > 0] < LEAST_SHARE).any())
        self.masses = (share, log_share, in_exponent, largest)
        self.kernel = transpose_kernel(flow.V.shape[1])

    def end(self, points: Float[Tensor, "n d"], h: float) -> Float[Tensor, "n d"]:
        """The tokens after a step."""
        return torch.from_numpy(self._step(points, h, FORWARDS, points)[0])

    def back(
        self, points: Float[Tensor, "n d"], h: float, cotangent: Float[Tensor, "n d"]
    ) -> tuple[Float[Tensor, "n d"], Sequence[HeadCotangent]]:
        """From cotangents of the tokens after the step to those of the tokens before it and of the weights."""
        _, tokens, V, B, beta = self._step(points, h, STEP_BACK, cotangent)
        heads = [
            HeadCotangent(torch.from_numpy(self.factor * V[i]), torch.from_numpy(B[i]), float(beta[i]))
            for i in range(len(V))
        ]
        return torch.from_numpy(tokens), heads

    def velocity_back(self, points: Float[Tensor, "n d"], cotangent: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """From cotangents of the velocities to those of the tokens they are at, for a table of one stage."""
        return torch.from_numpy(self._step(points, 0.0, VELOCITY_BACK, cotangent)[1])

    def _step(self, points: Tensor, h: float, way: int, cotangent: Tensor) -> tuple[np.ndarray, ...]:
        flow, (n, d) = self.flow, points.shape
        heads, x, given = len(flow.V), points.contiguous().numpy(), cotangent.contiguous().numpy()
        out = np.empty((n, d)), np.zeros((n, d)), np.zeros((heads, d, d)), np.zeros((heads, d, d)), np.zeros(heads)
        constants = flow.V, flow.B, flow.beta[:, 0], flow.log_scale[:, 0], flow.normalised, flow.spherical
        self.kernel(x, h, self.table, *self.masses, *constants, way, given, *out)
        return out


def small_transpose(problem: Problem, points: Float[Tensor, "n d"], table: RungeKutta) -> SmallTranspose | None:
    """The compiled transpose where the run is compiled, too; else None."""
    flow = problem.flow
    if not suits(problem, points) or (table.ambient and flow.residual):
        return None
    arrays = pairwise(flow, 1)
    factor = flow.factor if isinstance(flow, MultiHead) else 1.0
    return None if arrays is None else SmallTranspose(arrays, factor, problem.mass.numpy(), table)


@cache
def transpose_kernel(d: int) -> Callable[..., None]:
    """The compiled step and its transpose in one dimension; kept on disk.

    The compiler knows the dimension where pairs are summed; elsewhere it would only have more to unroll.
    """
    one_pass, two_passes = row_sums(written_out(d, d), False)
    over_pairs = adjoint_kernel(d)

    @njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
    def kernel(
        points: Any, h: float, table: Any, share: Any, log_share: Any, in_exponent: bool, largest: float, V: Any,
        B: Any, beta: Any, log_scale: Any, normalised: Any, spherical: bool, way: int, cotangent: Any, end: Any,
        of_tokens: Any, of_V: Any, of_B: Any, of_beta: Any,
    ) -> None:  # fmt: skip
        n, dim, count, heads = points.shape[0], points.shape[1], table.shape[1], V.shape[0]
        x, y, length = np.empty((d, n)), np.empty((count + 1, d, n)), np.ones((count + 1, n))
        drift, k = np.zeros((count, d, n)), np.empty((count, d, n))
        mean, log_z = np.empty((count, heads, d, n)), np.empty((count, heads, n))
        v, queries, inner, q = np.empty((d + 1, n)), np.empty((d, n)), np.empty(n), np.empty(d)
        w, total, shift = np.empty(n), np.empty((d + 1, n)), np.empty(n)
        exponent = log_share if in_exponent else np.zeros(n)
        for j in range(n):
            v[d, j] = 1.0 if in_exponent else share[j]
            for c in range(dim):
                x[c, j] = points[j, c]
        for stage in range(count + 1):
            now = y[stage]
            for c in range(dim):
                for j in range(n):
                    now[c, j] = x[c, j]
                for i in range(min(stage, count)):
                    weight = h * table[stage, i]
                    if weight != 0.0:
                        for j in range(n):
                            now[c, j] += weight * k[i, c, j]
            radius = 1.0
            for j in range(n):
                inner[j] = 0.0
            for c in range(dim):
                for j in range(n):
                    inner[j] += now[c, j] * now[c, j]
            if spherical and stage > 0:
                for j in range(n):
                    length[stage, j] = math.sqrt(inner[j])
                for c in range(dim):
                    for j in range(n):
                        now[c, j] /= length[stage, j]
            if not spherical:
                radius = 0.0
                for j in range(n):
                    radius = max(radius, inner[j])
                radius = math.sqrt(radius)
            if stage == count:
                break
            for c in range(dim):
                for j in range(n):
                    v[c, j] = v[d, j] * now[c, j]
            for head in range(heads):
                scale, bound = beta[head] * LOG2_E, 0.0
                for j in range(n):
                    inner[j] = 0.0
                for c in range(dim):
                    for j in range(n):
                        queries[c, j] = 0.0
                    for a in range(dim):
                        weight = scale * B[head, a, c]
                        for j in range(n):
                            queries[c, j] += weight * now[a, j]
                    for j in range(n):
                        inner[j] += queries[c, j] * queries[c, j]
                for j in range(n):
                    bound = max(bound, inner[j])
                bound = math.sqrt(bound) * radius
                if bound <= BOUND and not in_exponent:
                    for i in range(n):
                        for c in range(dim):
                            q[c] = queries[c, i]
                        shift[i] = bound
                        one_pass(q, bound, now, v, n, w, total, i)
                else:
                    for i in range(n):
                        for c in range(dim):
                            q[c] = queries[c, i]
                        shift[i] = two_passes(q, now, v, exponent, n, w, total, i)
                for i in range(n):
                    log_z[stage, head, i] = shift[i] + math.log2(total[d, i])
                    for c in range(dim):
                        mean[stage, head, c, i] = total[c, i] / total[d, i]
                for i in range(n):
                    inner[i] = 1.0
                if not normalised[head]:
                    for i in range(n):
                        inner[i] = largest * math.exp(log_z[stage, head, i] / LOG2_E - log_scale[head])
                for c in range(dim):
                    for a in range(dim):
                        weight = V[head, c, a]
                        for i in range(n):
                            drift[stage, c, i] += weight * inner[i] * mean[stage, head, a, i]
            for c in range(dim):
                for j in range(n):
                    k[stage, c, j] = drift[stage, c, j]
            if spherical:
                for j in range(n):
                    inner[j] = 0.0
                for c in range(dim):
                    for j in range(n):
                        inner[j] += drift[stage, c, j] * now[c, j]
                for c in range(dim):
                    for j in range(n):
                        k[stage, c, j] -= inner[j] * now[c, j]
        for j in range(n):
            for c in range(dim):
                end[j, c] = y[count, c, j]
        if way == FORWARDS:
            return
        total, found_, of_slopes = np.empty((n, d)), np.empty((n, d)), np.zeros((count, n, d))
        step_back = way == STEP_BACK
        for j in range(n):
            for c in range(dim):
                total[j, c] = cotangent[j, c] if step_back else 0.0
                of_slopes[count - 1, j, c] = cotangent[j, c]
        if step_back:
            _unnormalised(y[count], length[count], total, spherical)
            for i in range(count):
                for j in range(n):
                    for c in range(dim):
                        of_slopes[i, j, c] = h * table[count, i] * total[j, c]
        whole = -(-n // LANES) * LANES
        packed, by_key, by_query = np.zeros((1, d + 1, whole)), np.zeros((1, d, whole)), np.empty((n, d))
        inward, sharp, shift_, moved = np.empty((n, d)), np.empty((n, d)), np.empty(n), np.empty((n, d))
        for j in range(n):
            packed[0, d, j] = log_share[j]
        for stage in range(count - 1, -1, -1):
            now, given = y[stage], of_slopes[stage]
            for j in range(n):
                along, beside = 0.0, 0.0
                for c in range(dim):
                    packed[0, c, j] = now[c, j]
                    along += now[c, j] * drift[stage, c, j]
                    beside += now[c, j] * given[j, c]
                for c in range(dim):
                    moved[j, c] = given[j, c] - beside * now[c, j] if spherical else given[j, c]
                    found_[j, c] = -along * given[j, c] - beside * drift[stage, c, j] if spherical else 0.0
            for head in range(heads):
                for i in range(n):
                    factor, s = 1.0, 0.0
                    if not normalised[head]:
                        factor = largest * math.exp(log_z[stage, head, i] / LOG2_E - log_scale[head])
                    for a in range(dim):
                        g, turned = 0.0, 0.0
                        for c in range(dim):
                            g += moved[i, c] * V[head, c, a]
                            turned += now[c, i] * B[head, c, a]
                            of_V[head, c, a] += moved[i, c] * factor * mean[stage, head, a, i]
                        inward[i, a], sharp[i, a] = factor * g, beta[head] * turned
                        s += factor * g * mean[stage, head, a, i]
                    shift_[i] = s if normalised[head] else 0.0
                for j in range(n):
                    for c in range(dim):
                        by_key[0, c, j], by_query[j, c] = 0.0, 0.0
                over_pairs(sharp, packed, n, n, log_z[stage, head], inward, shift_, 0, n, by_query, by_key)
                for i in range(n):
                    for a in range(dim):
                        turned, pulled = 0.0, by_key[0, a, i]
                        for c in range(dim):
                            turned += now[c, i] * B[head, c, a]
                            pulled += beta[head] * B[head, a, c] * by_query[i, c]
                            of_B[head, c, a] += beta[head] * now[c, i] * by_query[i, a]
                        found_[i, a] += pulled
                        of_beta[head] += turned * by_query[i, a]
            _unnormalised(now, length[stage], found_, spherical and stage > 0)
            for j in range(n):
                for c in range(dim):
                    total[j, c] += found_[j, c]
            for i in range(stage):
                weight = h * table[stage, i]
                if weight != 0.0:
                    for j in range(n):
                        for c in range(dim):
                            of_slopes[i, j, c] += weight * found_[j, c]
        for j in range(n):
            for c in range(dim):
                of_tokens[j, c] = total[j, c]

    return kernel


@njit(nogil=True, cache=True, error_model="numpy")
def _unnormalised(points: Any, length: Any, cotangent: Any, spherical: bool) -> None:
    """P_y w/|z|, in place: the transpose of the derivative of z -> z/|z|."""
    if not spherical:
        return
    for j in range(cotangent.shape[0]):
        inner = 0.0
        for c in range(cotangent.shape[1]):
            inner += cotangent[j, c] * points[c, j]
        for c in range(cotangent.shape[1]):
            cotangent[j, c] = (cotangent[j, c] - inner * points[c, j]) / length[j]
