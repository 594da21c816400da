"""Narrow parts of a law: von Mises-Fisher parts have nodes of their own, at any concentration and in any dimension.

    f(x) sigma(dx) ~ e^{-s} (s (1 - s/(2 kappa)))^{(d-3)/2} ds x (uniform direction),   s = kappa (1 - <mean, x>)
Gauss-Laguerre in s, equispaced (d = 3) or Sobol (d > 3) directions about the mean: a function that is smooth over
the width kappa^{-1/2} is integrated to rounding by few nodes, however narrow the part is. A rule for the whole
sphere would have to find it first.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import special
from torch import Tensor

from metastable import sphere
from metastable.meanfield.law import Law
from metastable.meanfield.laws import Mixture, VonMisesFisher
from metastable.meanfield.sobol import sobol

NARROW = 100.0
"""Concentration from which a part has nodes of its own: its width .1 is that of a plain rule's first nodes, and the
nodes in s end before s = 2 kappa, the antipode."""
MOST_HEIGHTS = 32
"""Most nodes in s: the largest lies at 111, well below 2 NARROW."""


@dataclass(frozen=True, eq=False)
class Split:
    """A law as share * smooth + sum_i weight_i vMF_i with narrow vMF_i; `smooth` is None where nothing is left."""

    smooth: Law | None
    share: float
    caps: tuple[tuple[float, VonMisesFisher], ...]


def split(law: Law) -> Split:
    """The narrow parts of a law and the rest."""
    caps: list[tuple[float, VonMisesFisher]] = []
    rest: list[tuple[float, Law]] = []
    for weight, part in law.parts():
        if isinstance(part, VonMisesFisher) and part.kappa >= NARROW:
            caps.append((weight, part))
        else:
            rest.append((weight, part))
    if not caps:
        return Split(law, 1.0, ())
    share = sum(weight for weight, _ in rest)
    if not share > 0:
        return Split(None, 0.0, tuple(caps))
    return Split(Mixture([part for _, part in rest], [weight for weight, _ in rest]), share, tuple(caps))


def cap_nodes(part: VonMisesFisher, heights: int) -> tuple[Tensor, Tensor]:
    """Nodes (n, d) and masses (sum 1) of one narrow part, `heights` of them in s and more in the directions.

    >>> points, mass = cap_nodes(VonMisesFisher([0.0, 0.0, 1.0], 1e6), 6)
    >>> round(1e6 * float(mass @ (1 - points[:, 2])), 9)  # E (1 - z) = 1/kappa
    1.0
    """
    d, heights = part.d, min(heights, MOST_HEIGHTS)
    s, weight = special.roots_genlaguerre(heights, (d - 3) / 2)
    weight = weight * (1 - s / (2 * part.kappa)) ** ((d - 3) / 2)
    around = sphere.equispaced(2 * heights) if d == 3 else sobol(2 ** math.ceil(math.log2(16 * heights)), d - 1)
    basis = _basis(part.mean.numpy())
    down = s / part.kappa
    side = np.sqrt(down * (2 - down))
    points = (1 - down)[:, None, None] * basis[0] + side[:, None, None] * (around.numpy() @ basis[1:])
    mass = np.repeat(weight / weight.sum() / len(around), len(around))
    return torch.from_numpy(points.reshape(-1, d)), torch.from_numpy(mass)


def cap_mass(part: VonMisesFisher, normal: np.ndarray) -> float:
    """P(<normal, x> > 0) of a narrow part, unit normal: the directions by the beta law, then s by quadrature."""
    from scipy.integrate import quad

    d = part.d
    along = float(part.mean.numpy() @ normal)
    across = math.sqrt(max(1 - along * along, 0.0))
    power = (d - 3) / 2

    def above(s: float) -> float:
        down = s / part.kappa
        side = math.sqrt(down * (2 - down)) * across
        level = (1 - down) * along
        if abs(level) >= side:
            return 1.0 if level > 0 else 0.0
        tail = 0.5 * float(special.betainc((d - 2) / 2, 0.5, 1 - (level / side) ** 2))
        return 1 - tail if level > 0 else tail

    def density(s: float) -> float:
        return math.exp(-s) * (s * (1 - s / (2 * part.kappa))) ** power if s > 0 or power >= 0 else 0.0

    end = 2.0 * NARROW
    cut = part.kappa * along * along / (1 + across)  # where the cap meets the separatrix: 1 - s/kappa = across
    pieces = [0.0, *([cut] if 0 < cut < end else []), end]
    wanted = [
        quad(lambda s: above(s) * density(s), low, high, epsabs=1e-14, limit=200)[0]
        for low, high in itertools.pairwise(pieces)
    ]
    return float(sum(wanted) / quad(density, 0.0, end, epsabs=1e-14, limit=200)[0])


def _basis(mean: np.ndarray) -> np.ndarray:
    """Orthonormal rows, the first of them the mean."""
    q, _ = np.linalg.qr(np.column_stack([mean, np.eye(len(mean))]))
    basis = np.array(q.T)
    basis[0] = mean
    return basis
