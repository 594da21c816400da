"""The transpose of the derivative of attention for a few thousand tokens on S^2: gathered, or over lists.

Tokens are sorted along a curve, as in `nearby.attend`. Gentle scores are sums of few spherical harmonics there and
back (`nearby.harmonics_adjoint`); else eight queries after the other meet the groups of keys that count for one of
them (`nearby.lists_adjoint`). In the letters of `direct.adjoint`, M the mass of all keys, errors are

    rtol (|g_i| + |s_i|) of by_query_i,    rtol m_j/M sum_i (|g_i| + |s_i|) (1 + max|q|) of by_key_j

at most, rounding aside, the latter along the sphere: as if each weight p_ij erred by rtol m_j/M.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from metastable.attention.backwards import Backwards
from metastable.attention.kernel import MOST_MASS_RATIO
from metastable.attention.lanes import LANES
from metastable.attention.nearby.harmonics_adjoint import (
    adjoint_by_harmonics,
    harmonics_adjoint_cost,
    least_degree_of_adjoint,
)
from metastable.attention.nearby.lists_adjoint import SHARE, adjoint_by_lists
from metastable.attention.nearby.order import curve_order

_PAIR = 0.58
"""Nanoseconds of a pair of a list."""
_AT_ONCE = 4e4
"""Nanoseconds of any number of tokens."""
_SURELY = 0.3
"""Part of the time of all pairs below which harmonics are taken without a look at how many count."""
_QUERIES, _KEYS = 24, 512
"""Sample of both, of which the share of pairs that count is told."""


class Forecast(NamedTuple):
    """Which way it is."""

    degree: int
    """Of harmonics, -1 for lists."""
    cost: float
    """Rough nanoseconds of one core."""


def forecast_adjoint(given: Backwards, rtol: float) -> Forecast | None:
    """The way and its cost; None where masses are zero, or almost, beside the largest."""
    keys, z = (part.T.contiguous().numpy() for part in (given.keys, given.queries))
    top = float(given.log_mass.max())
    mass, log_partition = torch.exp(given.log_mass - top).numpy(), (given.log_partition - top).numpy()
    return forecast_columns(keys, mass, z, log_partition, rtol)


def forecast_columns(
    keys: np.ndarray, mass: np.ndarray, z: np.ndarray, log_partition: np.ndarray, rtol: float
) -> Forecast | None:
    """The same of keys and queries (3, n)."""
    if not mass.min() * MOST_MASS_RATIO > mass.max():
        return None
    degree, cost = _choose(keys, z, log_partition, math.log(mass.sum()), rtol)
    return Forecast(degree, cost + _AT_ONCE)


def nearby_adjoint(
    given: Backwards, forecast: Forecast, rtol: float
) -> tuple[Float[Tensor, "n 3"], Float[Tensor, "n 3"]]:
    """(by_query, by_key up to its part along the key) for keys of unit length."""
    rows = [np.ascontiguousarray(part.numpy()) for part in given]
    order, n, top = curve_order(rows[1]), len(rows[1]), float(given.log_mass.max())
    keys, columns, numbers = np.empty((4, -(-n // LANES) * LANES)), np.empty((3, 3, n)), np.empty((2, n))
    queries, points, log_mass, log_z, g, s, means = rows
    _sort(queries, points, log_mass, log_z, g, s, means, top, order, keys, columns, numbers)
    z, cotangent, mean = columns
    log_partition, shift = numbers
    found = _computed(keys, z, log_partition, cotangent, shift, mean, forecast.degree, rtol)
    by_query, by_key = torch.empty((n, 3), dtype=torch.float64), torch.empty((n, 3), dtype=torch.float64)
    _unsort(found[0], found[1], order, by_query.numpy(), by_key.numpy())
    return by_query, by_key


def adjoint_sorted(
    keys: np.ndarray, mass: np.ndarray, z: np.ndarray, log_partition: np.ndarray, cotangent: np.ndarray,
    shift: np.ndarray, mean: np.ndarray, forecast: Forecast, rtol: float,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """by_query and by_key (3, n) of keys, queries z, cotangents and means (3, n) in the order of the curve.

    log_partition (n,) is that of these masses, none of which is zero. All in C order.
    """
    n = len(mass)
    filled = np.zeros((4, -(-n // LANES) * LANES))
    filled[:3, :n], filled[:3, n:], filled[3, :n] = keys, keys[:, n - 1 :], mass
    by_query, by_key = _computed(filled, z, log_partition, cotangent, shift, mean, forecast.degree, rtol)
    return by_query, by_key[:, :n]


def _choose(
    keys: np.ndarray, z: np.ndarray, log_partition: np.ndarray, log_mass: float, rtol: float
) -> tuple[int, float]:
    """(degree of harmonics or -1 for lists, nanoseconds)."""
    n, all_pairs = z.shape[1], _PAIR * z.shape[1] * keys.shape[1]
    degree = least_degree_of_adjoint(log_mass, z, log_partition, rtol)
    gathered = harmonics_adjoint_cost(n, degree) if degree >= 0 else math.inf
    if gathered < _SURELY * all_pairs:
        return degree, gathered
    share = _share_that_counts(keys, z, log_partition, math.log(SHARE * rtol) - log_mass)
    # Groups of eight reach beyond the cap that counts.
    angle = math.asin(math.sqrt(share)) + 8.0 / math.sqrt(keys.shape[1])
    pairs = 200.0 * n + (0.03 + math.sin(min(angle, 0.5 * math.pi)) ** 2) * all_pairs
    return (degree, gathered) if gathered < pairs else (-1, pairs)


@njit(cache=True, nogil=True, error_model="numpy")
def _share_that_counts(keys: Any, z: Any, log_partition: Any, cut: float) -> float:
    """Of the keys, for a query: a sample of both."""
    n_q, n_k, count, seen = z.shape[1], keys.shape[1], 0, 0
    for i in range(0, n_q, -(-n_q // _QUERIES)):
        least = log_partition[i] + cut
        for j in range(0, n_k, -(-n_k // _KEYS)):
            count += z[0, i] * keys[0, j] + z[1, i] * keys[1, j] + z[2, i] * keys[2, j] > least
            seen += 1
    return count / seen


def _computed(
    keys: np.ndarray, z: np.ndarray, log_partition: np.ndarray, cotangent: np.ndarray, shift: np.ndarray,
    mean: np.ndarray, degree: int, rtol: float,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """By harmonics of a degree, or lists, of keys (4, 8 groups) with the masses in the last row."""
    by_query, by_key = np.empty(z.shape), np.empty((3, keys.shape[1]))
    given = keys, z, log_partition, cotangent, shift
    if degree >= 0:
        adjoint_by_harmonics(*given, mean, degree, by_query, by_key)
    else:
        adjoint_by_lists(*given, math.log(keys[3].sum()), rtol, by_query, by_key)
    return by_query, by_key


@njit(cache=True, nogil=True)
def _sort(
    queries: Any, keys: Any, log_mass: Any, log_partition: Any, cotangent: Any, shift: Any, mean: Any, top: float,
    order: Any, of_keys: Any, columns: Any, numbers: Any,
) -> None:  # fmt: skip
    """What `_computed` is given, masses relative to e^top; a last group is filled up with its last key."""
    n = len(order)
    for i in range(n):
        j = order[i]
        for c in range(3):
            of_keys[c, i] = keys[j, c]
            columns[0, c, i], columns[1, c, i], columns[2, c, i] = queries[j, c], cotangent[j, c], mean[j, c]
        of_keys[3, i] = math.exp(log_mass[j] - top)
        numbers[0, i], numbers[1, i] = log_partition[j] - top, shift[j]
    for i in range(n, of_keys.shape[1]):
        for c in range(3):
            of_keys[c, i] = of_keys[c, n - 1]
        of_keys[3, i] = 0.0


@njit(cache=True, nogil=True)
def _unsort(found_by_query: Any, found_by_key: Any, order: Any, by_query: Any, by_key: Any) -> None:
    for i in range(len(order)):
        for c in range(3):
            by_query[order[i], c], by_key[order[i], c] = found_by_query[c, i], found_by_key[c, i]
