"""The field of panels that the flow has pressed together, from 16 points for a whole group of them.

The attended mean changes over distances of 1/kappa, kappa = beta |B|, at the shortest (tanh(kappa x) between two
clusters). On a group of panels that spans half of that, the field is a polynomial of degree 15 to 1e-15, and so is
the kernel as a function of the source: masses are handed to the 16 points by the transposed interpolation, which
keeps their moments (single masses may come out negative), and velocities are read off the polynomial.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from metastable.meanfield.panels import NODES
from metastable.meanfield.piecewise import Array

Field = Callable[[float, Array, Array], Array]

WIDEST_GROUP = 0.5
"""Span of a group in units of 1/kappa, and at most this in radians: there degree 15 is exact to 1e-15."""

_POINTS: Array = np.asarray(chebyshev.chebpts1(16), dtype=np.float64)
_TO_SERIES: Array = np.asarray(np.linalg.inv(chebyshev.chebvander(_POINTS, 15)), dtype=np.float64)


class Groups:
    """Which consecutive panels (K, 16) stand together; the others keep their own nodes.

    field(t, angles, mass): the velocity at the angles of tokens with these masses, of either sign if kappa is
    finite; kappa = inf keeps all panels apart.
    """

    def __init__(self, field: Field, theta: Array, mass: Array, kappa: float) -> None:
        span = WIDEST_GROUP / max(kappa, 1.0) if math.isfinite(kappa) else -1.0
        starts, first = [0], 0
        low, high = theta[:, 0].tolist(), theta[:, -1].tolist()
        for k in range(1, len(low)):
            if not (0 <= high[k] - low[first] <= span and low[k] >= low[first]):
                first = k
                starts.append(k)
        starts_array = np.array(starts)
        size = np.diff(starts_array, append=len(low))
        grouped = size > 1
        self.inside: NDArray[np.bool_] = np.repeat(grouped, size)
        count = size[grouped]
        self.of = np.repeat(np.arange(len(count)), count)
        self.first = np.cumsum(count) - count
        self.field, self.mass = field, mass

    def velocity(self, t: float, theta: Array) -> Array:
        """The angular velocity at all nodes."""
        if not len(self.first):
            return self.field(t, theta.ravel(), self.mass.ravel()).reshape(theta.shape)
        alone, near = theta[~self.inside], theta[self.inside]
        low = np.minimum.reduceat(near.min(axis=1), self.first)
        high = np.maximum.reduceat(near.max(axis=1), self.first)
        half = np.maximum((high - low) / 2, 1e-300)
        middle = low + half
        xi = (near - middle[self.of, None]) / half[self.of, None]
        basis = _basis(np.clip(xi, -1.0, 1.0))
        moments = np.add.reduceat(np.einsum("pjk,pj->pk", basis, self.mass[self.inside]), self.first, axis=0)
        points = middle[:, None] + half[:, None] * _POINTS
        angles = np.concatenate([alone.ravel(), points.ravel()])
        weight = np.concatenate([self.mass[~self.inside].ravel(), (moments @ _TO_SERIES).ravel()])
        found = self.field(t, angles, weight)
        out = np.empty_like(theta)
        out[~self.inside] = found[: alone.size].reshape(-1, NODES)
        series = found[alone.size :].reshape(-1, 16) @ _TO_SERIES.T
        out[self.inside] = np.einsum("pjk,pk->pj", basis, series[self.of])
        return out


def _basis(xi: Array) -> Array:
    """Chebyshev polynomials (..., 16) of degree 0 to 15."""
    out = np.empty((*xi.shape, 16))
    out[..., 0], out[..., 1] = 1.0, xi
    for k in range(2, 16):
        out[..., k] = 2 * xi * out[..., k - 1] - out[..., k - 2]
    return out
