"""The angular velocity of attention on the circle, compiled: angles and masses of either sign in, velocities out.

    theta' = <x^perp, V m(x)>,  m(x) = sum_j m_j e^{beta <x, B x_j>} x_j / sum_j m_j e^{beta <x, B x_j>}
With the thousand nodes of a mean field the sums take half a millisecond, and `attend` around them as long again.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.direct import DOUBLE, row_sums
from metastable.attention.exp2 import LOG2_E, REDUCTION, wide
from metastable.meanfield.piecewise import Array
from metastable.threads import over_rows
from metastable.weights import AttentionWeights

MOST_PAIRS = 2**22
"""Pairs up to which `attend` would take all of them one by one, too; for more it has faster ways."""
BOUND = DOUBLE.bound
"""Scores up to which one pass is enough; see `attention.direct.exponents`."""
NANOSECONDS = 0.9
"""Rough cost of one pair, for the choice of threads."""


def turning(w: AttentionWeights, beta: float, theta: Array, mass: Array, at: Array) -> Array:
    """theta' at the angles `at` for the masses at the angles theta."""
    V, B = (np.ascontiguousarray(matrix.numpy(force=True), dtype=np.float64) for matrix in (w.V, w.B))
    x, sources = np.stack([np.cos(at), np.sin(at)]), np.stack([np.cos(theta), np.sin(theta)])
    weighted = np.concatenate([sources * mass, mass[None]])
    kernel, out = turning_kernel(), np.empty(len(at))
    queries = beta * LOG2_E * (B.T @ x)
    plain = beta * LOG2_E * w.B_norm <= BOUND

    def some(start: int, stop: int) -> None:
        kernel(queries[:, start:stop], x[:, start:stop], V, sources, weighted, plain, out[start:stop])

    over_rows(some, len(at), cost=NANOSECONDS * len(at) * len(theta))
    return out


@cache
def turning_kernel() -> Any:
    """The compiled loop over the angles; kept on disk."""
    one_pass, two_passes = row_sums(2, False)

    @njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
    def kernel(queries: Any, x: Any, V: Any, sources: Any, weighted: Any, plain: bool, out: Any) -> None:
        wide()
        rows, n = queries.shape[1], sources.shape[1]
        total, w, none = np.empty((3, rows)), np.empty(n), np.zeros(n)
        q = np.empty(2)
        if plain:
            for i in range(rows):
                q[0], q[1] = queries[0, i], queries[1, i]
                one_pass(q, math.sqrt(q[0] * q[0] + q[1] * q[1]), sources, weighted, n, w, total, i)
        else:
            for i in range(rows):
                q[0], q[1] = queries[0, i], queries[1, i]
                two_passes(q, sources, weighted, none, n, w, total, i)
        for i in range(rows):
            m0, m1 = total[0, i] / total[2, i], total[1, i] / total[2, i]
            v0, v1 = V[0, 0] * m0 + V[0, 1] * m1, V[1, 0] * m0 + V[1, 1] * m1
            out[i] = x[0, i] * v1 - x[1, i] * v0

    return kernel
