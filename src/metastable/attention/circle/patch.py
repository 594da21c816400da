"""Patches of queries on the circle, and which cells of keys matter to one.

A patch is a set of z = beta q with directions within `spread` of (x, y) and |z| in [low, high]. For every scanned
key cell c, the share is an upper bound over the patch of its part of F(z), from the comparison with the best cell b
at the same z,
    log share_c = log M_c - log M_b + |z| (cos(least angle to c) - cos(largest angle to b)).
Cells below the tolerance are left out. Over a patch, F is interpolated (`circle.curve`, `circle.plane`) where that
costs less than its queries one by one.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit

from metastable.attention.circle.keys import COARSEST, EMPTY
from metastable.attention.exp2 import REDUCTION


class Patches(NamedTuple):
    """Where the z of every patch are; `level` is that of the key cells which are scanned for it."""

    direction: np.ndarray
    """(patches, 2) unit vectors."""
    spread: np.ndarray
    low: np.ndarray
    high: np.ndarray
    queries: np.ndarray
    """(patches,) number of queries."""
    level: int


class Interpolants(NamedTuple):
    """Polynomials of the patches, filled patch by patch: F e^{-<z, u>} and what gives its gradient."""

    coefficients: np.ndarray
    """(patches, ...), in a form of each method's own."""
    towards: np.ndarray
    """(patches, 2): u, the centre of the best key cell."""
    orders: np.ndarray
    """(patches, ...): zero where the queries are better summed one by one."""
    errors: np.ndarray
    """(patches,)."""


def fresh(*shape: int, dtype: torch.dtype = torch.float64) -> np.ndarray:
    """An uninitialised array from torch's allocator.

    numpy asks for huge pages, and the wait until they are made can exceed the attention of a million tokens.
    """
    return torch.empty(shape, dtype=dtype).numpy()


def patch_level(sharpest: float) -> int:
    """Level of the patches: narrow enough that polynomials of degree ten to fifteen follow F over one."""
    return min(max(math.floor(math.log2(max(16.0 * math.sqrt(sharpest), 1.0))), COARSEST), 11)


def scanned_level(sharpest: float, finest: int, rtol: float) -> int:
    """Level whose cells are a quarter of the angle at which the weight e^{-|z| angle^2 / 2} falls to rtol."""
    window = math.sqrt(2.0 * (4.0 - math.log(rtol)) / max(sharpest, 1.0))
    return min(max(math.ceil(math.log2(8.0 * math.pi / window)), COARSEST), finest, 10)


@njit(nogil=True, cache=True, fastmath=REDUCTION, error_model="numpy")
def scan(keys: Any, patches: Any, patch: int, rtol: float) -> tuple[int, Any, Any]:
    """(best cell, cells that matter, log of their shares) among the key cells of the scanned level."""
    centre, half, log_mass = keys.cells.centre, keys.cells.half, keys.log_mass
    x, y, spread = patches.direction[patch, 0], patches.direction[patch, 1], patches.spread[patch]
    low, high, level = patches.low[patch], patches.high[patch], patches.level
    first, count = 2**level - 2**COARSEST, 2**level
    middle = 0.5 * (low + high)
    value = np.empty(count)
    top = EMPTY
    for c in range(count):
        v = log_mass[first + c] + middle * (centre[first + c, 0] * x + centre[first + c, 1] * y)
        value[c] = v
        top = v if v > top else top
    best = first
    for c in range(count):
        if value[c] == top:
            best = first + c
            break
    u, v = centre[best]
    angle = math.atan2(abs(v * x - u * y), u * x + v * y) + half[best] + spread
    from_best = math.cos(min(angle, math.pi))
    for c in range(count):
        cosine = centre[first + c, 0] * x + centre[first + c, 1] * y
        sine = abs(centre[first + c, 1] * x - centre[first + c, 0] * y)
        wide = half[first + c] + spread
        # cos(angle - wide) <= cos(angle) + wide sin(angle) + wide^2 / 2 where the cosine is negative.
        nearest = cosine + sine * wide + (0.5 * wide * wide if cosine < 0.0 else 0.0)
        nearest = 1.0 if nearest > 1.0 or (cosine > 0.0 and sine <= wide) else nearest
        difference = nearest - from_best
        value[c] = log_mass[first + c] - log_mass[best] + (high if difference > 0.0 else low) * difference
    cells = np.empty(count, dtype=np.int64)
    found, least = 0, math.log(0.1 * rtol / count)
    for c in range(count):
        if value[c] > least:
            cells[found] = first + c
            value[found] = min(value[c], 0.0)
            found += 1
    return best, cells[:found], value[:found]
