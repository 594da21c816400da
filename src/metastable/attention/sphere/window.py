"""A window that carries functions on a circle between its points and equispaced nodes, and the error of that.

`Window` interpolates a 2 pi-periodic f from N coarse nodes: Fourier coefficients |l| < N/2 from the coarse nodes,
divided by those of the window, values at M nodes of a fine grid, and
    f(x) ~ sum_j psi(x M/(2 pi) - j) fine_j
over the `width` nearest ones. psi is the Kaiser-Bessel window I_0(gamma sqrt(1 - (2x/width)^2)), tabulated as
`width` polynomials of the place between two nodes. The transpose of the same map spreads masses.

On e^{ilx} the map errs by at most E_l = max_x |sum_j psi(x - j) e^{il(j - x)}/psi_l - 1| for |l| < N/2, and by
one plus its norm above, so that f errs by at most sum_l |f_l| E_l. E_l is computed here from the tabulated window.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import i0, ive

WINDOWS = ((8, 2.0), (16, 1.25), (16, 1.5), (16, 2.0))
"""(width, fine over coarse nodes), cheapest first. Widths fill vector registers: 12 costs as much as 16."""
_OFFSETS = 33
"""Places between two nodes at which the error of a window is looked for."""


class Window(NamedTuple):
    """The window of one width on M fine nodes."""

    width: int
    fine: int
    table: np.ndarray
    """(degree + 1, width): coefficients, highest power first, in 2u - 1, u the distance from x to the next node."""
    transform: np.ndarray
    """(M/2 + 1,): psi_l."""
    error: np.ndarray
    """(M/2 + 1,): E_l of the modes that are kept."""


@lru_cache(maxsize=8)
def _table(width: int, ratio: float) -> np.ndarray:
    """Polynomials of psi between nodes, for a fine grid `ratio` times as fine as the coarse one."""
    gamma = math.pi * width * (1.0 - 0.5 / ratio)
    degree = width + 1
    u = 0.5 * (1.0 + np.cos((np.arange(64) + 0.5) * math.pi / 64))
    place = u[:, None] - 0.5 * width + np.arange(width)  # node minus x, in fine steps
    values = i0(gamma * np.sqrt(np.maximum(1.0 - (2.0 * place / width) ** 2, 0.0))) / i0(gamma)
    table = np.zeros((degree + 1, width))
    for i in range(width):
        fitted = np.polynomial.chebyshev.Chebyshev.fit(2.0 * u - 1.0, values[:, i], degree, domain=[-1, 1])
        powers = np.polynomial.chebyshev.cheb2poly(fitted.coef)
        # A highest coefficient that is zero to the last digit is left out, as symmetry makes that of the middle.
        table[degree + 1 - len(powers) :, i] = powers[::-1]
    return table


@lru_cache(maxsize=32)
def window(width: int, ratio: float, fine: int) -> Window:
    """The window of a width for M = `fine` nodes, with its transform and its error on every mode."""
    table = _table(width, ratio)
    u = np.linspace(0.0, 1.0, _OFFSETS)
    psi = np.zeros((_OFFSETS, width))
    for row in table:
        psi = psi * (2.0 * u[:, None] - 1.0) + row
    place = u[:, None] - 0.5 * width + np.arange(width)
    modes = np.arange(fine // 2 + 1)
    # psi is even: the average over x and -x is real.
    sums = np.einsum("ui,lui->lu", psi, np.exp(2j * math.pi / fine * modes[:, None, None] * place))
    step = np.full(_OFFSETS, 1.0)
    step[[0, -1]] = 0.5
    transform = (sums @ step).real / step.sum()
    error = np.abs(sums / transform[:, None] - 1.0).max(axis=1)
    return Window(width, fine, table, transform, error)


@lru_cache(maxsize=64)
def lebesgue(coarse: int) -> float:
    """Norm, for the maximum norm, of trigonometric interpolation at N = `coarse` nodes without the mode N/2."""
    x = (np.arange(coarse) + np.linspace(0.01, 0.99, 15)[:, None]) * (2.0 * math.pi / coarse)
    return float(np.abs(np.sin(0.5 * (coarse - 1) * x) / (coarse * np.sin(0.5 * x))).sum(axis=1).max())


@lru_cache(maxsize=16)
def von_mises(r: float, modes: int) -> np.ndarray:
    """(modes,): e^{-r} I_l(r) = Fourier coefficients of e^{r (cos x - 1)}; over l of both signs they sum to one.

    Those of e^{R cos x - r}, R < r, put less weight on large |l|.
    """
    return ive(np.arange(modes), r)


def mapped_error(weights: np.ndarray, kept: Window, coarse: int) -> tuple[float, float]:
    """sum_l |f_l| E_l over the modes that N = `coarse` nodes tell apart, and sum_l |f_l| over all others.

    |f_l| <= `weights` for both signs of l; one mode further on, for f times a coordinate.
    """
    half = min(coarse // 2 - 1, len(weights))
    inside = np.maximum.accumulate(kept.error[1 : half + 1])
    return float(2.0 * weights[:half] @ inside), float(2.0 * weights[half:].sum())
