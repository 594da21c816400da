"""Two measures made ready for transport: same space, same total mass, no empty tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from metastable.errors import InvalidInput
from metastable.measure import Measure, as_measure

TOTAL_RTOL = 1e-6
"""Total masses that differ by less are equal: float32 masses sum to their total to about 1e-7."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Source sum_i a_i delta_{x_i} and target sum_j b_j delta_{y_j}, float64 arrays, masses that sum to one.

    Euclidean tokens are divided by `scale`, a power of two that brings the largest coordinate to order one, so that
    no power of a distance overflows; what is computed of the pair is multiplied by it.
    """

    x: Float[np.ndarray, "n d"]
    a: Float[np.ndarray, "n"]
    y: Float[np.ndarray, "m d"]
    b: Float[np.ndarray, "m"]
    sphere: bool
    scale: float = 1.0

    @property
    def d(self) -> int:
        """Dimension of the ambient space."""
        return int(self.x.shape[1])

    @property
    def pairs(self) -> int:
        """Number of entries n*m of the cost matrix."""
        return len(self.a) * len(self.b)

    def swapped(self) -> Pair:
        """The same problem seen from the target."""
        return Pair(self.y, self.b, self.x, self.a, self.sphere, self.scale)


def make_pair(a: Any, b: Any, metric: str = "chordal") -> Pair:
    """Validate two measures (or arrays of points) against each other.

    Balanced transport needs equal total masses: totals that differ by more than 1e-6 relative are refused.
    """
    sphere = all(rho.sphere for rho in (a, b) if isinstance(rho, Measure))
    a, b = as_measure(a, sphere=sphere), as_measure(b, sphere=sphere)
    if a.d != b.d:
        raise InvalidInput(f"the measures must live in the same dimension, got d = {a.d} and d = {b.d}")
    if abs(a.total - b.total) > TOTAL_RTOL * max(a.total, b.total):
        raise InvalidInput(
            f"the measures must have the same total mass for balanced transport, got {a.total:g} and {b.total:g}; "
            "normalise the masses first"
        )
    if metric == "geodesic" and not sphere:
        raise InvalidInput(
            "metric 'geodesic' needs tokens on the sphere, got Euclidean tokens; use 'chordal', |x - y|"
        )
    (x, mass_x), (y, mass_y) = _arrays(a), _arrays(b)
    largest = 0.0 if sphere else max(float(np.abs(x).max()), float(np.abs(y).max()))
    if largest == 0.0:
        return Pair(x, mass_x, y, mass_y, sphere)
    exponent = math.frexp(largest)[1] - 1
    return Pair(np.ldexp(x, -exponent), mass_x, np.ldexp(y, -exponent), mass_y, False, math.ldexp(1.0, exponent))


def _arrays(rho: Measure) -> tuple[np.ndarray, np.ndarray]:
    points, mass = (np.ascontiguousarray(array, dtype=np.float64) for array in rho.numpy())
    if mass.min() == 0:
        keep = mass > 0
        points, mass = points[keep], mass[keep]
    total = mass.sum()
    # float32 masses sum to one only to 1e-7; the solvers need it to rounding.
    return points, mass if abs(total - 1) < 1e-15 else mass / total


def equal_masses(mass: np.ndarray) -> bool:
    """Whether all masses agree to the last bit."""
    return bool((mass == mass[0]).all())
