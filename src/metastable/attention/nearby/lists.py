"""Keys on the circle that count for eight queries, as a list of groups; what is left out is bounded row by row.

The sum over the keys of any one group is a lower bound e^f of the partition of a query z, so that keys with scores
<z, k> below T = f + log(eps/M), M the mass of all, may be left out together at the cost of eps: `nearby.caps` tells
which groups have others.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.exp2 import LOG2_E, REDUCTION, wide
from metastable.attention.lanes import LANES
from metastable.attention.nearby.caps import end_of_run, look_at, reach_kernel, space_for
from metastable.attention.nearby.lanes import sums_in_the_plane
from metastable.attention.nearby.taylor import least_degree, pays
from metastable.attention.nearby.tree import LEAF

SHARE = 0.15
"""Part of the tolerance for keys that are left out, of the partition; twice that of the mean."""
TIGHT = 0.3
"""Share of the leaves beyond which the tree with its polynomials is faster than lists."""
HIGHEST = 400.0
"""Largest score above the shift of a row that is surely no overflow."""
_PLANE = 2


@njit(cache=True, nogil=True, error_model="numpy")
def tight(leaves: Any, sharpness: float, rtol: float, table: Any) -> bool:
    """Whether polynomials take less time than pairs between tokens of a leaf, for enough of the leaves.

    table: `taylor.monomials`.
    """
    many = 0
    for leaf in range(leaves.runs):
        square = 2.0 * (1.0 - leaves.cosine[leaf])
        degree = least_degree(sharpness * square, SHARE * rtol)
        many += degree > 0 and pays(LEAF, LEAF, table.ends[degree], table.ends[degree - 1])
    return many > TIGHT * leaves.runs


_groups_that_count = reach_kernel(_PLANE)


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def attend_lists(
    first_block: int, last_block: int, keys: Any, groups: Any, leaves: Any, queries: Any, rtol: float,
    mean: Any, log_partition: Any,
) -> int:  # fmt: skip
    """Means (n, 2) and log-partitions of blocks of eight queries (2, n); returns how many pairs it took.

    groups, leaves: caps of runs of eight keys, and of eight groups.
    """
    wide()
    d, n_q, flat, length, pairs = _PLANE, queries.shape[1], keys.ravel(), keys.shape[1], 0
    end = length
    while keys[d, end - 1] == 0.0:
        end -= 1
    score, eight = np.empty(len(groups.cosine)), space_for(groups, leaves)
    kept, centre = eight.kept, eight.centre
    lanes, found = np.empty((d + 1) * LANES), np.empty((d + 1) * LANES)
    total = 0.0
    for g in range(groups.runs):
        total += math.exp(groups.log_mass[g])
    cut = math.log(SHARE * rtol / total)
    for block in range(first_block, last_block):
        start, stop = block * LANES, min((block + 1) * LANES, n_q)
        look_at(queries, start, eight)
        for c in range(d):
            for a in range(LANES):
                lanes[c * LANES + a] = queries[c, min(start + a, n_q - 1)] * LOG2_E
        # The group whose mean has the largest score at the centre gives the lower bound of all eight.
        best = _best(groups.mean, groups.log_mass, centre, score)
        score_of_run(keys, best * LANES, d, lanes)
        found[:] = 0.0
        sums_in_the_plane(flat, length, best * LANES, (best + 1) * LANES, lanes, found)
        steep = False
        for a in range(LANES):
            floor = -lanes[d * LANES + a] / LOG2_E + math.log(found[d * LANES + a])
            lanes[d * LANES + a] = -floor * LOG2_E
            steep |= eight.size[a] - floor > HIGHEST
            eight.least[a] = (floor + cut) / max(eight.size[a], 1e-300)
        chosen = _groups_that_count(groups, leaves, eight)
        if steep:
            _score_of_all(keys, kept, chosen, d, lanes)
        found[:] = 0.0
        j = 0
        while j < chosen:
            run, j = kept[j], end_of_run(kept, j, chosen)
            stop_at = min((kept[j - 1] + 1) * LANES, end)
            sums_in_the_plane(flat, length, run * LANES, stop_at, lanes, found)
        pairs += chosen * LANES * LANES
        for i in range(start, stop):
            a = i - start
            inverse = 1.0 / found[d * LANES + a]
            for c in range(d):
                mean[i, c] = found[c * LANES + a] * inverse
            log_partition[i] = math.log(found[d * LANES + a]) - lanes[d * LANES + a] / LOG2_E
    return pairs


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _best(mean: Any, log_mass: Any, z: Any, score: Any) -> int:
    """The run of keys with the largest score of its mean."""
    wide()
    for g in range(len(score)):
        score[g] = log_mass[g]
    for c in range(len(z)):
        factor = z[c]
        for g in range(len(score)):
            score[g] += factor * mean[c, g]
    top = -np.inf
    for g in range(len(score)):
        top = max(top, score[g])
    for g in range(len(score)):
        if score[g] >= top:
            return g
    return 0


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def score_of_run(keys: Any, start: int, d: int, lanes: Any) -> None:
    """Minus the largest score over a group, of keys that have a mass, as what is added to exponents."""
    for a in range(LANES):
        lanes[d * LANES + a] = 1e300
    for j in range(start, start + LANES):
        if keys[d, j] > 0.0:
            for a in range(LANES):
                value = 0.0
                for c in range(d):
                    value += lanes[c * LANES + a] * keys[c, j]
                lanes[d * LANES + a] = min(lanes[d * LANES + a], -value)


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _score_of_all(keys: Any, kept: Any, count: int, d: int, lanes: Any) -> None:
    """The same over all groups that are kept."""
    top = lanes[d * LANES :].copy()
    for place in range(count):
        score_of_run(keys, kept[place] * LANES, d, lanes)
        for a in range(LANES):
            top[a] = min(top[a], lanes[d * LANES + a])
    lanes[d * LANES :] = top
