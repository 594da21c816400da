"""Trial steps of many small systems, compiled: all stages of a system while it is in the first cache, all cores."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numba import njit

from metastable.attention.direct import DOUBLE, row_sums
from metastable.attention.exp2 import LOG2_E, REDUCTION
from metastable.flows.pairwise import Pairwise
from metastable.threads import over_rows

BOUND = DOUBLE.bound
"""Scores up to which one pass is enough; see `attention.direct.exponents`."""
LEAST_SHARE = 2.0**DOUBLE.share
"""Least mass over the largest with which masses multiply weights; see `attention.direct.exponents`."""
SLOTS = 8
"""Places for the tokens before a step and its seven stages."""
NANOSECONDS = 1.0
"""Rough cost of one pair of tokens in one stage, for the choice of threads."""


class CompiledTrial:
    """One embedded Runge-Kutta step of every system asked for, with steps of their own.

    table: a_ij and, as its last row, b_j, whose stage is the velocity at the end; errors: b_j - b*_j.
    """

    def __init__(
        self,
        flow: Pairwise,
        mass: Float[np.ndarray, "b n"],
        d: int,
        table: Float[np.ndarray, "s s"],
        errors: Float[np.ndarray, "s"],
    ) -> None:
        self.flow, self.mass, self.table, self.errors = flow, mass, table, errors
        shape = (*mass.shape, d)
        self.points, self.slope = np.empty(shape), np.empty(shape)
        self.kept = np.empty((SLOTS, *shape))
        """x and k_0 .. k_6 of the systems that are looked at inside their steps; the rest is undefined."""
        self.error, self.rate = np.empty(len(mass)), np.empty(len(mass))
        self.kernel = step_kernel(d, flow.spherical)

    def __call__(
        self,
        points: Float[np.ndarray, "b n d"],
        slope: Float[np.ndarray, "b n d"],
        which: Int[np.ndarray, "a"],
        h: Float[np.ndarray, "a"],
        inside: Bool[np.ndarray, "a"],
        allowed: tuple[float, float],
    ) -> None:
        """Fill `points`, `slope`, `error` and `rate`, in the order of `which`; `kept` where `inside` says so."""
        flow, (_, n, _) = self.flow, points.shape
        constants = (flow.V, flow.B, flow.beta, flow.log_scale, flow.normalised, flow.V_norm, flow.B_norm)
        out = (self.points, self.slope, self.kept, self.error, self.rate)

        def some(start: int, stop: int) -> None:
            self.kernel(
                start, stop, points, slope, self.mass, which, h, inside, *allowed, *constants, self.table,
                self.errors, *out,
            )  # fmt: skip

        stages = len(self.errors) - 1
        over_rows(some, len(which), cost=NANOSECONDS * len(which) * n * n * stages * len(flow.V))


@cache
def step_kernel(d: int, spherical: bool) -> Callable[..., None]:
    """The compiled loop over systems in one dimension; kept on disk."""
    one_pass, two_passes = row_sums(d, d, False)

    @njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
    def kernel(
        first: int, last: int, points: Any, slope: Any, mass: Any, which: Any, h: Any, inside: Any, rtol: float,
        atol: float, V: Any, B: Any, beta: Any, log_scale: Any, normalised: Any, V_norm: Any, B_norm: Any,
        table: Any, errors: Any, points_out: Any, slope_out: Any, kept: Any, error_out: Any, rate_out: Any,
    ) -> None:  # fmt: skip
        n, stages, heads = points.shape[1], len(errors), V.shape[0]
        x, y, k = np.empty((d, n)), np.empty((d, n)), np.empty((stages, d, n))
        queries, v, total = np.empty((d, n)), np.empty((d + 1, n)), np.empty((d + 1, n))
        share, log_share, length, shift = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
        q = np.empty(d)
        for r in range(first, last):
            s = which[r]
            least, largest = np.inf, 0.0
            for j in range(n):
                largest = max(largest, mass[s, j])
                least = min(least, mass[s, j]) if mass[s, j] > 0.0 else least
                for c in range(d):
                    x[c, j] = points[s, j, c]
                    k[0, c, j] = slope[s, j, c]
            in_exponent = least < LEAST_SHARE * largest
            for j in range(n):
                share[j] = 1.0 if in_exponent else mass[s, j] / largest
                log_share[j] = 0.0
            if in_exponent:
                for j in range(n):
                    log_share[j] = math.log2(mass[s, j] / largest) if mass[s, j] > 0.0 else -1e30
            rate = 0.0
            for stage in range(1, stages):
                for c in range(d):
                    yc = y[c]
                    for j in range(n):
                        yc[j] = x[c, j]
                    for i in range(stage):
                        weight = h[r] * table[stage, i]
                        for j in range(n):
                            yc[j] += weight * k[i, c, j]
                for j in range(n):
                    length[j] = 0.0
                for c in range(d):
                    for j in range(n):
                        length[j] += y[c, j] * y[c, j]
                radius = 1.0
                if spherical:
                    for j in range(n):
                        length[j] = 1.0 / math.sqrt(length[j])
                    for c in range(d):
                        for j in range(n):
                            y[c, j] *= length[j]
                else:
                    radius = 0.0
                    for j in range(n):
                        radius = max(radius, length[j])
                    radius = math.sqrt(radius)
                for c in range(d):
                    for j in range(n):
                        v[c, j] = share[j] * y[c, j]
                for j in range(n):
                    v[d, j] = share[j]
                rate = 0.0
                for head in range(heads):
                    scale, average = beta[head, s] * LOG2_E, 0.0
                    for j in range(n):
                        length[j] = 0.0
                    for c in range(d):
                        for j in range(n):
                            queries[c, j] = 0.0
                        for a in range(d):
                            weight = scale * B[head, a, c]
                            for j in range(n):
                                queries[c, j] += weight * y[a, j]
                        for j in range(n):
                            length[j] += queries[c, j] * queries[c, j]
                    bound = 0.0
                    for j in range(n):
                        shift[j] = math.sqrt(length[j]) * radius
                        bound = max(bound, shift[j])
                    if bound <= BOUND and not in_exponent:
                        for i in range(n):
                            for c in range(d):
                                q[c] = queries[c, i]
                            found = one_pass(q, shift[i], y, v, n)
                            for c in range(d + 1):
                                total[c, i] = found[c]
                    else:
                        for i in range(n):
                            for c in range(d):
                                q[c] = queries[c, i]
                            found, shift[i] = two_passes(q, y, v, log_share, n)
                            for c in range(d + 1):
                                total[c, i] = found[c]
                    if normalised[head]:
                        for i in range(n):
                            length[i] = 1.0 / total[d, i]
                            shift[i] = 1.0
                        for c in range(d):
                            for i in range(n):
                                total[c, i] *= length[i]
                                shift[i] -= total[c, i] * total[c, i]
                        for i in range(n):
                            average += mass[s, i] * max(0.0, shift[i])
                        rate += V_norm[head] * (2.0 + beta[head, s] * B_norm[head] * average)
                    else:
                        for i in range(n):
                            # Z e^-s over the sum of the row
                            length[i] = largest * math.exp(shift[i] / LOG2_E - log_scale[head, s])
                            average += mass[s, i] * total[d, i] * length[i]
                        for c in range(d):
                            for i in range(n):
                                total[c, i] *= length[i]
                        rate += V_norm[head] * average * (2.0 + beta[head, s] * B_norm[head])
                    for c in range(d):
                        if head == 0:
                            for i in range(n):
                                k[stage, c, i] = 0.0
                        for a in range(d):
                            weight = V[head, c, a]
                            for i in range(n):
                                k[stage, c, i] += weight * total[a, i]
                if spherical:
                    for j in range(n):
                        length[j] = 0.0
                    for c in range(d):
                        for j in range(n):
                            length[j] += k[stage, c, j] * y[c, j]
                    for c in range(d):
                        for j in range(n):
                            k[stage, c, j] -= length[j] * y[c, j]
            worst = 0.0
            for j in range(n):
                inner, square, before, after = 0.0, 0.0, 0.0, 0.0
                for c in range(d):
                    e = 0.0
                    for i in range(stages):
                        e += errors[i] * k[i, c, j]
                    e *= h[r]
                    inner += e * y[c, j]
                    square += e * e
                    before += x[c, j] * x[c, j]
                    after += y[c, j] * y[c, j]
                if spherical:
                    ratio = max(square - inner * inner, 0.0) / (rtol + atol) ** 2
                else:
                    ratio = square / (atol + rtol * math.sqrt(max(before, after))) ** 2
                worst = ratio if not ratio <= worst else worst
            error_out[r], rate_out[r] = math.sqrt(worst), rate
            for j in range(n):
                for c in range(d):
                    points_out[r, j, c] = y[c, j]
                    slope_out[r, j, c] = k[stages - 1, c, j]
            if inside[r]:
                for j in range(n):
                    for c in range(d):
                        kept[0, r, j, c] = x[c, j]
                for i in range(stages):
                    for j in range(n):
                        for c in range(d):
                            kept[1 + i, r, j, c] = k[i, c, j]

    return kernel
