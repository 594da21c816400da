"""Nodes of queries against nodes of keys: left out, by a polynomial, or group by group (`nearby.attend`).

For all z of a node of queries with centre z_c and radius R, Jensen's inequality gives
    log Z(z) >= floor + <z - z_c, k̄>.
A key k of a node or group, whose largest score at z_c is s, is then at most e^{s + R |k - k̄| - floor} of Z(z), and
a set of keys may be left out where that, times the mass of all keys, is below a share of the tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from metastable.attention.exp2 import LOG2_E, REDUCTION
from metastable.attention.lanes import LANES
from metastable.attention.lasting import lasting
from metastable.attention.nearby.caps import end_of_run
from metastable.attention.nearby.lanes import sums_in_space, sums_in_the_plane
from metastable.attention.nearby.taylor import least_degree, pays, taylor_kernel
from metastable.attention.nearby.tree import span, weighted_floor

SHARE = 0.15
"""Part of the tolerance for keys that are left out, and for each of two ways to bound what polynomials err:
together 0.45 of the partition, and twice that of the mean."""
_STEEPEST = 3.0
"""Largest tau of a polynomial: its terms cancel to e^{-2 tau} of their size, which costs digits."""
_HIGHEST = 400.0
"""Largest bound of a score above the floor of a row: e to that must neither overflow nor, as a shift, underflow."""


@cache
def walk_kernel(d: int) -> Callable[..., Any]:
    """Compiled walk(keys, queries, nodes, table, log_allowed, floors, sums) for d coordinates."""
    add = taylor_kernel(d)

    @njit(cache=True, nogil=True, error_model="numpy")
    def walk(keys: Any, queries: Any, nodes: Any, table: Any, rtol: float, floors: Any, sums: Any) -> Any:
        """(leaves, leaves): whether the groups of a leaf of keys are left to a leaf of queries; fills floors, sums.

        floors (n,): lower bounds of log Z of every query; sums (d + 1, n): the polynomials, relative to e^{floor}.
        """
        levels, n_q = nodes.levels, queries.shape[1]
        groups, of_queries, first = keys.shape[1] // LANES, -(-n_q // LANES), (1 << levels) - 1
        # The best of all nodes that hold a query: one that two clusters share may know less than those above it.
        floors[:] = -np.inf
        for level in range(levels + 1):
            for cell in range(1 << level):
                node = (1 << level) - 1 + cell
                start, stop = span(cell, level, of_queries)
                for i in range(start * LANES, min(stop * LANES, n_q)):
                    value = nodes.floor[node]
                    for c in range(d):
                        value += (queries[c, i] - nodes.z_centre[node, c]) * nodes.mean[node, c]
                    floors[i] = max(floors[i], value)
        left = np.zeros((1 << levels, 1 << levels), dtype=np.bool_)
        stack = np.empty((4 * levels + 4, 3), dtype=np.int64)
        stack[0], depth = 0, 1
        allowed = SHARE * rtol
        while depth > 0:
            depth -= 1
            q, k, level = stack[depth]
            size, dot, apart = 0.0, 0.0, 0.0
            for c in range(d):
                size += nodes.z_centre[q, c] ** 2
                dot += nodes.z_centre[q, c] * nodes.k_centre[k, c]
                apart += (nodes.k_centre[k, c] - nodes.mean[q, c]) ** 2
            size, radius = math.sqrt(size), nodes.k_radius[k]
            top = min(dot + size * radius, size) + nodes.z_radius[q] * (math.sqrt(apart) + radius) - nodes.floor[q]
            whole = top + nodes.log_mass[0]
            if whole <= math.log(allowed):
                continue
            begin, end = span(q - (1 << level) + 1, level, of_queries)
            begin, end = begin * LANES, min(end * LANES, n_q)
            if begin >= end:
                continue
            start, stop = span(k - (1 << level) + 1, level, groups)
            start, stop = start * LANES, stop * LANES
            tau = nodes.z_radius[q] * radius
            if tau <= _STEEPEST and top <= _HIGHEST and size * radius <= _HIGHEST:
                degree = least_degree(tau, allowed * math.exp(max(-whole, 0.0)))
                if degree > 0 and pays(end - begin, stop - start, table.ends[degree], table.ends[degree - 1]):
                    add(
                        keys, start, stop, queries, begin, end, nodes.k_centre[k], nodes.z_centre[q], degree, table,
                        floors, sums,
                    )  # fmt: skip
                    continue
            if level == levels:
                left[q - first, k - first] = True
                continue
            for half in range(2):
                for other in range(2):
                    stack[depth, 0], stack[depth, 1], stack[depth, 2] = (
                        2 * q + 1 + half,
                        2 * k + 1 + other,
                        level + 1,
                    )
                    depth += 1
        return left

    return lasting(walk, f"nearby walk {d}")


@cache
def rows_kernel(d: int) -> Callable[..., Any]:
    """Compiled rows(...) for d coordinates."""

    @njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
    def rows(
        first_leaf: int, last_leaf: int, keys: Any, groups: Any, queries: Any, nodes: Any, left: Any, rtol: float,
        floors: Any, sums: Any, mean: Any, log_partition: Any,
    ) -> int:  # fmt: skip
        """Means and log-partitions, in the order of the queries, of some leaves; returns how many pairs it took."""
        levels, n_q = nodes.levels, queries.shape[1]
        count, of_queries = keys.shape[1] // LANES, -(-n_q // LANES)
        flat, length, pairs = keys.ravel(), keys.shape[1], 0
        seen, kept = np.empty(count, dtype=np.int64), np.empty(count + 1, dtype=np.int64)
        means, axes, cones = np.empty((d, count)), np.empty((d, count)), np.empty((4, count))
        along, score, highest = np.empty(count), np.empty(count), np.empty(count)
        lanes, found = np.empty((d + 1) * LANES), np.empty((d + 1) * LANES)
        centre, average, mine = np.empty(d), np.empty(d), np.empty(d)
        cut = math.log(SHARE * rtol) - nodes.log_mass[0]
        for leaf in range(first_leaf, last_leaf):
            candidates = 0
            for other in range(1 << levels):
                if left[leaf, other]:
                    start, stop = span(other, levels, count)
                    for g in range(start, stop):
                        seen[candidates] = g
                        candidates += 1
            for j in range(candidates):
                g = seen[j]
                for c in range(d):
                    means[c, j], axes[c, j] = groups.mean[c, g], groups.axis[c, g]
                cones[0, j], cones[1, j], cones[2, j] = groups.cosine[g], groups.sine[g], groups.radius[g]
                cones[3, j] = groups.log_mass[g]
            begin, end = span(leaf, levels, of_queries)
            for block in range(begin, end):
                start, stop = block * LANES, min((block + 1) * LANES, n_q)
                size, reach = 0.0, 0.0
                for c in range(d):
                    value = 0.0
                    for i in range(start, stop):
                        value += queries[c, i]
                    centre[c] = value / (stop - start)
                    size += centre[c] ** 2
                size = math.sqrt(size)
                for i in range(start, stop):
                    value = 0.0
                    for c in range(d):
                        value += (queries[c, i] - centre[c]) ** 2
                    reach = max(reach, value)
                reach = math.sqrt(reach)
                _project(axes, centre, candidates, along)
                _project(means, centre, candidates, score)
                for j in range(candidates):
                    score[j] += cones[3, j]
                node = (1 << levels) - 1 + leaf
                floor = nodes.floor[node]
                for c in range(d):
                    floor += (centre[c] - nodes.z_centre[node, c]) * nodes.mean[node, c]
                    average[c] = nodes.mean[node, c]
                own = weighted_floor(score, candidates, floor, means, mine) if candidates > 0 else -np.inf
                if own > floor:
                    floor = own
                    average[:] = mine
                _largest_scores(along, cones, means, average, size, reach, candidates, score, highest)
                chosen, least = 0, floor + cut
                for j in range(candidates):
                    kept[chosen] = seen[j]
                    chosen += highest[j] > least
                # No score at the centre exceeds its length, and no key is farther than two from the mean.
                steep = size + 2.0 * reach - floor > _HIGHEST and _largest(highest, candidates) - floor > _HIGHEST
                for a in range(LANES):
                    i = min(start + a, n_q - 1)
                    shift = floors[i]
                    for c in range(d):
                        lanes[c * LANES + a] = queries[c, i] * LOG2_E
                    value = floor
                    for c in range(d):
                        value += (queries[c, i] - centre[c]) * average[c]
                    shift = max(shift, value)
                    if steep:
                        shift = max(shift, _top(keys, kept, chosen, queries, i))
                    lanes[d * LANES + a] = -shift * LOG2_E
                found[:] = 0.0
                j = 0
                while j < chosen:
                    run, j = kept[j], end_of_run(kept, j, chosen)
                    if d == 2:
                        sums_in_the_plane(flat, length, run * LANES, (kept[j - 1] + 1) * LANES, lanes, found)
                    else:
                        sums_in_space(flat, length, run * LANES, (kept[j - 1] + 1) * LANES, lanes, found)
                pairs += chosen * LANES * LANES
                for i in range(start, stop):
                    a = i - start
                    shift = -lanes[d * LANES + a] / LOG2_E
                    factor = math.exp(floors[i] - shift)
                    total = found[d * LANES + a] + factor * sums[d, i]
                    for c in range(d):
                        mean[i, c] = (found[c * LANES + a] + factor * sums[c, i]) / total
                    log_partition[i] = math.log(total) + shift
        return pairs

    return rows


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _project(vectors: Any, z: Any, count: int, out: Any) -> None:
    """out[j] = <vectors[:, j], z>."""
    if len(z) == 2:
        x, y = z
        for j in range(count):
            out[j] = x * vectors[0, j] + y * vectors[1, j]
    else:
        x, y, u = z[0], z[1], z[2]
        for j in range(count):
            out[j] = x * vectors[0, j] + y * vectors[1, j] + u * vectors[2, j]


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _largest_scores(
    along: Any, cones: Any, means: Any, average: Any, size: float, reach: float, count: int, apart: Any, out: Any
) -> None:  # fmt: skip
    """max <z_c, k> + R |k - k̄| over the cone and the ball of every group, of which `along` is <z_c, axis>."""
    for j in range(count):
        apart[j] = 0.0
    for c in range(len(average)):
        middle = average[c]
        for j in range(count):
            apart[j] += (means[c, j] - middle) ** 2
    for j in range(count):
        out[j] = math.sqrt(max(size * size - along[j] * along[j], 0.0))
    for j in range(count):
        turned = along[j] * cones[0, j] + out[j] * cones[1, j]
        out[j] = size if along[j] >= size * cones[0, j] else turned
    for j in range(count):
        out[j] += reach * (math.sqrt(apart[j]) + cones[2, j])


@njit(cache=True, nogil=True)
def _largest(values: Any, count: int) -> float:
    top = -np.inf
    for j in range(count):
        top = max(top, values[j])
    return top


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _top(keys: Any, kept: Any, count: int, queries: Any, i: int) -> float:
    """The largest score of query i over the groups that are kept."""
    top = -1e300
    for j in range(count):
        for a in range(kept[j] * LANES, (kept[j] + 1) * LANES):
            value = 0.0
            for c in range(len(queries)):
                value += queries[c, i] * keys[c, a]
            top = max(top, value)
    return top
