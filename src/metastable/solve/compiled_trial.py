"""Trial steps of many small systems, compiled: all stages of a system while it is in the first cache, all cores."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numba import njit

from metastable.attention.direct import DOUBLE, row_sums, with_item, written_out
from metastable.attention.exp2 import LOG2_E, REDUCTION, wide
from metastable.attention.lasting import lasting
from metastable.flows.pairwise import Pairwise
from metastable.solve.tableau import Tableau
from metastable.threads import over_rows

BOUND = DOUBLE.bound
"""Scores up to which one pass is enough; see `attention.direct.exponents`."""
LEAST_SHARE = 2.0**DOUBLE.share
"""Least mass over the largest with which masses multiply weights; see `attention.direct.exponents`."""
NANOSECONDS = 1.0
"""Rough cost of one pair of tokens in one stage, for the choice of threads."""


class CompiledTrial:
    """One embedded Runge-Kutta step of every system asked for, with steps of their own."""

    def __init__(self, flow: Pairwise, mass: Float[np.ndarray, "b n"], d: int, pair: Tableau) -> None:
        self.flow, self.mass, self.pair = flow, mass, pair
        shape = (*mass.shape, d)
        self.points, self.slope = np.empty(shape), np.empty(shape)
        self.kept = np.empty((1 + len(pair.nodes), *shape))
        """x and all stages of the systems that are looked at inside their steps; the rest is undefined."""
        self.error, self.rate = np.empty(len(mass)), np.empty(len(mass))
        self.kernel = step_kernel(written_out(d, d))

    def __call__(
        self,
        points: Float[np.ndarray, "b n d"],
        slope: Float[np.ndarray, "b n d"],
        which: Int[np.ndarray, "a"],
        h: Float[np.ndarray, "a"],
        inside: Bool[np.ndarray, "a"],
        allowed: tuple[float, float],
    ) -> None:
        """Fill `points`, `slope`, `error` and `rate`, in the order of `which`; `kept` where `inside` says so.

        Where the error is above one, `slope` and `rate` are undefined, unless the error is made of that slope.
        """
        flow, pair, n = self.flow, self.pair, points.shape[1]
        constants = (
            flow.V,
            flow.B,
            flow.beta,
            flow.log_scale,
            flow.normalised,
            flow.V_norm,
            flow.B_norm,
            flow.spherical,
        )
        method = (pair.table, pair.errors, pair.damping)
        out = (self.points, self.slope, self.kept, self.error, self.rate)

        def some(start: int, stop: int) -> None:
            self.kernel(
                start, stop, points, slope, self.mass, which, h, inside, *allowed, *constants, *method, *out
            )

        over_rows(some, len(which), cost=NANOSECONDS * len(which) * n * n * pair.end * len(flow.V))

    def evaluations(self, errors: Float[np.ndarray, "a"], inside: Bool[np.ndarray, "a"]) -> int:
        """How many those steps took: one less where the error alone rejects, as it does not need the last."""
        spared = 0 if self.pair.errors[:, self.pair.end].any() else int((~(errors <= 1.0) & ~inside).sum())
        return self.pair.end * len(errors) - spared


@cache
def step_kernel(columns: int) -> Callable[..., None]:
    """The compiled loop over systems for `written_out` columns; kept on disk."""
    one_pass, two_passes = row_sums(columns, False)

    @njit(fastmath=REDUCTION, nogil=True, error_model="numpy")
    def largest_error(
        x: Any, after: Any, k: Any, used: int, errors: Any, h: float, rtol: float, atol: float, damping: float,
        spherical: bool,
    ) -> float:  # fmt: skip
        """max_j e_j^2 / sqrt(e_j^2 + D f_j^2) of the first `used` stages, relative to what is allowed."""
        n, d, worst = x.shape[1], columns or x.shape[0], 0.0
        for j in range(n):
            scale = rtol + atol
            if not spherical:
                size_before, size_after = 0.0, 0.0
                for c in range(d):
                    size_before += x[c, j] * x[c, j]
                    size_after += after[c, j] * after[c, j]
                scale = atol + rtol * math.sqrt(max(size_before, size_after))
            squares = (0.0, 0.0)
            for which_error in range(2):
                inner, square = 0.0, 0.0
                for c in range(d):
                    e = 0.0
                    for i in range(used):
                        e += errors[which_error, i] * k[i, c, j]
                    inner += e * after[c, j]
                    square += e * e
                if spherical:
                    square = max(square - inner * inner, 0.0) if square >= 0.0 else square
                squares = with_item(squares, which_error, square * (h / scale) ** 2)
            first_square, second_square = squares
            ratio = first_square
            if first_square > 0.0:
                ratio = first_square / math.sqrt(first_square + damping * second_square)
            worst = ratio if not ratio <= worst else worst
        return worst

    error_of = lasting(largest_error, f"error of a step {columns}")

    @njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
    def kernel(
        first: int, last: int, points: Any, slope: Any, mass: Any, which: Any, h: Any, inside: Any, rtol: float,
        atol: float, V: Any, B: Any, beta: Any, log_scale: Any, normalised: Any, V_norm: Any, B_norm: Any,
        spherical: bool, table: Any, errors: Any, damping: float, points_out: Any, slope_out: Any, kept: Any,
        error_out: Any, rate_out: Any,
    ) -> None:  # fmt: skip
        wide()
        n, d, end, heads = points.shape[1], columns or points.shape[2], errors.shape[1] - 1, V.shape[0]
        x, y, after, k = np.empty((d, n)), np.empty((d, n)), np.empty((d, n)), np.empty((len(table), d, n))
        queries, v, total = np.empty((d, n)), np.empty((d + 1, n)), np.empty((d + 1, n))
        share, log_share, length, shift = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
        q, w = np.empty(d), np.empty(n)
        last_needed = errors[0, end] != 0.0 or errors[1, end] != 0.0
        for r in range(first, last):
            s, worst = which[r], np.inf
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
            for stage in range(1, len(table) if inside[r] else end + 1):
                for c in range(d):
                    yc = y[c]
                    for j in range(n):
                        yc[j] = x[c, j]
                    for i in range(stage):
                        weight = h[r] * table[stage, i]
                        if weight != 0.0:
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
                if stage == end:
                    for c in range(d):
                        for j in range(n):
                            after[c, j] = y[c, j]
                    if not last_needed:
                        worst = error_of(x, after, k, end, errors, h[r], rtol, atol, damping, spherical)
                        if not worst <= 1.0 and not inside[r]:
                            break  # nobody asks for the velocity at the end of a step that is rejected
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
                            one_pass(q, shift[i], y, v, n, w, total, i)
                    else:
                        for i in range(n):
                            for c in range(d):
                                q[c] = queries[c, i]
                            shift[i] = two_passes(q, y, v, log_share, n, w, total, i)
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
                if stage == end:
                    rate_out[r] = rate
            if last_needed:
                worst = error_of(x, after, k, end + 1, errors, h[r], rtol, atol, damping, spherical)
            error_out[r] = worst
            for j in range(n):
                for c in range(d):
                    points_out[r, j, c] = after[c, j]
                    slope_out[r, j, c] = k[end, c, j]
            if inside[r]:
                for j in range(n):
                    for c in range(d):
                        kept[0, r, j, c] = x[c, j]
                for i in range(len(table)):
                    for j in range(n):
                        for c in range(d):
                            kept[1 + i, r, j, c] = k[i, c, j]

    return kernel
