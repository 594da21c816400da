"""The transpose of the derivative of attention, and which way to compute it: over pairs, or by series."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from metastable.attention.backwards import Backwards
from metastable.attention.circle import circle_adjoint, circle_adjoint_cost, circle_sums, modes, modes_of_extremes
from metastable.attention.direct import adjoint_cost, adjoint_over_pairs
from metastable.attention.kernel import LEAST_RTOL
from metastable.attention.lengths import squared_lengths
from metastable.attention.nearby import adjoint_sorted, forecast_adjoint, forecast_columns, nearby_adjoint
from metastable.attention.operands import TokensOfStep
from metastable.attention.sphere import laid_cost, lay_out, sphere_adjoint

FEWEST = {2: 128, 3: 400}
"""Tokens from which series are considered, by dimension: all pairs of fewer take less than the tenth of a
millisecond that series on the circle begin with, or tokens on S^2 that are put in order."""
_FASTER = 2.8
"""How many of the nanoseconds of `adjoint_cost` and `laid_cost` are one of `forecast_adjoint`, which was measured
on a faster core: there a pair of all pairs in three dimensions takes .5 of them, of the former 1.4."""
_OFF_SPHERE = 1e-13
"""How far squared lengths of keys may be from one, by rounding."""
_LEAST_GRID = 5e6, 1000.0
"""Less than any grid takes, in the former, at once and for a token: to search for one takes a part of that."""


def attention_adjoint(
    given: Backwards, ahead: int | None = None, *, rtol: float | None = None, step: TokensOfStep | None = None
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
    """(by_query, by_key) of `direct.adjoint`, in float64.

    rtol: the error that may be, for keys on a sphere, of which only movements along it count: then by_key may lack
    its part along the key. None: all pairs, all digits. step: of which these are the tokens at a stage.
    """
    if rtol is not None and ahead is None and _has_series(given, rtol):
        if given.keys.shape[1] == 3:
            found = _on_the_sphere(given, rtol, step)
            if found is not None:
                return found
        else:
            count = _modes(given, rtol)
            if count is not None:
                return circle_adjoint(given, count)
    return adjoint_over_pairs(given, ahead)


def columns_adjoint(
    queries: Float[np.ndarray, "d n"],
    keys: Float[np.ndarray, "d n"],
    mass: Float[np.ndarray, "n"],
    log_partition: Float[np.ndarray, "n"],
    cotangent: Float[np.ndarray, "d n"],
    shift: Float[np.ndarray, "n"],
    mean: Float[np.ndarray, "d n"],
    rtol: float,
    step: TokensOfStep | None = None,
) -> tuple[Float[np.ndarray, "d n"], Float[np.ndarray, "d n"]]:
    """`attention_adjoint` of tokens in columns, in the order of a curve (`nearby.order`), on the CPU."""
    d, n = keys.shape
    longest, depth, off = _extremes(queries, keys, log_partition)
    series = n >= FEWEST.get(d, n + 1) and rtol >= LEAST_RTOL and off <= _OFF_SPHERE
    if series and d == 2:
        count = modes_of_extremes(longest, depth + math.log(float(mass.sum())), rtol)
        if count is not None and circle_adjoint_cost(n, count) < adjoint_cost(n, d):
            return circle_sums(queries, keys, mass, -log_partition, cotangent, shift, count)
    if series and d == 3:
        nearby, (at_once, for_a_token) = forecast_columns(keys, mass, queries, log_partition, rtol), _LEAST_GRID
        if nearby is not None and _FASTER * nearby.cost < min(adjoint_cost(n, 3), at_once + for_a_token * n):
            return adjoint_sorted(keys, mass, queries, log_partition, cotangent, shift, mean, nearby, rtol)
    q, k, g, m = (torch.from_numpy(part.T.copy()) for part in (queries, keys, cotangent, mean))
    log_mass, log_z, s = (torch.from_numpy(part) for part in (np.log(mass), log_partition, shift))
    by_query, by_key = attention_adjoint(Backwards(q, k, log_mass, log_z, g, s, m), rtol=rtol, step=step)
    return by_query.numpy().T, by_key.numpy().T


@njit(cache=True, nogil=True, error_model="numpy")
def _extremes(queries: Any, keys: Any, log_partition: Any) -> tuple[float, float, float]:
    """max r_i,   max r_i - log Z_i,   max | |k|^2 - 1 |."""
    longest, depth, off = 0.0, -np.inf, 0.0
    for i in range(len(log_partition)):
        square, of_key = 0.0, 0.0
        for c in range(len(keys)):
            square += queries[c, i] ** 2
            of_key += keys[c, i] ** 2
        length = math.sqrt(square)
        longest, depth = max(longest, length), max(depth, length - log_partition[i])
        off = max(off, abs(of_key - 1.0))
    return longest, depth, off


def _on_the_sphere(given: Backwards, rtol: float, step: TokensOfStep | None) -> tuple[Tensor, Tensor] | None:
    """By what takes least: pairs that count or harmonics, or a grid; None where all pairs do."""
    n, nearby = len(given.keys), forecast_adjoint(given, rtol)
    least = adjoint_cost(n, 3)
    if nearby is not None and _FASTER * nearby.cost < least:
        least = _FASTER * nearby.cost
    else:
        nearby = None
    at_once, for_a_token = _LEAST_GRID
    if least > at_once + for_a_token * n:
        laid = lay_out(given, rtol, step)
        if laid is not None and laid_cost(laid) < least:
            return sphere_adjoint(given, laid)
    return None if nearby is None else nearby_adjoint(given, nearby, rtol)


def _has_series(given: Backwards, rtol: float) -> bool:
    """Whether keys are on a sphere that has series, and so many that these are worth a look."""
    keys = given.keys
    n, d = keys.shape
    if d not in FEWEST or n < FEWEST[d] or rtol < LEAST_RTOL or not keys.is_cpu or keys.dtype != torch.float64:
        return False
    least, largest = squared_lengths(keys)
    return max(1.0 - least, largest - 1.0) <= _OFF_SPHERE


def _modes(given: Backwards, rtol: float) -> int | None:
    """Modes of the series on the circle; None where all pairs are faster, or needed."""
    n, d = given.keys.shape
    count = modes(given.queries, given.log_mass, given.log_partition, rtol)
    return count if count is not None and circle_adjoint_cost(n, count) < adjoint_cost(n, d) else None
