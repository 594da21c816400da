"""Keys that count for eight queries, as a list of groups; what is left out is bounded row by row.

Keys of a group lie within an angle alpha of its axis u (a cap). The sum over the keys of any one group is a lower
bound e^f of the partition of a query z, so that keys with e^{<z, k>} below T = f + log(eps/M), M the mass of all,
may be left out together at the cost of eps. With cos gamma = T/|z| a group may, where
    angle(z, u) >= alpha + gamma,   that is   <z, u>/|z| <= cos alpha cos gamma - sin alpha sin gamma.
Nothing here is a root or an arc: the test is six multiplications for eight groups at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from metastable.attention.exp2 import LOG2_E, REDUCTION, wide
from metastable.attention.nearby.lanes import LANES, coarse_sums_in_space, sums_in_space, sums_in_the_plane
from metastable.attention.nearby.taylor import least_degree, pays
from metastable.attention.nearby.tree import LEAF

SHARE = 0.15
"""Part of the tolerance for keys that are left out, of the partition; twice that of the mean."""
TIGHT = 0.3
"""Share of the leaves beyond which the tree with its polynomials is faster than lists."""
_HIGHEST = 400.0
"""Largest score above the shift of a row that is surely no overflow."""
_NEVER = 1e9
"""A sine that no cosine makes up for: nothing is left out."""
_LEAST_SINE = 1e-6
"""Sines below count as this, so that their product with `_NEVER` is large."""
_APART = 0.6
"""Sine of the angle of eight queries to their mean, as a part of that of their reach, beyond which they are asked
one by one whether a group counts: 0.4 to 0.8 take the same time, 0.2 a fifth more at beta = 64."""
_ROUNDING = 1e-13
"""How far cosines may be off."""


class Caps(NamedTuple):
    """Of runs of keys of one length, padded to a multiple of eight of them."""

    runs: int
    """How many there are, the padding aside."""
    axis: np.ndarray
    """(d, runs)."""
    cosine: np.ndarray
    sine: np.ndarray
    """(runs,): of the angle within which all keys are; of the cap that is never left out (0, `_NEVER`)."""
    mean: np.ndarray
    """(d, runs): of the keys, by mass."""
    log_mass: np.ndarray
    """(runs,): -1e300 where there is nobody."""


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def measure_caps(keys: Any, d: int, length: int) -> Caps:
    """Of keys (d + 1, n) with the masses in the last row, in runs of `length`; the last one may be shorter."""
    n = keys.shape[1]
    count = -(-n // length)
    padded = -(-count // LANES) * LANES
    axis, mean = np.zeros((d, padded)), np.zeros((d, padded))
    cosine, sine, log_mass = np.zeros(padded), np.full(padded, _NEVER), np.full(padded, -1e300)
    for run in range(count):
        start, stop = run * length, min((run + 1) * length, n)
        total, square = 0.0, 0.0
        for j in range(start, stop):
            total += keys[d, j]
        for c in range(d):
            value = 0.0
            for j in range(start, stop):
                value += keys[d, j] * keys[c, j]
            mean[c, run] = value / total
            square += mean[c, run] ** 2
        size = math.sqrt(square)
        log_mass[run] = math.log(total)
        if size > 1e-3:  # a mean near zero has no direction
            for c in range(d):
                axis[c, run] = mean[c, run] / size
            least = 1.0
            for j in range(start, stop):
                along = 0.0
                for c in range(d):
                    along += keys[c, j] * axis[c, run]
                least = min(least, along)
            least -= _ROUNDING
            if least > 0.0:
                cosine[run] = least
                sine[run] = max(math.sqrt(max(1.0 - least * least, 0.0)), _LEAST_SINE)
    return Caps(count, axis, cosine, sine, mean, log_mass)


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


@cache
def lists_kernel(d: int) -> Callable[..., Any]:
    """Compiled rows(...) for d coordinates."""

    @njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
    def rows(
        first_block: int, last_block: int, keys: Any, groups: Any, leaves: Any, queries: Any, rtol: float,
        coarse: bool, mean: Any, log_partition: Any,
    ) -> int:  # fmt: skip
        """Means (n, d) and log-partitions of blocks of eight queries (d, n); returns how many pairs it took.

        groups, leaves: caps of runs of eight keys, and of eight groups. coarse: all keys that have a mass have mass
        one, and weights may err by `lanes.COARSE_ERROR`.
        """
        wide()
        n_q, flat, length, pairs = queries.shape[1], keys.ravel(), keys.shape[1], 0
        end = length
        while keys[d, end - 1] == 0.0:
            end -= 1
        score, kept = np.empty(len(groups.cosine)), np.empty(len(groups.cosine) + 1, dtype=np.int64)
        seen = np.empty(leaves.runs, dtype=np.int64)
        over, inside = np.empty(len(leaves.cosine)), np.empty(len(leaves.cosine))
        lanes, found = np.empty((d + 1) * LANES), np.empty((d + 1) * LANES)
        unit, size, centre = np.empty((d, LANES)), np.empty(LANES), np.empty(d)
        cosine, sine, worst = np.empty(LANES), np.empty(LANES), np.empty(LANES)
        total = 0.0
        for g in range(groups.runs):
            total += math.exp(groups.log_mass[g])
        cut = math.log(SHARE * rtol / total)
        for block in range(first_block, last_block):
            start, stop = block * LANES, min((block + 1) * LANES, n_q)
            for c in range(d):
                value = 0.0
                for a in range(LANES):
                    entry = queries[c, min(start + a, n_q - 1)]
                    lanes[c * LANES + a] = entry * LOG2_E
                    unit[c, a] = entry
                    value += entry
                centre[c] = value / LANES
            for a in range(LANES):
                square = 0.0
                for c in range(d):
                    square += unit[c, a] * unit[c, a]
                size[a] = math.sqrt(square)
            for c in range(d):
                for a in range(LANES):
                    unit[c, a] /= max(size[a], 1e-300)
            # The group whose mean has the largest score at the centre gives the lower bound of all eight.
            best = _best(groups.mean, groups.log_mass, centre, score)
            _score_of_best(keys, best * LANES, d, lanes)
            found[:] = 0.0
            if d == 2:
                sums_in_the_plane(flat, length, best * LANES, (best + 1) * LANES, lanes, found)
            else:
                sums_in_space(flat, length, best * LANES, (best + 1) * LANES, lanes, found)
            middle = 0.0
            for c in range(d):
                middle += centre[c] * centre[c]
            middle = math.sqrt(middle)
            steep = False
            for a in range(LANES):
                floor = -lanes[d * LANES + a] / LOG2_E + math.log(found[d * LANES + a])
                lanes[d * LANES + a] = -floor * LOG2_E
                steep |= size[a] - floor > _HIGHEST
                least = (floor + cut) / max(size[a], 1e-300)
                cosine[a] = least if least > 0.0 else 0.0
                sine[a] = max(math.sqrt(max(1.0 - least * least, 0.0)), _LEAST_SINE) if least > 0.0 else _NEVER
            # Of the cap of the eight queries: the largest gamma + their angle to the centre.
            least, spread = 1.0, 0.0
            for a in range(LANES):
                along = 0.0
                for c in range(d):
                    along += unit[c, a] * centre[c]
                along /= max(middle, 1e-300)
                across = math.sqrt(max(1.0 - along * along, 0.0))
                spread = max(spread, across)
                worst[a] = cosine[a] * along - sine[a] * across if along > 0.0 else -1.0
                least = min(least, worst[a])
            least -= _ROUNDING
            # Queries that are far apart for their reach are worth a look at each of them.
            one_by_one = spread > _APART * sine[0]
            together, apart = (least, math.sqrt(max(1.0 - least * least, 0.0))) if least > 0.0 else (0.0, _NEVER)
            apart = max(apart, _LEAST_SINE)
            for leaf in range(len(leaves.cosine)):
                over[leaf] = -leaves.cosine[leaf] * together + leaves.sine[leaf] * apart
            for c in range(d):
                along = centre[c] / max(middle, 1e-300)
                for leaf in range(len(leaves.cosine)):
                    over[leaf] += along * leaves.axis[c, leaf]
            candidates = 0
            for leaf in range(leaves.runs):
                seen[candidates] = leaf
                candidates += over[leaf] > -_ROUNDING
            # A leaf all of whose keys count at the centre is taken as a whole: angle(z, u) + alpha <= gamma.
            middle_cosine, middle_sine = 0.0, 0.0
            for a in range(LANES):
                middle_cosine += cosine[a] / LANES
                middle_sine += min(sine[a], 1.0) / LANES
            for leaf in range(len(leaves.cosine)):
                inside[leaf] = -leaves.cosine[leaf] * middle_cosine - leaves.sine[leaf] * middle_sine
            for c in range(d):
                along = centre[c] / max(middle, 1e-300)
                for leaf in range(len(leaves.cosine)):
                    inside[leaf] += along * leaves.axis[c, leaf]
            chosen = 0
            for place in range(candidates):
                at = seen[place] * LANES
                small = leaves.cosine[seen[place]] > middle_cosine
                if (inside[seen[place]] > 0.0 and small) or sine[0] >= _NEVER:
                    for g in range(at, min(at + LANES, groups.runs)):
                        kept[chosen] = g
                        chosen += 1
                    continue
                for g in range(LANES):
                    worst[g] = groups.sine[at + g] * apart - groups.cosine[at + g] * together
                for c in range(d):
                    along = centre[c] / max(middle, 1e-300)
                    for g in range(LANES):
                        worst[g] += groups.axis[c, at + g] * along
                if one_by_one:
                    for g in range(LANES):
                        worst[g] = -1.0
                    for a in range(LANES):
                        for g in range(LANES):
                            above = groups.sine[at + g] * sine[a] - groups.cosine[at + g] * cosine[a]
                            for c in range(d):
                                above += groups.axis[c, at + g] * unit[c, a]
                            worst[g] = max(worst[g], above)
                for g in range(min(LANES, groups.runs - at)):
                    kept[chosen] = at + g
                    chosen += worst[g] > -_ROUNDING
            if steep:
                _score_of_all(keys, kept, chosen, d, lanes)
            found[:] = 0.0
            j = 0
            while j < chosen:
                run = kept[j]
                j += 1
                while j < chosen and kept[j] == kept[j - 1] + 1:
                    j += 1
                stop_at = min((kept[j - 1] + 1) * LANES, end)
                if d == 2:
                    sums_in_the_plane(flat, length, run * LANES, stop_at, lanes, found)
                elif coarse:
                    coarse_sums_in_space(flat, length, run * LANES, stop_at, lanes, found)
                else:
                    sums_in_space(flat, length, run * LANES, stop_at, lanes, found)
            pairs += chosen * LANES * LANES
            for i in range(start, stop):
                a = i - start
                inverse = 1.0 / found[d * LANES + a]
                for c in range(d):
                    mean[i, c] = found[c * LANES + a] * inverse
                log_partition[i] = math.log(found[d * LANES + a]) - lanes[d * LANES + a] / LOG2_E
        return pairs

    return rows


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
def _score_of_best(keys: Any, start: int, d: int, lanes: Any) -> None:
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
        _score_of_best(keys, kept[place] * LANES, d, lanes)
        for a in range(LANES):
            top[a] = min(top[a], lanes[d * LANES + a])
    lanes[d * LANES :] = top
