"""Piecewise Chebyshev functions on the circle: F(theta + 2 pi) = F(theta) + winding, on cells chosen adaptively.

A cumulative distribution has winding 1 and a velocity winding 0. Every cell holds the values at its DEGREE + 1
Chebyshev-Lobatto points; neighbouring cells share their end values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.polynomial import chebyshev, legendre
from numpy.typing import NDArray

Array = NDArray[np.float64]

DEGREE = 16
"""Degree of the polynomial on a cell; as many Gauss nodes integrate its increments exactly."""
TWO_PI = 2 * math.pi

LOBATTO: Array = np.asarray(-np.cos(np.arange(DEGREE + 1) * (math.pi / DEGREE)), dtype=np.float64)
TO_COEFFICIENTS: Array = np.asarray(np.linalg.inv(chebyshev.chebvander(LOBATTO, DEGREE)), dtype=np.float64)
GAUSS, GAUSS_WEIGHTS = legendre.leggauss(DEGREE)
_DERIVATIVE_AT_GAUSS: Array = (
    chebyshev.chebvander(GAUSS, DEGREE - 1) @ chebyshev.chebder(np.eye(DEGREE + 1)) @ TO_COEFFICIENTS
)
_VALUES_TO_INTEGRAL: Array = chebyshev.chebvander(LOBATTO, DEGREE + 1) @ chebyshev.chebint(TO_COEFFICIENTS, lbnd=-1)


@dataclass(frozen=True, eq=False)
class Piecewise:
    """Values (K, DEGREE+1) on K cells with increasing edges (K+1,), edges[-1] = edges[0] + 2 pi; see the module."""

    edges: Array
    values: Array
    winding: float = 0.0

    @cached_property
    def coefficients(self) -> Array:
        """Chebyshev coefficients (K, DEGREE+1) of every cell."""
        return self.values @ TO_COEFFICIENTS.T

    @cached_property
    def width(self) -> Array:
        """Widths (K,) of the cells."""
        return np.diff(self.edges)

    @property
    def tail(self) -> Array:
        """Size (K,) of the last three coefficients: the error of a resolved cell is below it."""
        return np.abs(self.coefficients[:, -3:]).max(axis=1)

    def __call__(self, theta: Array) -> Array:
        """The function at angles of any branch."""
        turns = np.floor((theta - self.edges[0]) / TWO_PI)
        x = theta - TWO_PI * turns
        cell = np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, len(self.width) - 1)
        xi = (x - self.edges[cell]) / self.width[cell] * 2 - 1
        return clenshaw(self.coefficients[cell], xi) + self.winding * turns

    def quadrature(self) -> tuple[Array, Array]:
        """Gauss nodes (K, DEGREE) and the increments F'(theta) d theta they stand for; a cell's sum is exact."""
        nodes = self.edges[:-1, None] + self.width[:, None] * (GAUSS + 1) / 2
        return nodes, self._derivative() * GAUSS_WEIGHTS

    def slope(self) -> Array:
        """F'(theta) at the Gauss nodes, (K, DEGREE)."""
        return self._derivative() * 2 / self.width[:, None]

    def _derivative(self) -> Array:
        # Relative to the first value: a constant of order one would leave its rounding in a small increment.
        return (self.values - self.values[:, :1]) @ _DERIVATIVE_AT_GAUSS.T

    def antiderivative(self) -> Piecewise:
        """The integral from edges[0], whose winding is the integral over the circle."""
        inside = self.values @ _VALUES_TO_INTEGRAL.T * self.width[:, None] / 2
        start = np.concatenate([[0.0], np.cumsum(inside[:, -1])])
        return Piecewise(self.edges, inside + start[:-1, None], float(start[-1]))


def clenshaw(coefficients: Array, xi: Array) -> Array:
    """sum_k c_k T_k(xi) with one row of coefficients per point."""
    older = np.zeros_like(xi)
    newer = np.zeros_like(xi)
    twice = 2 * xi
    for k in range(coefficients.shape[1] - 1, 0, -1):
        older, newer = newer, coefficients[:, k] + twice * newer - older
    return coefficients[:, 0] + xi * newer - older


def adapt(
    function: Callable[[Array], Array],
    edges: Array,
    resolved: Callable[[Piecewise], NDArray[np.bool_]],
    *,
    winding: float = 0.0,
    levels: int = 40,
) -> tuple[Piecewise, bool]:
    """Halve the cells that are not resolved until all are; also whether that was reached in `levels` rounds."""
    values = function(_points(edges).ravel()).reshape(-1, DEGREE + 1)
    for _ in range(levels):
        trial = Piecewise(edges, values, winding)
        split = ~resolved(trial)
        if not split.any():
            return trial, True
        left, right = edges[:-1], edges[1:]
        middle = (left + right) / 2
        parts = np.where(split, 2, 1)
        first = np.cumsum(parts) - parts
        new_edges = np.empty(parts.sum() + 1)
        new_edges[first], new_edges[-1] = left, edges[-1]
        new_edges[first[split] + 1] = middle[split]
        new_values = np.empty((parts.sum(), DEGREE + 1))
        new_values[first[~split]] = values[~split]
        fresh = np.concatenate([first[split], first[split] + 1])
        at = new_edges[fresh, None] + (new_edges[fresh + 1] - new_edges[fresh])[:, None] * (LOBATTO + 1) / 2
        new_values[fresh] = function(at.ravel()).reshape(-1, DEGREE + 1)
        edges, values = new_edges, new_values
    trial = Piecewise(edges, values, winding)
    return trial, bool(resolved(trial).all())


def _points(edges: Array) -> Array:
    return edges[:-1, None] + np.diff(edges)[:, None] * (LOBATTO + 1) / 2
