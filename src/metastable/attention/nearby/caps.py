"""Caps of keys, and which of them count for eight queries: those that reach a score at one of them.

Keys of a group lie within an angle alpha of its axis u. None of them has a score above T at a query z where, with
cos gamma = T/|z|,
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

from metastable.attention.exp2 import REDUCTION, wide
from metastable.attention.lanes import LANES
from metastable.attention.lasting import lasting

NEVER = 1e9
"""A sine that no cosine makes up for: nothing is left out."""
LEAST_SINE = 1e-6
"""Sines below count as this, so that their product with `NEVER` is large."""
_APART = 0.6
"""Sine of the angle of eight queries to their mean, as a part of that of their reach, beyond which they are asked
one by one whether a group counts: 0.4 to 0.8 take the same time, 0.2 a fifth more at beta = 64."""
ROUNDING = 1e-13
"""How far cosines may be off."""


class Caps(NamedTuple):
    """Of runs of keys of one length, padded to a multiple of eight of them."""

    runs: int
    """How many there are, the padding aside."""
    axis: np.ndarray
    """(d, runs)."""
    cosine: np.ndarray
    sine: np.ndarray
    """(runs,): of the angle within which all keys are; of the cap that is never left out (0, `NEVER`)."""
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
    cosine, sine, log_mass = np.zeros(padded), np.full(padded, NEVER), np.full(padded, -1e300)
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
            least -= ROUNDING
            if least > 0.0:
                cosine[run] = least
                sine[run] = max(math.sqrt(max(1.0 - least * least, 0.0)), LEAST_SINE)
    return Caps(count, axis, cosine, sine, mean, log_mass)


class Block(NamedTuple):
    """Eight queries, and space to find out which groups count for them."""

    unit: np.ndarray
    """(d, 8): their directions."""
    size: np.ndarray
    """(8,): their lengths."""
    centre: np.ndarray
    """(d,): their mean."""
    least: np.ndarray
    """(8,): T/|z| of each."""
    kept: np.ndarray
    """Numbers of groups that count, in order."""
    cosine: np.ndarray
    sine: np.ndarray
    worst: np.ndarray
    seen: np.ndarray
    over: np.ndarray
    inside: np.ndarray


@njit(cache=True, nogil=True)
def space_for(groups: Any, leaves: Any) -> Block:
    """An empty block for these caps, of runs of eight keys and of eight groups."""
    d, padded = leaves.axis.shape
    return Block(
        np.empty((d, LANES)), np.empty(LANES), np.empty(d), np.empty(LANES),
        np.empty(len(groups.cosine) + 1, dtype=np.int64), np.empty(LANES), np.empty(LANES), np.empty(LANES),
        np.empty(padded, dtype=np.int64), np.empty(padded), np.empty(padded),
    )  # fmt: skip


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy", inline="always")
def look_at(queries: Any, start: int, block: Block) -> None:
    """Directions, lengths and mean of eight queries (d, n) from start on, the last one instead of any beyond it."""
    d, n = queries.shape
    block.size[:] = 0.0
    for c in range(d):
        value = 0.0
        for a in range(LANES):
            entry = queries[c, min(start + a, n - 1)]
            block.unit[c, a] = entry
            block.size[a] += entry * entry
            value += entry
        block.centre[c] = value / LANES
    for a in range(LANES):
        block.size[a] = math.sqrt(block.size[a])
    for c in range(d):
        for a in range(LANES):
            block.unit[c, a] /= max(block.size[a], 1e-300)


@njit(cache=True, nogil=True, inline="always")
def end_of_run(kept: Any, first: int, count: int) -> int:
    """Where groups that follow each other end, of those that were kept: kept[first], ... up to the place before."""
    last = first + 1
    while last < count and kept[last] == kept[last - 1] + 1:
        last += 1
    return last


@cache
def reach_kernel(d: int) -> Callable[..., Any]:
    """Compiled groups_that_count(...) for d coordinates."""

    @njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy", inline="always")
    def groups_that_count(groups: Any, leaves: Any, block: Any) -> int:
        """How many groups have a key that may score above T at one of the eight queries; they are block.kept.

        groups, leaves: caps of runs of eight keys, and of eight groups.
        """
        wide()
        _, _, _, _, kept, cosine, sine, worst, seen, over, inside = block
        unit, centre = block.unit, block.centre
        middle = 0.0
        for c in range(d):
            middle += centre[c] * centre[c]
        middle = math.sqrt(middle)
        for a in range(LANES):
            some = block.least[a]
            cosine[a] = some if some > 0.0 else 0.0
            sine[a] = max(math.sqrt(max(1.0 - some * some, 0.0)), LEAST_SINE) if some > 0.0 else NEVER
        # Of the cap of the eight queries: the largest gamma + their angle to the centre.
        lowest, spread = 1.0, 0.0
        for a in range(LANES):
            along = 0.0
            for c in range(d):
                along += unit[c, a] * centre[c]
            along /= max(middle, 1e-300)
            across = math.sqrt(max(1.0 - along * along, 0.0))
            spread = max(spread, across)
            worst[a] = cosine[a] * along - sine[a] * across if along > 0.0 else -1.0
            lowest = min(lowest, worst[a])
        lowest -= ROUNDING
        # Queries that are far apart for their reach are worth a look at each of them.
        one_by_one = spread > _APART * sine[0]
        together, apart = (lowest, math.sqrt(max(1.0 - lowest * lowest, 0.0))) if lowest > 0.0 else (0.0, NEVER)
        apart = max(apart, LEAST_SINE)
        for leaf in range(len(leaves.cosine)):
            over[leaf] = -leaves.cosine[leaf] * together + leaves.sine[leaf] * apart
        for c in range(d):
            along = centre[c] / max(middle, 1e-300)
            for leaf in range(len(leaves.cosine)):
                over[leaf] += along * leaves.axis[c, leaf]
        candidates = 0
        for leaf in range(leaves.runs):
            seen[candidates] = leaf
            candidates += over[leaf] > -ROUNDING
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
            if (inside[seen[place]] > 0.0 and small) or sine[0] >= NEVER:
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
                chosen += worst[g] > -ROUNDING
        return chosen

    return lasting(groups_that_count, f"nearby reach {d}")
