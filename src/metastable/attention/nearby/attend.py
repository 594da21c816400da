"""Attention of a few thousand tokens on the circle or on S^2: pairs that count, and polynomials for tight nodes.

Keys and queries are sorted along a curve (`nearby.order`). On the circle arcs of it have proxies (`nearby.arcs`),
where queries are a matrix times the keys and arcs hold more keys than that; on S^2 gentle scores are a sum of few
spherical harmonics (`nearby.harmonics`). Else eight queries after the other meet the groups of eight keys that
count for one of them (`nearby.lists`), exponentials computed eight at a time (`nearby.lanes`), on S^2 those that
count little in single precision (`nearby.rings`). Where clusters are tight, tokens are halved into nodes first
(`nearby.tree`), and a walk over pairs of nodes takes one Taylor polynomial for nodes that are small together
(`nearby.taylor`), as all tokens are for small beta, and leaves the rest to groups (`nearby.walk`). The bounds are
relative to the row's own partition and hold for any tokens.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from metastable.attention.lanes import LANES
from metastable.attention.nearby.arcs import NODES, arcs_for, attend_arcs
from metastable.attention.nearby.caps import measure_caps
from metastable.attention.nearby.harmonics import attend_harmonics, least_degree_of_harmonics, moments
from metastable.attention.nearby.lanes import COARSE_ERROR
from metastable.attention.nearby.lists import attend_lists, tight
from metastable.attention.nearby.order import curve_order
from metastable.attention.nearby.rings import CHAIN, attend_rings
from metastable.attention.nearby.taylor import monomials
from metastable.attention.nearby.tree import LEAF, levels_for, measure_groups, measure_nodes
from metastable.attention.nearby.walk import SHARE, rows_kernel, walk_kernel
from metastable.attention.operands import Operands
from metastable.errors import InvalidInput
from metastable.threads import over_rows

_GENTLE = 1.7
"""beta max|q| up to which one polynomial serves all tokens."""
_COLLINEAR = 1e6
"""Condition of the Gram matrix of keys from which it says too little of a matrix."""
_MISSED = 0.02
"""Part of the tolerance by which queries may miss what a matrix makes of the keys; weights err by twice that."""
_COARSE = 1e-10
"""Tolerance from which exponentials need not be exact to the last digit."""
_HARMONIC = 12.0
"""beta max|q| beyond which rounding leaves nothing of sums of harmonics."""
_PIECE = 4096
"""Keys whose moments are summed together."""
_OFF_SPHERE = 1e-6
"""How far squared lengths of keys may be from one."""


def attend_nearby(operands: Operands, rtol: float) -> tuple[Float[Tensor, "q d"], Float[Tensor, "q"], float]:
    """(mean, log Z, error) of `attend` for unit keys on the circle or on S^2 that are their own values.

    `error` bounds the relative error of Z and the error of the mean.

    >>> x = torch.eye(3, dtype=torch.float64)
    >>> equal = torch.full((3,), 1 / 3, dtype=torch.float64)
    >>> mean, log_z, error = attend_nearby(Operands(x, x, x, equal, 2.0), 1e-8)
    >>> round(mean[0, 0].item(), 8), round(math.exp(2) / (math.exp(2) + 2), 8), error < 1e-8
    (0.78698604, 0.78698604, True)
    """
    operands.require_cpu("nearby")
    keys, values, d = operands.keys, operands.values, operands.keys.shape[1]
    if d not in (2, 3) or keys.dtype != torch.float64 or (values is not keys and not torch.equal(values, keys)):
        raise InvalidInput(
            'kernel="nearby" needs keys in two or three dimensions, in float64, that are their values'
        )
    least, most = operands.squared_keys
    off_sphere = max(1.0 - least, most - 1.0)
    if off_sphere > _OFF_SPHERE:
        raise InvalidInput(
            f"kernel=\"nearby\" needs unit keys, got a squared length off by {off_sphere:.1e}; use kernel='auto'"
        )
    q, k, _, mass = operands.arrays
    n_q = len(q)
    mean, log_partition = torch.empty((n_q, d), dtype=torch.float64), torch.empty(n_q, dtype=torch.float64)
    if n_q == 0:
        return mean, log_partition, 0.0
    order = curve_order(k)
    # A linear map of the keys keeps neighbours together.
    of_queries = order if n_q == len(k) else curve_order(q)
    scale = operands.masses.largest
    sorted_keys, z = np.empty((d + 1, -(-len(k) // LANES) * LANES)), np.empty((d, n_q))
    _sort_keys(k, mass, 1.0 / scale, order, sorted_keys)
    _sort_queries(q, operands.beta, of_queries, z)
    found, log_z = np.empty((n_q, d)), np.empty(n_q)
    A = linear_map(k, operands.beta * q, rtol) if d == 2 and n_q == len(k) else None
    attend_sorted(sorted_keys, z, A, operands.sharpness, rtol, found, log_z)
    _unsort(found, log_z, math.log(scale), of_queries, mean.numpy(), log_partition.numpy())
    return mean, log_partition, nearby_error(operands, rtol)


def _by_harmonics(
    keys: np.ndarray, z: np.ndarray, degree: int, mean: np.ndarray, log_partition: np.ndarray
) -> None:
    """`attend_sorted` by spherical harmonics; pieces of the sums are the same for any number of threads."""
    (_, n_q), n_k, cost = z.shape, keys.shape[1], 0.2 * (degree + 1) ** 2
    pieces = np.zeros((-(-n_k // _PIECE), degree + 1, degree + 1, 8))

    def gather(first: int, last: int) -> None:
        for piece in range(first, last):
            moments(keys, piece * _PIECE, min((piece + 1) * _PIECE, n_k), degree, pieces[piece])

    over_rows(gather, len(pieces), cost=cost * n_k)
    gathered = pieces.sum(axis=0)
    over_rows(
        lambda first, last: attend_harmonics(first, last, z, gathered, degree, mean, log_partition),
        n_q,
        cost=cost * n_q,
        quantum=_PIECE,
    )


def nearby_error(operands: Operands, rtol: float) -> float:
    """The bound that is stated for these operands."""
    least, most = operands.squared_keys
    # Keys that are off the sphere by rounding have scores that are that much above what the bounds take.
    off_sphere = max(1.0 - least, most - 1.0)
    return 6.0 * SHARE * rtol * math.exp(operands.sharpness * off_sphere) + _rounding(operands, rtol)


def linear_map(keys: np.ndarray, queries: np.ndarray, rtol: float) -> np.ndarray | None:
    """A with queries = A keys for all rows; None where there is no such matrix to a small part of the tolerance."""
    gram = keys.T @ keys
    if not np.linalg.cond(gram) < _COLLINEAR:
        return None
    A = np.linalg.solve(gram, keys.T @ queries)
    missed = float(np.abs(queries - keys @ A).max())
    return np.ascontiguousarray(A.T) if missed <= _MISSED * rtol else None


def attend_sorted(
    keys: np.ndarray, z: np.ndarray, A: np.ndarray | None, sharpness: float, rtol: float, mean: np.ndarray,
    log_partition: np.ndarray,
) -> None:  # fmt: skip
    """Fill means (n, d) and log-partitions of queries z (d, n), at most `sharpness` long, in the order of a curve.

    keys (d + 1, 8 groups) in that order, the masses in the last row; a last group is filled up with masses zero. A:
    the matrix with z = A k, if there is one.
    """
    (d, n_q), n_k = z.shape, keys.shape[1]
    arcs = arcs_for(keys, n_q, sharpness, rtol) if d == 2 and A is not None else None
    if arcs is not None:

        def of_arcs(first: int, last: int) -> None:
            attend_arcs(first, last, keys, arcs, z, A, rtol, mean, log_partition)

        over_rows(of_arcs, len(arcs.sine), cost=100.0 * n_q)
        return
    if d == 3 and sharpness <= _HARMONIC:
        degree = least_degree_of_harmonics(keys, z, rtol)
        if degree >= 0:
            _by_harmonics(keys, z, degree, mean, log_partition)
            return
    groups, leaves = measure_caps(keys, d, LANES), measure_caps(keys, d, LEAF)
    if sharpness > _GENTLE and not tight(leaves, sharpness, rtol, monomials(d)):
        if d == 2:

            def of_lists(first: int, last: int) -> None:
                attend_lists(first, last, keys, groups, leaves, z, rtol, mean, log_partition)

            over_rows(of_lists, -(-n_q // LANES), cost=0.3 * n_q * n_k)
            return
        mass, singles = keys[d], keys[:d].astype(np.float32)
        coarse = rtol >= _COARSE and bool((mass[: np.count_nonzero(mass)] == 1.0).all())

        def of_rings(first: int, last: int) -> None:
            attend_rings(first, last, keys, singles, groups, leaves, z, rtol, coarse, mean, log_partition)

        over_rows(of_rings, -(-n_q // LANES), cost=0.2 * n_q * n_k, quantum=CHAIN)
        return
    balls = measure_groups(keys, d)
    nodes = measure_nodes(keys, balls, z, levels_for(n_k))
    floors, sums = np.empty(n_q), np.zeros((d + 1, n_q))
    left = walk_kernel(d)(keys, z, nodes, monomials(d), rtol, floors, sums)
    by_node = rows_kernel(d)

    def work(first: int, last: int) -> None:
        by_node(first, last, keys, balls, z, nodes, left, rtol, floors, sums, mean, log_partition)

    over_rows(work, len(left), cost=0.2 * n_q * n_k)


def nearby_cost(operands: Operands, rtol: float) -> float:
    """Nanoseconds, measured for 2000 tokens that fill the circle, and 4000 to 12,000 that fill the sphere: on a
    Zen 5 core it took .7 to 1.7 of them for 4000 to 50,000 there, .92 in the median, `sphere.grid` .96 of its own.

    Infinite where rounding takes what polynomials and cut-offs leave of the tolerance.
    """
    n_q, n_k, d = len(operands.queries), len(operands.keys), operands.keys.shape[1]
    if d not in (2, 3) or _rounding(operands, rtol) > (1.0 - 6.0 * SHARE) * rtol:
        return math.inf
    sharpness, tokens = max(operands.sharpness, 1e-9), n_q + n_k
    cap = math.sqrt(2.0 * (8.0 - math.log(rtol)) / sharpness)
    sorting = 7e4 + 40.0 * tokens
    if d == 2:
        arcs, share = 6.0 * math.sqrt(sharpness) + 13.0, min(1.3 * cap / math.pi, 1.0)
        if n_q == n_k and NODES * arcs <= 1.8 * n_q:
            return sorting + 15.0 * tokens + 150.0 * share * arcs**2
        share = min(share + 16.0 / n_k, 1.0)
    else:
        # What `least_degree_of_harmonics` finds where the mean of the keys is zero, to a tenth.
        if sharpness <= min(_HARMONIC, math.log(2e12 * rtol)):
            degree = 7.0 - 0.32 * math.log(1e6 * rtol) + 1.85 * sharpness
            return sorting + 0.25 * degree**2 * tokens
        share = operands.once(_share_that_counts, rtol)
        share = math.sin(min(math.asin(math.sqrt(share)) + 5.0 / math.sqrt(n_k), 0.5 * math.pi)) ** 2
    pairs = (0.03 + 0.45 * share if d == 2 else 0.02 + (0.3 + 0.13 * share) * share) * n_q * n_k
    polynomials = (100.0 if d == 2 else 600.0) * tokens
    return sorting + 60.0 * tokens + (min(pairs, polynomials) if sharpness <= _GENTLE else pairs)


def _share_that_counts(operands: Operands, rtol: float) -> float:
    """Of the keys, for a query: a sample of both."""
    queries, keys = (
        part[:: -(-len(part) // most)] for part, most in ((operands.queries, 24), (operands.keys, 512))
    )
    scores = operands.beta * (queries.numpy() @ keys.numpy().T)
    return float((scores > scores.max(axis=1, keepdims=True) + math.log(SHARE * rtol) - 3.0).mean())


def _rounding(operands: Operands, rtol: float) -> float:
    """Of scores, exponentials and sums, and what polynomials lose where their terms cancel: e^6 rounding units."""
    return operands.rounding(torch.float64) + 1e-13 + 4.0 * COARSE_ERROR * (rtol >= _COARSE)


@njit(cache=True, nogil=True)
def _sort_keys(k: Any, mass: Any, scale: float, order: Any, out: Any) -> None:
    """Keys in columns, masses in the last row; the last group is filled up with its last key, of mass zero."""
    d, n = k.shape[1], len(order)
    for i in range(out.shape[1]):
        j = order[min(i, n - 1)]
        for c in range(d):
            out[c, i] = k[j, c]
        out[d, i] = scale * mass[j] if i < n else 0.0


@njit(cache=True, nogil=True)
def _sort_queries(q: Any, beta: float, order: Any, out: Any) -> None:
    for i in range(len(order)):
        for c in range(q.shape[1]):
            out[c, i] = beta * q[order[i], c]


@njit(cache=True, nogil=True)
def _unsort(found: Any, log_z: Any, log_scale: float, order: Any, mean: Any, log_partition: Any) -> None:
    for i in range(len(order)):
        log_partition[order[i]] = log_z[i] + log_scale
        for c in range(found.shape[1]):
            mean[order[i], c] = found[i, c]
