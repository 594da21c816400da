"""Nodes on S^2 that are dense at one point: where a flow tears tokens apart while all others gather elsewhere.

    x = (tanh y) pole + (1/cosh y)(cos phi, sin phi),   sigma(dx) = dy dphi/(4 pi cosh^2 y)
Equispaced in y and phi: exact to rounding for a smooth density, and as fine as e^{-reach} at the pole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from metastable.arguments import integer, number
from metastable.errors import InvalidInput
from metastable.meanfield.law import Empirical, as_law, checked_density, unit_vector
from metastable.measure import Measure

STEP = 0.3
"""Step in y: the trapezoidal rule leaves e^{-pi^2/STEP} = 5e-15 of what is analytic in |Im y| < pi/2."""
MARGIN = 7.0
"""How far nodes go beyond what is asked: the mass beyond them is e^{-14} = 1e-6 of what is left at the pole."""
MOST_LONGITUDES = 4096
"""Most longitudes of a parallel."""


def polar_nodes(density: Any, pole: Any, reach: float = 8.0, longitudes: int = 16) -> Measure:
    """Nodes with masses of a law on S^2, graded towards the pole down to the distance e^{-reach}.

    density: relative to the uniform law, as for `meanfield.solve`. longitudes: nodes of a parallel, exact for a
    density of lower degree than that.

    >>> rho = polar_nodes(lambda x: 1 + 0.5 * x[:, 0], [0.0, 0.0, 1.0])
    >>> abs(float(rho.mass @ rho.points[:, 0]) - 1 / 6) < 1e-6
    True
    """
    axis = unit_vector(pole, "pole", 3).numpy()
    reach = number(reach, "reach", least=0.0, most=300.0)
    longitudes = integer(longitudes, "longitudes", least=3, most=MOST_LONGITUDES)
    law = as_law(density, 3)
    if isinstance(law, Empirical):
        raise InvalidInput("polar nodes need a density, got tokens, which are nodes already")
    y = STEP * np.arange(-np.ceil(MARGIN / STEP), np.ceil((reach + MARGIN) / STEP) + 1)
    phi = 2 * np.pi * (np.arange(longitudes) + 0.5) / longitudes
    frame = np.linalg.qr(np.column_stack([axis, np.eye(3)]))[0][:, 1:3]
    ring = np.cos(phi)[:, None] * frame[:, 0] + np.sin(phi)[:, None] * frame[:, 1]
    points = np.tanh(y)[:, None, None] * axis + (1 / np.cosh(y))[:, None, None] * ring
    weight = np.repeat(np.cosh(y) ** -2.0, longitudes)
    at = torch.from_numpy(points.reshape(-1, 3))
    return Measure(at, checked_density(law, at) * torch.from_numpy(weight / weight.sum()))
