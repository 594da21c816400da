"""Attention on S^2 in three rings around eight queries: keys in double precision, in single, and those left out.

Eight queries z_a have a centre c. A key all of whose scores are below f_a + log(delta), e^{f_a} a lower bound of
the partition of query a, is one that is far from c: with cos gamma_a = (f_a + log delta)/|z_a|,
    angle(c, k) >= max_a gamma_a + angle(c, z_a)   =>   <z_a, k> <= f_a + log delta  for all a.
Keys beyond the angle of delta = eps/M, M the mass of all, are left out together at the cost of eps, as in
`nearby.lists`. Between that and the angle of a larger delta weights are so small that five digits of them do: they
are summed in single precision (`nearby.single_lanes`). Their sum is known afterwards, and the bound of its error is
compared with what is allowed; where it is more, the sum is made again, and blocks that follow leave more to double
precision.

f_a is the sum over the group of keys whose mean has the largest score at c, or, as log Z is convex with gradient m,
    log Z(z_a) >= log Z(z_b) + <m(z_b), z_a - z_b>
with the queries b of the block before. The scores of keys at c decide, pair by pair of keys that are neighbours on
the curve; groups of eight and leaves of 64 that are far as a whole are not looked into (`nearby.split`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.exp2 import LN_2, LOG2_E, REDUCTION, exp2, log, wide
from metastable.attention.lanes import LANES
from metastable.attention.nearby.caps import LEAST_SINE, NEVER, ROUNDING
from metastable.attention.nearby.lanes import coarse_sums_of_pairs, sums_in_space, sums_of_pairs
from metastable.attention.nearby.lists import HIGHEST, SHARE, score_of_run
from metastable.attention.nearby.single_lanes import PLACES, single_error, single_sums
from metastable.attention.nearby.split import PLACES_OF_EIGHT, PLACES_OF_FOUR, best_run, caps_within, split_pairs

SINGLE_SHARE = 0.25
"""Part of the tolerance for sums in single precision, of the partition; twice that of the mean."""
CHAIN = 16
"""Blocks that follow from each other; the next is on its own, so that threads may share them."""
_MARGIN, _LEAST_MARGIN, _MOST_MARGIN = 0.5, -10.0, 15.0
"""How far, in scores, keys are left to double precision beyond where a key weighs what all of those in single
precision may: of the first block of a chain, the least, and the most."""
_AIM = 1.8
"""How far below what is allowed, in logarithms, the error in single precision is aimed at for the next block:
from 1.2 to 2.5 what is made again and what is left to double precision take the same time together."""
_GAP = 1.0
"""How far log Z may be above the tangents of the block before, by the variance of keys, if these are to do."""
_TANGENT = 0.01
"""What tangents are lowered by; they are taken where the error of m makes less than half of it."""
_WIDEST = 30.0
"""Exponents by which queries may differ from their centre for sums in single precision."""
_LEAST_CUT = -41.0
"""Logarithm of what a key that is left out may weigh, for sums in single precision: exponents that these raise to
-120 are -60 above the floor of a query, as floors differ by 2 `_WIDEST` at most, and are as good as left out."""
_DEEPEST = 150.0
"""Exponents below minus this are raised."""
_NONE = 1e300
"""Of logarithms and variances: not known."""
_D = 3


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def attend_rings(
    first_block: int, last_block: int, keys: Any, singles: Any, groups: Any, leaves: Any, queries: Any, rtol: float,
    coarse: bool, mean: Any, log_partition: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """Means (n, 3) and log-partitions of blocks of eight queries (3, n), the first a multiple of `CHAIN`.

    keys (4, n) with masses in the last row; singles (3, n): in single precision. groups, leaves: caps of runs of
    eight keys, and of eight groups. coarse: all keys that have a mass have mass one, and weights may err by
    `lanes.COARSE_ERROR`. Returns pairs in double precision, in single, and those made again.
    """
    wide()
    n_q, flat, flat_singles, length = queries.shape[1], keys.ravel(), singles.ravel(), keys.shape[1]
    end = length
    while keys[_D, end - 1] == 0.0:
        end -= 1
    near, far = np.empty(length // 2 + LANES, dtype=np.int64), np.empty(length // 2 + LANES, dtype=np.int64)
    kept, seen = np.empty(length // LANES + 2 * LANES, dtype=np.int64), np.empty(length // 64 + 24, dtype=np.int64)
    every, counts = np.arange(len(leaves.cosine) // LANES), np.empty(2, dtype=np.int64)
    top, where, of_centre = np.empty(LANES), np.empty(LANES, dtype=np.int64), np.empty(length, dtype=np.float32)
    lanes, found, ring = np.empty((_D + 1) * LANES), np.empty((_D + 1) * LANES), np.empty((_D + 1) * LANES)
    apart, some = np.empty(_D * PLACES, dtype=np.float32), np.empty((_D + 1) * PLACES, dtype=np.float32)
    sums, before, centre = np.empty((_D + 1) * PLACES), np.empty((_D + 1) * LANES), np.empty(_D)
    floor, size, along, across = np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES)
    log_mass, deepest = np.zeros(length), 0.0
    if not coarse:
        for j in range(end):
            log_mass[j] = math.log2(max(keys[_D, j], 1e-300))
            deepest = max(deepest, abs(log_mass[j]))
    total, steepest = 0.0, 0.0
    for g in range(groups.runs):
        total += math.exp(groups.log_mass[g])
    for i in range(n_q):
        steepest = max(steepest, queries[0, i] ** 2 + queries[1, i] ** 2 + queries[2, i] ** 2)
    steepest, cut, margin = math.sqrt(steepest), math.log(SHARE * rtol / total), _MARGIN
    in_double, in_single, again, spread = 0, 0, 0, _NONE
    old0, old1, old2 = 0.0, 0.0, 0.0
    leaf_axes, leaf_cosines, leaf_sines = leaves.axis.ravel(), leaves.cosine, leaves.sine
    axes, cosines, sines, means, log_masses = (
        groups.axis.ravel(), groups.cosine, groups.sine, groups.mean.ravel(), groups.log_mass
    )  # fmt: skip
    for block in range(first_block, last_block):
        start, stop = block * LANES, min((block + 1) * LANES, n_q)
        for c in range(_D):
            value = 0.0
            for a in range(LANES):
                entry = queries[c, min(start + a, n_q - 1)]
                lanes[c * LANES + a] = entry
                value += entry
            centre[c] = value / LANES
        c0, c1, c2 = centre[0], centre[1], centre[2]
        middle = max(math.sqrt(c0 * c0 + c1 * c1 + c2 * c2), 1e-300)
        widest = 0.0
        for a in range(LANES):
            z0, z1, z2 = lanes[a], lanes[LANES + a], lanes[2 * LANES + a]
            size[a] = max(math.sqrt(z0 * z0 + z1 * z1 + z2 * z2), 1e-300)
            along[a] = (c0 * z0 + c1 * z1 + c2 * z2) / (middle * size[a])
            across[a] = math.sqrt(max(1.0 - along[a] * along[a], 0.0))
            widest = max(widest, (z0 - c0) ** 2 + (z1 - c1) ** 2 + (z2 - c2) ** 2)
        widest = math.sqrt(widest)
        # Lower bounds of the partitions.
        moved = math.sqrt((c0 - old0) ** 2 + (c1 - old1) ** 2 + (c2 - old2) ** 2)
        if block % CHAIN == 0:
            margin, spread = _MARGIN, _NONE
        for a in range(LANES):
            floor[a] = -_NONE
        if spread < _NONE and 4.0 * rtol * (moved + 2.0 * widest) < _TANGENT:
            for b in range(LANES):
                m0, m1, m2, base = before[b], before[LANES + b], before[2 * LANES + b], before[3 * LANES + b]
                for a in range(LANES):
                    value = base + m0 * lanes[a] + m1 * lanes[LANES + a] + m2 * lanes[2 * LANES + a]
                    floor[a] = max(floor[a], value)
        for a in range(_D * LANES):
            lanes[a] *= LOG2_E
        if not 0.25 * spread * moved * moved < _GAP or not floor[0] > -_NONE:
            best = best_run(means, len(log_masses), log_masses, c0, c1, c2, top, where)
            _floors(keys, flat, means, best, steepest, lanes, found, floor)
        old0, old1, old2 = c0, c1, c2
        shift, steep = 0.0, False
        for a in range(LANES):
            lanes[_D * LANES + a] = -floor[a] * LOG2_E
            steep |= size[a] - floor[a] > HIGHEST
            shift += floor[a] * (LOG2_E / LANES)
        widest *= LOG2_E
        # Scores at the centre that part the rings.
        outer = _cosine_beyond(floor, size, along, across, cut)
        low = LOG2_E * middle * outer
        high, error = low, single_error(min(max(shift - low, 0.0) + deepest, _DEEPEST), widest)
        if not steep and widest < _WIDEST and cut > _LEAST_CUT:
            depth = math.log(error / (SINGLE_SHARE * rtol)) + margin
            high = max(LOG2_E * middle * _cosine_beyond(floor, size, along, across, -depth), low)
        cosine, sine = (outer, math.sqrt(1.0 - outer * outer)) if outer > 0.0 else (0.0, NEVER)
        sine = max(sine, LEAST_SINE)
        u0, u1, u2 = c0 / middle, c1 / middle, c2 / middle
        count = caps_within(
            leaf_axes, leaf_cosines, leaf_sines, every, len(every), u0, u1, u2, cosine, sine, PLACES_OF_EIGHT, seen
        )
        while count > 0 and seen[count - 1] >= leaves.runs:
            count -= 1
        count = caps_within(axes, cosines, sines, seen, count, u0, u1, u2, cosine, sine, PLACES_OF_EIGHT, kept)
        while count > 0 and kept[count - 1] >= groups.runs:
            count -= 1
        c0, c1, c2 = LOG2_E * c0, LOG2_E * c1, LOG2_E * c2
        split_pairs(
            flat, length, log_mass, kept, count, c0, c1, c2, shift, low, high, PLACES_OF_FOUR, of_centre, near, far,
            counts,
        )  # fmt: skip
        nears, fars = counts[0], counts[1]
        # Pairs that are not two keys; a last key that has no other is always summed.
        while nears > 0 and near[nears - 1] >= end // 2:
            nears -= 1
        while fars > 0 and far[fars - 1] >= end // 2:
            fars -= 1
        if steep:
            _score_of_pairs(keys, near, nears, end, lanes)
        found[:] = 0.0
        if end % 2 == 1:
            sums_in_space(flat, length, end - 1, end, lanes, found)
        _add_pairs(coarse, flat, length, near, nears, lanes, found)
        in_double += nears * 2 * LANES
        if fars > 0:
            for a in range(LANES):
                for c in range(_D):
                    value = lanes[c * LANES + a] - LOG2_E * centre[c]
                    apart[c * PLACES + 2 * a] = value
                    apart[c * PLACES + 2 * a + 1] = value
            sums[:] = 0.0
            single_sums(flat_singles, length, of_centre, far, fars, apart, some, sums)
            in_single += fars * 2 * LANES
            for a in range(LANES):
                top[a] = exp2(shift - floor[a] * LOG2_E)
            worst = 0.0
            for c in range(_D + 1):
                for a in range(LANES):
                    ring[c * LANES + a] = top[a] * (sums[c * PLACES + 2 * a] + sums[c * PLACES + 2 * a + 1])
            for a in range(LANES):
                small = ring[_D * LANES + a]
                worst = max(worst, small / (found[_D * LANES + a] + small))
            worst *= error / (SINGLE_SHARE * rtol)
            if worst <= 1.0:
                for a in range((_D + 1) * LANES):
                    found[a] += ring[a]
            else:
                again += fars * 2 * LANES
                _add_pairs(coarse, flat, length, far, fars, lanes, found)
            margin = min(max(margin + math.log(max(worst, 1e-3)) + _AIM, _LEAST_MARGIN), _MOST_MARGIN)
        else:
            margin = max(margin - 1.0, _LEAST_MARGIN)
        spread = 0.0
        for a in range(LANES):
            inverse, square, slope = 1.0 / found[_D * LANES + a], 0.0, 0.0
            for c in range(_D):
                value = found[c * LANES + a] * inverse
                before[c * LANES + a] = value
                square += value * value
                slope += value * lanes[c * LANES + a]
            log_z = log(found[_D * LANES + a]) - lanes[_D * LANES + a] * LN_2
            before[_D * LANES + a] = log_z - slope * LN_2 - _TANGENT
            spread = max(spread, 1.0 - square)
            floor[a] = log_z
        for i in range(start, stop):
            for c in range(_D):
                mean[i, c] = before[c * LANES + i - start]
            log_partition[i] = floor[i - start]
    return in_double, in_single, again


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _floors(
    keys: Any, flat: Any, means: Any, best: int, steepest: float, lanes: Any, found: Any, floor: Any
) -> None:  # fmt: skip
    """Logarithms of the sums over a group, where they are more than what stands there."""
    if steepest > HIGHEST:
        score_of_run(keys, best * LANES, _D, lanes)
    else:  # sums of e^{<z, k - mean>} are at least the mass
        groups = len(means) // _D
        for a in range(LANES):
            value = 0.0
            for c in range(_D):
                value -= lanes[c * LANES + a] * means[c * groups + best]
            lanes[_D * LANES + a] = value
    found[:] = 0.0
    sums_in_space(flat, keys.shape[1], best * LANES, (best + 1) * LANES, lanes, found)
    for a in range(LANES):
        floor[a] = max(floor[a], log(found[_D * LANES + a]) - lanes[_D * LANES + a] * LN_2)


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _add_pairs(coarse: bool, flat: Any, length: int, pairs: Any, count: int, lanes: Any, found: Any) -> None:
    if coarse:
        coarse_sums_of_pairs(flat, length, pairs, count, lanes, found)
    else:
        sums_of_pairs(flat, length, pairs, count, lanes, found)


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _cosine_beyond(floor: Any, size: Any, along: Any, across: Any, depth: float) -> float:
    """cos max_a (gamma_a + angle_a), cos gamma_a = (f_a + depth)/|z_a|; less than -1 where that is pi or more."""
    least = 1.0
    for a in range(LANES):
        cosine = min((floor[a] + depth) / size[a], 1.0)
        sine = math.sqrt(max(1.0 - cosine * cosine, 0.0))
        within = cosine > -1.0 and cosine > -along[a]
        least = min(least, cosine * along[a] - sine * across[a] if within else -2.0)
    return least - ROUNDING


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _score_of_pairs(keys: Any, pairs: Any, count: int, end: int, lanes: Any) -> None:
    """Minus the largest score over pairs, and over a last key that has no other, as what is added to exponents."""
    top = np.full(LANES, _NONE)
    for place in range(count + end % 2):
        first = 2 * pairs[place] if place < count else end - 1
        for j in range(first, min(first + 2, end)):
            for a in range(LANES):
                value = 0.0
                for c in range(_D):
                    value += lanes[c * LANES + a] * keys[c, j]
                top[a] = min(top[a], -value)
    for a in range(LANES):
        lanes[_D * LANES + a] = min(lanes[_D * LANES + a], top[a])
