"""Chebyshev nodes, and the maps from values at them to coefficients, for every order that patches use."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

MOST = 28
"""Largest order of interpolation in a patch. Patches are made for orders of ten to fifteen (`patch_level`); beyond
twice that, monomials, which are cheap to evaluate, lose too many digits to cancellation, and the queries of the
patch are better summed one by one."""


@cache
def chebyshev_nodes(p: int) -> np.ndarray:
    """Nodes cos((2a + 1) pi / 2p), a = 0..p-1."""
    return np.cos((2 * np.arange(p) + 1) * math.pi / (2 * p))


class ChebyshevTables(NamedTuple):
    """For all orders up to MOST, filled with zeros."""

    nodes: np.ndarray
    """[order, a]."""
    transform: np.ndarray
    """[order, k, a]: coefficients from values at the nodes."""
    monomials: np.ndarray
    """[k, power]: T_k as a polynomial."""


@cache
def chebyshev_tables() -> ChebyshevTables:
    """The tables, made at the first call."""
    nodes, transform = np.zeros((MOST + 1, MOST)), np.zeros((MOST + 1, MOST, MOST))
    for order in range(1, MOST + 1):
        nodes[order, :order] = chebyshev_nodes(order)
        angle = np.arange(order)[:, None] * (2 * np.arange(order) + 1) * math.pi / (2 * order)
        transform[order, :order, :order] = np.cos(angle) * (2.0 / order)
        transform[order, 0, :order] *= 0.5
    monomials = np.zeros((MOST, MOST))
    for k in range(MOST):
        monomials[k, : k + 1] = np.polynomial.chebyshev.cheb2poly([0.0] * k + [1.0])
    return ChebyshevTables(nodes, transform, monomials)
