"""Nodes of tokens in an order: halves of halves, down to groups of eight; what bounds need to know of each."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from metastable.attention.exp2 import LOG2_E, REDUCTION, exp2, float_of_bits
from metastable.attention.lanes import LANES

LEAF = 64
"""Most tokens of a node that is not halved; its groups of eight are looked at one by one."""


class Nodes(NamedTuple):
    """Node c of level l, of 2^l ones, is number 2^l - 1 + c; it holds the groups from c G >> l on, of G in all."""

    levels: int
    k_centre: np.ndarray
    """(nodes, d): centres of mass of the keys, for Jensen's inequality."""
    k_radius: np.ndarray
    log_mass: np.ndarray
    z_centre: np.ndarray
    z_radius: np.ndarray
    floor: np.ndarray
    """(nodes,): log Z(z) >= floor + <z - z_centre, mean> for all z: that of the leaves' means at z_centre."""
    mean: np.ndarray


class Groups(NamedTuple):
    """Of every group of eight keys: the mean, its direction and length, log of the mass, and the cone around it."""

    mean: np.ndarray
    """(d, groups)."""
    axis: np.ndarray
    """(d, groups)."""
    log_mass: np.ndarray
    cosine: np.ndarray
    sine: np.ndarray
    radius: np.ndarray


def levels_for(n: int) -> int:
    """How often n tokens are halved."""
    return max(math.ceil(math.log2(n / LEAF)), 0)


@njit(cache=True, nogil=True, error_model="numpy")
def span(cell: int, level: int, groups: int) -> tuple[int, int]:
    """First group of a node and the one after its last, of so many groups in all."""
    return cell * groups >> level, (cell + 1) * groups >> level


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def measure_groups(keys: Any, d: int) -> Groups:
    """Of keys (d + 1, 8 groups), the masses in the last row; some of a group may be zero, not all."""
    count = keys.shape[1] // LANES
    mean, axis = np.empty((d, count)), np.empty((d, count))
    log_mass, cosine, sine, radius = np.empty(count), np.empty(count), np.empty(count), np.empty(count)
    for g in range(count):
        at, total, square = g * LANES, 0.0, 0.0
        for a in range(LANES):
            total += keys[d, at + a]
        for c in range(d):
            value = 0.0
            for a in range(LANES):
                value += keys[d, at + a] * keys[c, at + a]
            mean[c, g] = value / total
            square += mean[c, g] ** 2
        length = math.sqrt(square)
        least, farthest = 1.0, 0.0
        for c in range(d):
            axis[c, g] = mean[c, g] / max(length, 1e-300)
        for a in range(LANES):
            along, apart = 0.0, 0.0
            for c in range(d):
                along += keys[c, at + a] * axis[c, g]
                apart += (keys[c, at + a] - mean[c, g]) ** 2
            least, farthest = min(least, along), max(farthest, apart)
        # A mean near zero has no direction: its cone is everything.
        least = max(least - 1e-14, -1.0) if length > 1e-3 else -1.0
        log_mass[g], radius[g] = math.log(total), math.sqrt(farthest)
        cosine[g], sine[g] = least, math.sqrt(max(1.0 - least * least, 0.0))
    return Groups(mean, axis, log_mass, cosine, sine, radius)


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def measure_nodes(keys: Any, groups: Any, queries: Any, levels: int) -> Nodes:
    """Of the keys, their groups, and queries (d, n): z = beta q."""
    d, n_q = queries.shape
    count, of_queries = keys.shape[1] // LANES, -(-n_q // LANES)
    nodes, first = (2 << levels) - 1, (1 << levels) - 1
    k_centre, z_centre, mean = np.empty((nodes, d)), np.empty((nodes, d)), np.empty((nodes, d))
    k_radius, z_radius, log_mass, floor = np.empty(nodes), np.empty(nodes), np.empty(nodes), np.empty(nodes)
    distance = np.empty(max(keys.shape[1], n_q))
    for node in range(nodes - 1, -1, -1):
        level = 0
        while (2 << level) - 1 <= node:
            level += 1
        cell = node - (1 << level) + 1
        start, stop = span(cell, level, count)
        total = 0.0
        for c in range(d):
            k_centre[node, c] = 0.0
        for g in range(start, stop):
            weight = math.exp(groups.log_mass[g]) if level == levels else 0.0
            total += weight
            for c in range(d):
                k_centre[node, c] += weight * groups.mean[c, g]
        if level < levels:
            for child in (2 * node + 1, 2 * node + 2):
                weight = math.exp(log_mass[child])
                total += weight
                for c in range(d):
                    k_centre[node, c] += weight * k_centre[child, c]
        log_mass[node] = math.log(total)
        for c in range(d):
            k_centre[node, c] /= total
        k_radius[node] = _farthest(keys, start * LANES, stop * LANES, k_centre[node], distance)
        start, stop = span(cell, level, of_queries)
        stop = min(stop * LANES, n_q)
        for c in range(d):
            value = 0.0
            for i in range(start * LANES, stop):
                value += queries[c, i]
            z_centre[node, c] = value / max(stop - start * LANES, 1)
        z_radius[node] = _farthest(queries, start * LANES, stop, z_centre[node], distance)
    score = np.empty(1 << levels)
    for node in range(nodes):
        top = -1e300
        for leaf in range(1 << levels):
            score[leaf] = log_mass[first + leaf]
            for c in range(d):
                score[leaf] += z_centre[node, c] * k_centre[first + leaf, c]
            top = max(top, score[leaf])
        total = 0.0
        for c in range(d):
            mean[node, c] = 0.0
        for leaf in range(1 << levels):
            if score[leaf] > top - 40.0:  # leaving any out keeps the bound one
                weight = math.exp(score[leaf] - top)
                total += weight
                for c in range(d):
                    mean[node, c] += weight * k_centre[first + leaf, c]
        for c in range(d):
            mean[node, c] /= total
        floor[node] = top + math.log(total)
    return Nodes(levels, k_centre, k_radius, log_mass, z_centre, z_radius, floor, mean)


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def _farthest(points: Any, start: int, stop: int, centre: Any, distance: Any) -> float:
    """Largest distance of columns of the points from the centre."""
    for i in range(start, stop):
        distance[i] = 0.0
    for c in range(len(centre)):
        middle = centre[c]
        for i in range(start, stop):
            distance[i] += (points[c, i] - middle) ** 2
    # Floating-point numbers >= 0 are in the order of their bits, whose maximum is found eight at a time.
    bits, most = distance.view(np.int64), np.int64(0)
    for i in range(start, stop):
        most = max(most, bits[i])
    return math.sqrt(float_of_bits(most))


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def weighted_floor(score: Any, count: int, known: float, means: Any, mean: Any) -> float:
    """log sum_g e^{score_g}, or less, and the mean (d,) of the means (d, groups) under these weights.

    known: a number near it, from which scores may be 690 away; beyond, they count as if they were not.
    """
    total = 0.0
    for g in range(count):
        t = (score[g] - known) * LOG2_E
        t = t if t > -1000.0 else -1000.0
        score[g] = exp2(t if t < 1000.0 else 1000.0)
        total += score[g]
    for c in range(len(mean)):
        value = 0.0
        for g in range(count):
            value += score[g] * means[c, g]
        mean[c] = value / total
    return known + math.log(total)
