"""What the Fourier grid on S^2 needs to know before it is laid out: the surface of the queries, how far they
look from the keys, and the sizes of grids and windows that meet a tolerance (`sphere.grid`).

Errors are relative to e^{h(z)}, h = sqrt(|z|^2 + c^2). For queries of one length c = 0. For queries on an
ellipsoid, c > 0 makes e^{<z, k> - h} smoother where |z| is small, and the errors of rows with |z| < c^2 larger.
The c and the chart of the ellipsoid (`sphere.ellipsoid`) are taken that cost least.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from scipy import fft

from metastable.attention.direct import FUSED
from metastable.attention.lengths import all_finite, squared_lengths
from metastable.attention.operands import Operands
from metastable.attention.sphere.ellipsoid import Ellipsoid, Smoothness, smoothness
from metastable.attention.sphere.nodes import radii
from metastable.attention.sphere.window import WINDOWS, Window, lebesgue, mapped_error, von_mises, window

_SAMPLE, _SHORTEST = 48, 16
"""Rows that are sampled: spread over all, and the shortest ones."""
_MARGIN = 4.0
"""How much less than the sampled rows allow is asked of the grids, for the rows that were not sampled."""
_MOST_NODES = 2000
"""Largest N: the fine grid then holds four fields of up to 2000 x 4000 numbers, 256 MB."""
_LEAST_ERROR = 1e-14
"""Error relative to e^{h} that the grid can promise at best."""
_SOFT = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
"""Values of c/sqrt(b), b the longest axis."""
_POWERS = (0.5, 0.75, 1.0)
"""Charts t that are tried: 1/2 is the best one for c = 0, those above it where a large c is allowed."""
_FLATTEST = 1e-3
"""Least ratio of axes of an ellipsoid that is laid out."""


class Surface(NamedTuple):
    """Where the queries beta q lie."""

    points: np.ndarray | None
    """(n, 3): along q, for queries of one length; None for the keys, or on an ellipsoid."""
    ellipsoid: Ellipsoid | None
    """None for queries of one length."""
    longest: float
    shortest: float
    """Lengths between which those of the surface are."""
    miss: float
    """Largest | |beta q|/|z| - 1 |, z the point of the surface along q."""

    @property
    def turn(self) -> np.ndarray | None:
        """(3, 3): points times it are in the frame of the ellipsoid, whose poles are those of all rings."""
        return None if self.ellipsoid is None else self.ellipsoid.frame.T

    def turned_back(self, vectors: np.ndarray) -> np.ndarray:
        """(rings, 3, N): vectors at nodes, from the frame of the ellipsoid."""
        return vectors if self.ellipsoid is None else np.einsum("cd,rcn->rdn", self.ellipsoid.frame, vectors)


class Sampled(NamedTuple):
    """Of a few rows: |z|, and log(e^{|z|}/Z) over some of the keys. The first `random` rows are spread over all."""

    lengths: np.ndarray
    depths: np.ndarray
    random: int


class Plan(NamedTuple):
    """Sizes of the grids, and errors relative to e^{h}."""

    window: Window
    coarse_keys: int
    coarse_queries: int
    stretch: np.ndarray
    """(3,): D of the chart of an ellipsoid."""
    soft: float
    """c in h = sqrt(|z|^2 + c^2)."""
    error: float
    """All but the following."""
    pruned: float
    interpolated: float
    """What the last interpolation errs at most, whatever the tokens."""
    lost: float
    """Share of the sampled rows that the grid cannot hold."""
    nanoseconds: float
    """Forecast of the cost of everything but the tokens."""


def surface(operands: Operands) -> Surface | None:
    """The sphere or ellipsoid that all queries lie on, as a matrix times the keys does; None if none is found."""
    queries, keys, beta = operands.queries.numpy(), operands.keys.numpy(), operands.beta
    if not (
        all_finite(operands.queries) and all_finite(operands.keys)
    ):  # a run that went wrong: no place on a grid
        return None
    if operands.queries is operands.keys or (queries.shape == keys.shape and np.array_equal(queries, keys)):
        return Surface(None, None, beta, beta, 0.0)
    if beta == 0.0:  # any point will do
        return Surface(np.tile([0.0, 0.0, 1.0], (len(queries), 1)), None, 0.0, 0.0, 0.0)
    close = 64.0 * np.finfo(np.float64).eps
    shortest, longest = (math.sqrt(square) for square in operands.squared_queries)
    if shortest > 0.0 and longest - shortest <= close * longest:
        return Surface(queries, None, beta * longest, beta * longest, 1.0 - shortest / longest)
    matrix = operands.matrix.numpy() if operands.matrix is not None else _between(keys, queries)
    if matrix is None:
        return None
    _, axes, frame = np.linalg.svd(matrix)
    if not axes[-1] > _FLATTEST * axes[0]:
        return None
    found = Ellipsoid.of(beta * axes, frame)
    lengths = squared_lengths(torch.from_numpy(queries @ found.chart(found.axes / beta)))
    miss = max(abs(math.sqrt(square) - 1.0) for square in lengths)
    if miss > close * axes[0] / axes[-1]:
        return None
    return Surface(None, found, beta * float(axes[0]), beta * float(axes[-1]), miss)


def _between(keys: np.ndarray, queries: np.ndarray) -> np.ndarray | None:
    """(3, 3): keys times it are nearest to the queries; None where keys lie in a plane, or are other tokens."""
    gram = keys.T @ keys
    if queries.shape != keys.shape or np.linalg.cond(gram) > 1e8:
        return None
    return np.linalg.solve(gram, keys.T @ queries)


def planned(operands: Operands, rtol: float, *kind: bool) -> Operands:
    """The operands whose `plan` is followed: those that these have moved from, if the queries have stayed on their
    ellipsoid, which is all that the errors of a plan depend on. How much these are beside a row is found for every
    row. kind: back and thin, as for `plan`, if given.
    """
    before, here = operands.before, operands.once(surface)
    if before is None or operands.matrix is None or here is None or here.ellipsoid is None:
        return operands
    there = before.once(surface)
    kept = there is not None and there.ellipsoid is not None and before.once(plan, rtol, *kind) is not None
    return before if kept else operands


def sample(operands: Operands) -> Sampled:
    """Partitions of a few rows over some of the keys, among them the shortest rows."""
    queries, keys, mass, beta = operands.queries, operands.keys, operands.mass, operands.beta
    few = queries[:: max(len(queries) // _SAMPLE, 1)]
    random = len(few)
    lengths = torch.linalg.vector_norm(queries, dim=1)
    shortest = torch.topk(lengths, min(_SHORTEST, len(lengths)), largest=False).indices
    few = torch.cat((few, queries[shortest]))
    lengths = torch.linalg.vector_norm(few, dim=1) * beta
    step = max(int(len(keys) / (256.0 + 32.0 * float(lengths.max()))), 1)
    part, part_mass = keys[::step].contiguous(), mass[::step].contiguous()
    if not float(part_mass.sum()) > 0.0:
        part, part_mass = keys, mass
    log_z = FUSED(Operands(few, part, part, part_mass, beta)).log_partition
    depths = lengths - log_z + math.log(float(part_mass.sum()))
    return Sampled(lengths.numpy(), depths.numpy(), random)


def plan(operands: Operands, rtol: float, back: bool = False, thin: bool = True) -> Plan | None:
    """The cheapest grids that meet rtol for the sampled rows, or as near as windows come; None if too large.

    back: also where the queries send and the keys interpolate. thin: also for rows that look at few keys; if not,
    rtol is relative to the most that a row could attend to, e^{|z|}, for all.
    """
    where = operands.once(surface)
    if where is None:
        return None
    seen = operands.once(sample)
    of_keys = of_queries = von_mises(where.longest, _MOST_NODES)
    chosen = None
    for soft in math.sqrt(where.longest) * np.array(_SOFT if where.ellipsoid is not None else (0.0,)):
        depths = (seen.depths if thin else 0.0) + np.hypot(seen.lengths, soft) - seen.lengths
        within = depths < math.log(rtol / (2.5 * _LEAST_ERROR))
        lost = 1.0 - float(within[: seen.random].mean())
        if not within.any() or (soft > 0.0 and (depths > np.log(rtol / (2.5 * _rounded(seen.lengths)))).any()):
            break
        wanted = rtol / (2.5 * _MARGIN) * math.exp(-float(depths[within].max()))
        # What coarse grids alias is amplified by norms of interpolation, below 300 and 15 for all sizes allowed.
        keys = _coarse(of_keys, 0.1 * wanted / 300.0)
        if where.ellipsoid is None:
            chosen = 0.0, 0.0, 0.0, lost, wanted, keys
            continue
        for power in _POWERS:
            smooth = _smoothness(tuple(where.ellipsoid.axes.tolist()), power, float(soft))
            size = max(keys, int(2.0 * smooth.beyond(0.1 * wanted / 15.0)))
            cost = _nodes_cost(where.ellipsoid, keys, size, int(1.6 * size), 0.1 * wanted)
            if chosen is None or cost < chosen[0]:
                chosen = cost, power, float(soft), lost, wanted, keys
    if chosen is None:
        return None
    _, power, soft, lost, wanted, keys = chosen
    stretch = np.ones(3) if where.ellipsoid is None else where.ellipsoid.stretch(power)
    if where.ellipsoid is None:
        keys = queries = max(keys, _coarse(of_queries, 0.1 * wanted / 15.0))
    else:
        of_queries = _coefficients(tuple(where.ellipsoid.axes.tolist()), power, soft)
        queries = max(keys, _coarse(of_queries, 0.1 * wanted / 15.0))
    if max(keys, queries) > _MOST_NODES:
        return None
    norm_keys, norm_queries = lebesgue(keys), lebesgue(queries)
    for width, ratio in WINDOWS:
        fine = max(int(ratio * max(keys, queries)), 2 * width + 4)
        while fine % 2 or fft.next_fast_len(fine, real=True) != fine:
            fine += 1
        kept = window(width, ratio, fine)
        window_keys, beyond_keys = mapped_error(of_keys, kept, keys)
        window_queries, beyond_queries = mapped_error(of_queries, kept, queries)
        error = 2.02 * window_keys + norm_queries**2 * (1.0 + norm_keys) * 2.0 * beyond_keys
        error += (1.0 + norm_queries) * 2.0 * beyond_queries
        # Fields are rarely as rough as the bound for queries allows: `_fields` will know. What queries send is.
        if error + 2.02 * max(window_keys, window_queries if back else 0.0) <= 0.6 * wanted:
            break
    cost = _nodes_cost(where.ellipsoid, keys, queries, kept.fine, 0.1 * wanted)
    return Plan(kept, keys, queries, stretch, soft, error, 0.1 * wanted, 2.02 * window_queries, lost, cost)


def _nodes_cost(where: Ellipsoid | None, keys: int, queries: int, fine: int, pruned: float) -> float:
    """Nanoseconds of a Zen 5 core without the tokens, as measured for three B, beta 4 to 200, rtol 1e-7, 1e-9."""
    lengths = 1
    if where is not None:
        across = np.sort(where.axes[:2])
        lengths = radii(across[:1], across[1:], pruned / 250.0).shape[1]
    return 1.1e6 + 5.8 * fine**2 + 33.0 * keys * queries + lengths * queries * (7.6 * keys + 4.3 * queries)


@lru_cache(maxsize=128)
def _smoothness(axes: tuple[float, ...], power: float, soft: float) -> Smoothness:
    """How smooth attention is in that chart of an ellipsoid with these axes, for all plans along a run."""
    found = Ellipsoid(np.array(axes), np.eye(3))
    return smoothness(found, found.stretch(power), soft)


@lru_cache(maxsize=16)
def _coefficients(axes: tuple[float, ...], power: float, soft: float) -> np.ndarray:
    """Bounds of the Fourier coefficients in that chart."""
    return _smoothness(axes, power, soft).coefficients(_MOST_NODES)


def _rounded(lengths: np.ndarray) -> np.ndarray:
    """About what rounding adds to the error relative to e^{h} of queries of those lengths: as `grid` states it for
    transforms of a thousand numbers and equal masses.
    """
    return np.maximum(4.5e-14 / np.sqrt(1.0 + np.sqrt(0.8 * lengths)), _LEAST_ERROR)


def _coarse(weights: np.ndarray, rest: float) -> int:
    """The least good number of nodes that leaves less than `rest` of the Fourier coefficients out."""
    beyond = 2.0 * np.cumsum(weights[::-1])[::-1]
    nodes = max(2 * int(np.searchsorted(-beyond, -rest)) + 4, 16)
    return 4 * fft.next_fast_len(-(-nodes // 4), real=True)
