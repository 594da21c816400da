"""The transpose of the derivative of attention on S^2 over pairs that count; what is left out is bounded.

In the letters of `direct.adjoint`, a key j may be left out of row i where e^{<q_i, y_j>}/Z_i <= eps/M, M the mass
of all: then p_ij <= eps m_j/M, the weights that a row loses sum up to eps, and

    by_query_i errs by eps (|g_i| + |s_i|),    by_key_j by eps m_j/M sum_i (|g_i| + (|g_i| + |s_i|) |q_i|).

log Z is known, so that no lower bound of it is looked for, as `nearby.lists` does: scores do not count that are
below log Z_i + log(eps/M). Groups of eight keys that do for one of eight queries are met by all eight
(`nearby.lanes_adjoint`), once for both sums. No weight exceeds one, so that nothing overflows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.exp2 import LOG2_E, REDUCTION, wide
from metastable.attention.lanes import LANES
from metastable.attention.nearby.caps import end_of_run, look_at, measure_caps, reach_kernel, space_for
from metastable.attention.nearby.lanes_adjoint import ROWS, coarse_sums_both_ways, sums_both_ways
from metastable.attention.nearby.tree import LEAF
from metastable.threads import over_rows

SHARE = 0.8
"""Part of the tolerance for what is left out; the rest is for rounding."""
_COARSE = 1e-10
"""Tolerance from which exponentials need not be exact to the last digit, as in `nearby.attend`."""
PIECES = 8
"""Ranges of queries whose sums for keys are kept apart until the end, so that the digits do not depend on the
threads."""

_groups_that_count = reach_kernel(3)


def adjoint_by_lists(
    keys: np.ndarray, z: np.ndarray, log_partition: np.ndarray, cotangent: np.ndarray, shift: np.ndarray,
    log_mass: float, rtol: float, by_query: np.ndarray, by_key: np.ndarray,
) -> int:  # fmt: skip
    """`adjoint_sorted` over the pairs that count; returns how many it took."""
    blocks = -(-z.shape[1] // LANES)
    pieces = min(PIECES, blocks)
    groups, leaves = measure_caps(keys, 3, LANES), measure_caps(keys, 3, LEAF)
    sent, pairs = np.zeros((pieces, 3, keys.shape[1])), [0] * pieces
    edges = [blocks * piece // pieces for piece in range(pieces + 1)]
    cut, coarse = math.log(SHARE * rtol) - log_mass, rtol >= _COARSE

    def work(first: int, last: int) -> None:
        for piece in range(first, last):
            here = edges[piece], edges[piece + 1]
            pairs[piece] = _rows(
                *here, keys, groups, leaves, z, log_partition, cotangent, shift, cut, coarse, by_query, sent[piece]
            )

    over_rows(work, pieces, cost=0.3 * z.shape[1] * keys.shape[1])
    np.sum(sent, axis=0, out=by_key)
    return sum(pairs)


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _rows(
    first_block: int, last_block: int, keys: Any, groups: Any, leaves: Any, queries: Any, log_partition: Any,
    cotangent: Any, shift: Any, cut: float, coarse: bool, by_query: Any, sent: Any,
) -> int:  # fmt: skip
    """by_query (3, n) of blocks of eight queries (3, n), and what they send to the keys; returns its pairs."""
    wide()
    n_q, length, pairs = queries.shape[1], keys.shape[1], 0
    flat, to, eight = keys.ravel(), sent.ravel(), space_for(groups, leaves)
    rows, sums, kept = np.zeros(LANES * ROWS), np.empty(LANES * 3 * LANES), eight.kept
    for block in range(first_block, last_block):
        start, stop = block * LANES, min((block + 1) * LANES, n_q)
        look_at(queries, start, eight)
        rows[:] = 0.0
        for a in range(LANES):
            i = min(start + a, n_q - 1)
            eight.least[a] = (log_partition[i] + cut) / max(eight.size[a], 1e-300)
            rows[ROWS * a + 3] = -log_partition[i] * LOG2_E
            for c in range(3):
                rows[ROWS * a + c] = queries[c, i] * LOG2_E
        # Places beyond the last query have no cotangent, and send nothing.
        for i in range(start, stop):
            at = ROWS * (i - start)
            rows[at + 7] = -shift[i]
            for c in range(3):
                rows[at + 4 + c], rows[at + 8 + c] = cotangent[c, i], queries[c, i]
        chosen = _groups_that_count(groups, leaves, eight)
        sums[:] = 0.0
        j = 0
        while j < chosen:
            run, j = kept[j], end_of_run(kept, j, chosen)
            if coarse:
                coarse_sums_both_ways(flat, length, run * LANES, (kept[j - 1] + 1) * LANES, rows, sums, to)
            else:
                sums_both_ways(flat, length, run * LANES, (kept[j - 1] + 1) * LANES, rows, sums, to)
        pairs += chosen * LANES * LANES
        for i in range(start, stop):
            for c in range(3):
                at, value = (3 * (i - start) + c) * LANES, 0.0
                for a in range(LANES):
                    value += sums[at + a]
                by_query[c, i] = value
    return pairs
