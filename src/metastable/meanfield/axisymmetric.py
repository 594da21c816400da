"""Laws that are symmetric about an axis, resolved to rounding up to late times: nodes on a scale of their own.

    y = artanh u,  u = <x, e>:  the uniform law has the density cosh(y)^{1-d}, a Moebius image cosh(y - eta)^{1-d}.
In y the antipode is at -infinity, and at beta = 0 the flow is a translation. Equispaced nodes in y therefore
resolve what is left at the antipode for as long as they reach, and the trapezoidal rule is exact to rounding.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import integer, number, shown
from metastable.errors import InvalidInput
from metastable.flows.axisymmetric import LARGEST_DIMENSION
from metastable.measure import Measure, as_tensor
from metastable.solve.path import Path

STEP = 0.125
"""Step in y. At beta = 0 twice as much would do; measured at beta = 0.8, unnormalised, d = 2, t = 30: 1 - R, 1e-6
by then, changes by a share of 1e-8 when it is halved, by 7e-5 when it is doubled."""
NEGLIGIBLE = 32.0
"""Nodes end where the mass beyond them is e^{-32} = 1e-14 of what is left at the antipode."""
LARGEST_REACH = 300.0
"""Farthest node: sqrt(1 - u^2) = e^{-300} still is a number, and so is its square."""


def axisymmetric_nodes(d: int, bumps: Any = ((1.0, 0.5),), reach: float = 20.0) -> Measure:
    """Nodes (u, sqrt(1 - u^2)) with masses of the law sum_i w_i M_i, M_i the Moebius image of shift eta_i.

    bumps: pairs (w_i, eta_i); a bump of shift eta > 0 sits at e and is e^{-eta} wide, of shift -eta at -e; eta = 0
    is the uniform law. reach: the time up to which the antipode is resolved, for tokens that leave at the rate 1.
    The tokens are those of `AxisymmetricAttention`; where they lump (beta >> 1) the nodes are too few for it.

    >>> rho = axisymmetric_nodes(2, [(1.0, 0.5)])
    >>> abs(float(rho.mass @ rho.points[:, 0]) - math.tanh(0.25)) < 1e-14
    True
    """
    d = integer(d, "d", least=2, most=LARGEST_DIMENSION)
    reach = number(reach, "reach", least=0.0, most=LARGEST_REACH)
    pairs = as_tensor(bumps, "bumps").cpu().numpy()
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not np.isfinite(pairs).all():
        raise InvalidInput(f"bumps must be finite pairs (weight, shift), got {shown(bumps)}")
    weights, shifts = pairs.T
    if not ((weights >= 0).all() and 0 < weights.sum() < math.inf):
        raise InvalidInput(f"weights of bumps must be >= 0 with a positive sum, got {shown(weights.tolist())}")
    margin = math.acosh(math.exp(min(NEGLIGIBLE / (d - 1), NEGLIGIBLE)))
    low, high = float(shifts.min()) - reach - margin, float(shifts.max()) + margin
    if max(-low, high) > LARGEST_REACH + margin:
        raise InvalidInput(f"shifts and reach together must be below {LARGEST_REACH:g}, got {shown(bumps)}")
    step = min(STEP, 0.5 / math.sqrt(d - 1))
    y = step * np.arange(math.floor(low / step), math.ceil(high / step) + 1)
    log_mass = -(d - 1) * np.logaddexp(y[:, None] - shifts, shifts - y[:, None])
    mass = np.exp(log_mass - log_mass.max()) @ weights
    side = 1 / np.cosh(np.clip(y, -700, 700))
    kept = mass > 0
    return Measure(np.stack([np.tanh(y), side], axis=1)[kept], mass[kept])


def axial_disorder(path: Path) -> Float[Tensor, "m"]:
    """1 - R = E[1 - u] at the saved times, with all its digits: half of W2^2 to the atom at e, chordal."""
    if not isinstance(path, Path) or path.end.d != 2:
        raise InvalidInput(f"the path must be one of tokens (u, sqrt(1 - u^2)), got {shown(path)}")
    u, side = path.points[..., 0], path.points[..., 1]
    short = torch.where(u > 0, side.square() / (1 + u.clamp(min=0.0)), 1 - u)
    return short @ path.mass
