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

NEWTON = 6
"""Steps of Newton's method from a table with four places per value: 1e-3 of a spacing, squared at every step."""


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

    def at(self, s: Array) -> tuple[Array, Array]:
        """The longitudes at s of [0, length), and dphi/ds there."""
        low, high = np.zeros_like(s), np.full_like(s, TWO_PI)
        for _ in range(60):
            middle = (low + high) / 2
            below = self.arc(middle) < s
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        phi = np.where(s == 0, 0.0, (low + high) / 2)
        return phi, 1 / self.density(phi)

    def longitudes(self, lines: int) -> tuple[Array, Array]:
        """Angles (lines,), and shares of the circle that sum to one; every second of 2n is one of n."""
        return equispaced(self, lines)


@dataclass(frozen=True)
class Crowded:
    """Another grading with its lines closer by a factor where they have to be: ds'/ds = factor(s).

    factor: its values at equispaced s, between which it is a trigonometric polynomial; smooth on that grid.
    """

    base: Grading | Crowded
    factor: tuple[float, ...]

    @property
    def length(self) -> float:
        """s' once around."""
        return self.base.length * float(np.mean(self.factor))

    def at(self, s: Array) -> tuple[Array, Array]:
        """The longitudes at s' of [0, length), and dphi/ds' there: Newton's method from a table of s'(s)."""
        count = len(self.factor)
        series = np.fft.rfft(self.factor)[: (count + 1) // 2] / count  # without the mode that has no sine
        wave = 2j * np.pi / self.base.length * np.arange(1, len(series))
        slope, mean = 2 * series[1:], float(series[0].real)

        def arc(at: Array) -> Array:
            return np.asarray(mean * at + (np.expm1(at[:, None] * wave) @ (slope / wave)).real)

        def density(at: Array) -> Array:
            return np.asarray(mean + (np.exp(at[:, None] * wave) @ slope).real)

        table = np.linspace(0.0, self.base.length, 4 * count + 1)
        inner = np.interp(s, arc(table), table)
        for _ in range(NEWTON):
            inner = inner - (arc(inner) - s) / density(inner)
        inner = np.where(s == 0, 0.0, np.clip(inner, 0.0, self.base.length))
        phi, slower = self.base.at(inner)
        return phi, slower / density(inner)

    def longitudes(self, lines: int) -> tuple[Array, Array]:
        """Angles (lines,), and shares of the circle that sum to one; every second of 2n is one of n."""
        return equispaced(self, lines)


def equispaced(grading: Grading | Crowded, lines: int) -> tuple[Array, Array]:
    """Longitudes equispaced in s, and shares of the circle that sum to one."""
    phi, share = grading.at(np.arange(lines, dtype=np.float64) * (grading.length / lines))
    return phi, share / share.sum()
