"""Longitudes of the lines of a bundle: dense where the flow spreads lines apart.

    dphi/ds ~ 1/(1 + extra/sqrt(width^2 + sin^2 phi)),   s = phi + extra/width F(phi | -1/width^2)
On the separatrix plane of the zero-temperature flow, lines leave the direction a of its smallest eigenvalue, phi =
0 and pi, at the rate r = (lambda_2 - lambda_3)/|B^T a|: the angle phi stands for the time log(1/phi)/r at which its
lines are a radian apart. Equispaced in s, the rule converges like the trapezoidal rule that it is in s: near a
source phi = width sinh(s/extra), which has no singularity near real s. Another power than 1/2 has one, and then 48
lines are right to 1e-6 where these are to 1e-11.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from metastable.meanfield.piecewise import TWO_PI, Array


@dataclass(frozen=True)
class Grading:
    """extra, width: see the module; extra = 0 is equispaced."""

    extra: float = 0.0
    width: float = 1.0

    def density(self, phi: Array) -> Array:
        """ds/dphi."""
        return np.asarray(1 + self.extra / np.hypot(self.width, np.sin(phi)))

    def arc(self, phi: Array) -> Array:
        """s at the longitudes, by Legendre's integral of the first kind."""
        turned = special.ellipkinc(phi, -1 / self.width**2) / self.width
        return np.asarray(phi + self.extra * turned)

    @property
    def length(self) -> float:
        """s once around."""
        return float(self.arc(np.array(TWO_PI)))

    def longitudes(self, lines: int) -> tuple[Array, Array]:
        """Angles (lines,), and shares of the circle that sum to one; every second of 2n is one of n."""
        wanted = np.arange(lines) * (self.length / lines)
        low, high = np.zeros(lines), np.full(lines, TWO_PI)
        for _ in range(60):
            middle = (low + high) / 2
            below = self.arc(middle) < wanted
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        phi = np.where(wanted == 0, 0.0, (low + high) / 2)
        share = 1 / self.density(phi)
        return phi, share / share.sum()
