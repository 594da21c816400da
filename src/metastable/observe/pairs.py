"""How many pairs of tokens are close: the order parameter of published phase diagrams of clustering."""

from __future__ import annotations

from typing import Any, overload

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from metastable.arguments import number
from metastable.errors import InvalidInput
from metastable.measure import Ensemble, as_measure
from metastable.threads import over_rows

NANOSECONDS = 1.0
"""Rough cost of one pair in few dimensions, for the choice of threads."""
BLOCK = 512
"""Tokens whose overlaps with one are kept at a time: with their coordinates they stay in the first cache."""


@overload
def pair_fraction(rho: Ensemble, threshold: float = ...) -> Float[Tensor, "b"]: ...


@overload
def pair_fraction(rho: Any, threshold: float = ...) -> float: ...


def pair_fraction(rho: Any, threshold: float = 0.999) -> float | Float[Tensor, "b"]:
    """P(<x_i, x_j> > threshold) over pairs i != j, weighted with m_i m_j; of an `Ensemble`, of every system.

    1 when all tokens are one cluster. The phase diagram of [arXiv:2312.10794] shows its mean over random starts at
    the threshold 0.999. Time O(n^2), memory O(n).

    >>> round(pair_fraction([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0]]), 12)
    0.333333333333
    """
    threshold = number(threshold, "threshold")
    measure = rho if isinstance(rho, Ensemble) else as_measure(rho)
    if measure.n < 2:
        raise InvalidInput("pairs need at least two tokens, got one")
    points, mass = (x.cpu().double() for x in (measure.points, measure.mass))
    many = points if isinstance(measure, Ensemble) else points[None]
    weights = mass if isinstance(measure, Ensemble) else mass[None]
    x, m = many.transpose(1, 2).contiguous().numpy(), weights.contiguous().numpy()
    n, d, half = measure.n, measure.d, (measure.n + 1) // 2
    close, all_pairs = np.empty((len(x), half)), np.empty((len(x), half))

    def some(start: int, stop: int) -> None:
        _close_pairs(start, stop, x, m, threshold, close, all_pairs)

    over_rows(some, len(x) * half, cost=NANOSECONDS * len(x) * n * n * d / 2)
    whole = all_pairs.sum(1)
    if not (whole > 0).all():
        raise InvalidInput("pairs need two tokens that carry mass, got one")
    fractions = torch.from_numpy(close.sum(1) / whole)
    return fractions if isinstance(measure, Ensemble) else float(fractions[0])


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _close_pairs(start: int, stop: int, x: Any, m: Any, threshold: float, close: Any, all_pairs: Any) -> None:
    """close_sr = sum over i in {r, n-1-r} and j < i of m_i m_j 1[<x_i, x_j> > threshold]; all_pairs without 1[].

    For rows s ceil(n/2) + r in [start, stop): all rows are equally long, and together have every pair once.
    """
    d, n = x.shape[1:]
    half = close.shape[1]
    overlap = np.empty(BLOCK)
    for row in range(start, stop):
        s, r = divmod(row, half)
        close[s, r], all_pairs[s, r] = 0.0, 0.0
        for side in range(1 if 2 * r == n - 1 else 2):
            i = r if side == 0 else n - 1 - r
            near, every = 0.0, 0.0
            for first in range(0, i, BLOCK):
                count = min(BLOCK, i - first)
                for j in range(count):
                    overlap[j] = x[s, 0, i] * x[s, 0, first + j]
                for c in range(1, d):
                    for j in range(count):
                        overlap[j] += x[s, c, i] * x[s, c, first + j]
                for j in range(count):
                    near += m[s, first + j] if overlap[j] > threshold else 0.0
                    every += m[s, first + j]
            close[s, r] += m[s, i] * near
            all_pairs[s, r] += m[s, i] * every
