"""Where the nodes of the grid on S^2 lie for queries on an ellipsoid, and which of them meet (`sphere.grid`).

Rings near the poles are known from fewer nodes, of keys and of queries: this costs a tenth of `Plan.pruned`.
Shorter queries meet fewer nodes of the keys: every level of `Plan.levels` has rings of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import fft

from metastable.attention.sphere.ellipsoid import Ellipsoid, smoothness
from metastable.attention.sphere.nodes import BAND, ring_nodes
from metastable.attention.sphere.plan import Plan, thinned
from metastable.attention.sphere.window import lebesgue, von_mises


class Chart(NamedTuple):
    """Nodes v of the chart of an ellipsoid, ring after ring."""

    counts: np.ndarray
    """(N/2,): nodes on each ring."""
    targets: np.ndarray
    """(nodes, 3): z(v)."""
    lengths: np.ndarray
    """(nodes,): |z(v)|."""
    order: np.ndarray
    """An order in which neighbours are near each other."""


class Rings(NamedTuple):
    """Rings of nodes on the unit sphere, as `nodes.node_attention` takes them."""

    theta: np.ndarray
    counts: np.ndarray
    nodes: np.ndarray


def chart_nodes(where: Ellipsoid, grids: Plan) -> Chart:
    """The nodes of N/2 rings of the chart, N for the queries."""
    n = grids.coarse_queries
    theta, counts = thinned(
        n, lambda high: smoothness(where, grids.power, grids.soft, high).coefficients(n), _left_out(1.0, grids)
    )
    phi = np.concatenate([np.arange(count) * (2.0 * math.pi / count) for count in counts])
    high, low = np.repeat(np.sin(theta), counts), np.repeat(np.cos(theta), counts)
    v = np.stack((high * np.cos(phi), high * np.sin(phi), low), axis=1)
    order = np.lexsort((phi, np.repeat(np.arange(len(theta)) // BAND, counts)))
    return Chart(counts, where.at(grids.power, v), where.lengths(grids.power, v), order)


def levels(chart: Chart, grids: Plan) -> Iterator[tuple[np.ndarray, float, tuple[float, int]]]:
    """(nodes of the chart, the length that they exceed, the level of `Plan`), every node in one level."""
    # The first level takes those that rounding made longer than the longest query.
    edges = [math.inf, *(longest for longest, _ in grids.levels[1:]), 0.0]
    lengths = chart.lengths[chart.order]
    for level, above, below in zip(grids.levels, edges[1:], edges[:-1], strict=True):
        yield chart.order[(lengths > above) & (lengths <= below)], above, level


def level_nodes(weights: np.ndarray, longest: float, grids: Plan) -> tuple[Rings, np.ndarray]:
    """The rings of a level, for queries up to a length, and what is left there of weights (rings, c, N)."""
    most = weights.shape[2]
    theta, counts = thinned(
        most, lambda high: von_mises(longest * high, most), _left_out(sum_of_sizes(weights), grids)
    )
    return Rings(theta, counts, ring_nodes(theta, counts, most)), fewer(weights, counts)


def fewer(weights: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(rings, c, N): weights with the same Fourier coefficients on rings of fewer nodes, zero beyond these."""
    few, most = np.zeros_like(weights), weights.shape[2]
    modes = fft.rfft(weights)
    for ring, count in enumerate(counts):
        few[ring, :, :count] = fft.irfft(modes[ring, :, : count // 2], n=count) if count < most else weights[ring]
    return few


def along_rings(sums: np.ndarray, counts: np.ndarray, n: int) -> np.ndarray:
    """(rings, c, N/2 + 1): transforms along rings, as of N nodes each, of sums (nodes, c) on rings of fewer."""
    along = np.zeros((len(counts), sums.shape[1], n // 2 + 1), dtype=np.complex128)
    ends = np.cumsum(counts)
    for ring, (count, end) in enumerate(zip(counts, ends, strict=True)):
        along[ring, :, : count // 2] = fft.rfft(sums[end - count : end], axis=0)[: count // 2].T * (n / count)
    return along


def depth(total_weight: float, grids: Plan) -> float:
    """How far below e^{h} nodes may be left out, for weights of that sum."""
    return math.log(lebesgue(grids.coarse_queries) ** 2 * max(total_weight, 1.0) / grids.pruned)


def sum_of_sizes(weights: np.ndarray) -> float:
    """The sum of the sizes of weights (rings, c, N)."""
    return float(np.sqrt(np.square(weights).sum(axis=1)).sum())


def _left_out(total_weight: float, grids: Plan) -> float:
    """What rings with fewer nodes may leave out, for weights of that sum."""
    return grids.pruned / (50.0 * lebesgue(grids.coarse_queries) ** 2 * max(total_weight, 1.0))
