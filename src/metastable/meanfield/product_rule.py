"""Product rules on S^2 about an axis: Gauss in the height, trapezoidal in the longitude, dense where asked.

    height  z = <axis, x>:  z = xi (plain), or z = eps sinh(a xi), a = arsinh(1/eps) (graded: dense at z = 0)
    pulled  x = e^{-sM} y / |e^{-sM} y| of a rule in y, with the Jacobian |e^{sM} x|^{-3} e^{s tr M} in the masses
A function on a product grid can be interpolated to a finer one, which is what makes kinked integrals accurate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import legendre
from scipy.linalg import expm

from metastable.meanfield.piecewise import Array


@dataclass(frozen=True, eq=False)
class ProductRule:
    """The family of rules with one axis, one grading and one pull; a member is given by its numbers of nodes."""

    axis: Array
    eps: float | None = None
    generator: Array | None = None
    pull: float = 0.0
    split: bool = False
    """Gauss on each hemisphere, so that a kink at the equator costs nothing; such a rule is not interpolated."""

    def nodes(self, heights: int, longitudes: int) -> tuple[Array, Array]:
        """Points (heights * longitudes, 3) and masses (sum 1) that integrate against the uniform law."""
        z, dz = self._heights(heights)
        heights = len(z)
        phi = 2 * np.pi * (np.arange(longitudes) + 0.5) / longitudes
        side = np.sqrt((1 - z) * (1 + z))
        frame = self.frame
        local = np.stack(
            [
                side[:, None] * np.cos(phi),
                side[:, None] * np.sin(phi),
                np.broadcast_to(z[:, None], (heights, longitudes)),
            ],
            axis=-1,
        ).reshape(-1, 3)
        points = local @ frame
        mass = np.repeat(dz / 2 / longitudes, longitudes)
        if self.generator is not None and self.pull:
            back = expm(-self.pull * self.generator)
            points = points @ back.T
            length = np.linalg.norm(points, axis=1)
            mass = mass * abs(np.linalg.det(back)) / length**3
            points = points / length[:, None]
        return points, mass / mass.sum()

    def interpolate(self, values: Array, coarse: tuple[int, int], fine: tuple[int, int]) -> Array:
        """Values (heights * longitudes, c) of smooth functions on the sphere, from one member to another.

        The longitude mode m of a smooth function is (1 - z^2)^{|m|/2} times a smooth function of z, so the square
        root is divided out of the odd modes before they are interpolated as polynomials.
        """
        grid = values.reshape(*coarse, -1)
        z, z_fine = self._heights(coarse[0])[0], self._heights(fine[0])[0]
        side, side_fine = np.sqrt((1 - z) * (1 + z)), np.sqrt((1 - z_fine) * (1 + z_fine))
        half = np.arange(coarse[1] // 2 + 1)
        # Longitudes sit at half cells of their own grid: bring the modes to a common origin and away from it again.
        modes = np.fft.rfft(grid, axis=1) * np.exp(-1j * half * np.pi / coarse[1])[:, None] / coarse[1]
        if coarse[1] % 2 == 0:
            modes[:, -1] = 0.0
        odd = half % 2 == 1
        xi, xi_fine = legendre.leggauss(coarse[0])[0], legendre.leggauss(fine[0])[0]
        weights = legendre.leggauss(coarse[0])[1]
        degrees = np.arange(coarse[0])
        to_series = (legendre.legvander(xi, coarse[0] - 1) * (degrees + 0.5)).T * weights
        matrix = legendre.legvander(xi_fine, coarse[0] - 1) @ to_series
        modes[:, odd] /= side[:, None, None]
        modes = np.einsum("fz,zmc->fmc", matrix, modes)
        modes[:, odd] *= side_fine[:, None, None]
        spectrum = np.zeros((fine[0], fine[1] // 2 + 1, grid.shape[2]), dtype=complex)
        kept = min(len(half), spectrum.shape[1])
        spectrum[:, :kept] = modes[:, :kept] * np.exp(1j * half[:kept] * np.pi / fine[1])[:, None]
        return np.fft.irfft(spectrum * fine[1], fine[1], axis=1).reshape(fine[0] * fine[1], -1)

    def _heights(self, n: int) -> tuple[Array, Array]:
        xi, weight = legendre.leggauss(n)
        if self.split:
            half, weight = legendre.leggauss(-(-n // 2))
            xi = np.concatenate([(half - 1) / 2, (half + 1) / 2])
            weight = np.concatenate([weight, weight]) / 2
        if self.eps is None:
            return xi, weight
        a = math.asinh(1 / self.eps)
        return self.eps * np.sinh(a * xi), self.eps * a * np.cosh(a * xi) * weight

    @property
    def frame(self) -> Array:
        """Orthonormal rows, the last of them the axis."""
        axis = np.asarray(self.axis, dtype=np.float64) / np.linalg.norm(self.axis)
        basis = np.linalg.qr(np.column_stack([axis, np.eye(3)[:, np.argsort(np.abs(axis))[:2]]]))[0]
        return np.stack([basis[:, 1], basis[:, 2], axis])
