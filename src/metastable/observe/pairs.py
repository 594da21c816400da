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
    close, all_pairs = np.empty(weights.shape), np.empty(weights.shape)
    x, m = many.transpose(1, 2).contiguous().numpy(), weights.contiguous().numpy()
    n, d = measure.n, measure.d

    def some(start: int, stop: int) -> None:
        _close_pairs(start, stop, x, m, threshold, close, all_pairs)

    over_rows(some, len(x) * n, cost=NANOSECONDS * len(x) * n * n * d / 2)
    whole = all_pairs.sum(1)
    if not (whole > 0).all():
        raise InvalidInput("pairs need two tokens that carry mass, got one")
    fractions = torch.from_numpy(close.sum(1) / whole)
    return fractions if isinstance(measure, Ensemble) else float(fractions[0])


@njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _close_pairs(start: int, stop: int, x: Any, m: Any, threshold: float, close: Any, all_pairs: Any) -> None:
    """sum_j m_i m_j 1[<x_i, x_j> > threshold] and sum_j m_i m_j over j != i, for rows s n + i in [start, stop)."""
    d, n = x.shape[1:]
    for row in range(start, stop):
        s, i = divmod(row, n)
        near, every = 0.0, 0.0
        for first, last in ((0, i), (i + 1, n)):
            for j in range(first, last):
                overlap = 0.0
                for c in range(d):
                    overlap += x[s, c, i] * x[s, c, j]
                near += m[s, j] if overlap > threshold else 0.0
                every += m[s, j]
        close[s, i] = m[s, i] * near
        all_pairs[s, i] = m[s, i] * every
