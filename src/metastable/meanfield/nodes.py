"""Deterministic nodes with masses for an initial law: sum_j m_j g(x_j) = E_{rho_0} g far better than iid tokens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy import special

from metastable import sphere
from metastable.arguments import choice, integer, number, shown
from metastable.errors import InvalidInput
from metastable.meanfield.circle import circle_law
from metastable.meanfield.law import Empirical, as_law, checked_density, unit_vector
from metastable.meanfield.piecewise import TWO_PI
from metastable.meanfield.product_rule import ProductRule
from metastable.meanfield.sobol import sobol
from metastable.measure import Measure, as_tensor

KINDS = {2: ("equispaced", "quantile", "graded"), 3: ("gauss", "graded", "fibonacci", "sobol")}
"""Kinds of nodes by dimension; d > 3 has "sobol"."""
MOST_NODES = 2**27
"""Most nodes: 3 GB on S^2."""
MOST_PULL = 100.0
"""Largest pull |s|: e^{-sM} with |M| = 1 leaves the floats at 700."""
UNSEEN = 0.1
"""Share of a law that nodes may miss before they are refused: a law that falls between them is not the law."""


def nodes(
    density: Any,
    d: int,
    n: int,
    *,
    kind: str = "auto",
    axis: Any = None,
    depth: float = 4.0,
    generator: Any = None,
    pull: float = 0.0,
) -> Measure:
    """Nodes x_j with masses m_j = f(x_j) w_j for the law with density f relative to the uniform measure.

    kind, d = 2: "equispaced" (spectrally accurate for smooth f), "quantile" (equal masses), "graded" (log-tan grid:
         dense at the two points perpendicular to `axis`, down to distance e^{-depth});
         d = 3: "gauss" (product Gauss; exact for polynomials of degree ~ sqrt(2n)), "graded" (dense at the great
         circle perpendicular to `axis`, Gauss on either side of it), "fibonacci", "sobol";
         d > 3: "sobol" (scrambled with a fixed seed).
    generator, pull: with a matrix M and a time s, the nodes of "gauss" are pulled back by e^{-sM}, so that the flow
         of e^{tM} spreads them best at t = s; the Jacobian goes into the masses.
    n is met exactly on the circle, by fibonacci and by sobol; a product rule takes the nearest size it has.

    >>> rho = nodes(lambda x: 1 + x[:, 0], 2, 64)
    >>> round(float(rho.mass @ rho.points[:, 0]), 12)
    0.5
    """
    d, n = integer(d, "d", least=2), integer(n, "n", least=1, most=MOST_NODES)
    depth, pull = number(depth, "depth", least=0, most=300), number(pull, "pull", least=-MOST_PULL, most=MOST_PULL)
    law = as_law(density, d)
    if isinstance(law, Empirical):
        return law.measure
    known = KINDS.get(d, ("sobol",))
    kind = choice(kind, f"nodes for d = {d}", ("auto", *known))
    kind = known[0] if kind == "auto" else kind
    if kind == "graded" and axis is None:
        raise InvalidInput("graded nodes need axis=, the direction on which the flow concentrates")
    direction = None if axis is None else unit_vector(axis, "axis", d).numpy()
    if kind == "quantile":
        return Measure(sphere.from_angles(_quantiles(law, n)))
    points, weight = _rule(kind, d, n, direction, depth, generator, pull)
    values = checked_density(law, points)
    seen, whole = float(values @ weight), law.integral()
    if not seen > 0:
        raise InvalidInput(f"density must be positive somewhere, got only zeros at {len(points)} nodes")
    if whole is not None and abs(seen - whole) > UNSEEN * whole:
        raise InvalidInput(f"{len(points)} nodes see {seen:.3g} of the law's {whole:g}: it is too narrow for them")
    return Measure(points, values * weight)


def _rule(
    kind: str, d: int, n: int, axis: np.ndarray | None, depth: float, generator: Any, pull: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Points and masses for the uniform law."""
    equal = torch.full((n,), 1.0 / n, dtype=torch.float64)
    if kind == "equispaced":
        return sphere.equispaced(n), equal
    if kind == "fibonacci":
        return sphere.fibonacci(n), equal
    if kind == "sobol":
        return sobol(n, d), equal
    if d == 2:
        assert axis is not None
        return _log_tan(n, axis, depth)
    if kind == "graded":
        assert axis is not None
        rule = ProductRule(axis, eps=math.exp(-depth), split=True)
        heights = max(2, round(math.sqrt(n * (1 + depth / 2) / 2)))
    else:
        matrix = None if generator is None else _square(generator, d)
        rule = ProductRule(np.array([0.0, 0.0, 1.0]) if axis is None else axis, generator=matrix, pull=pull)
        heights = max(2, round(math.sqrt(n / 2)))
    points, mass = rule.nodes(heights, max(3, round(n / heights)))
    return torch.from_numpy(points), torch.from_numpy(mass)


def _log_tan(n: int, axis: np.ndarray, depth: float) -> tuple[torch.Tensor, torch.Tensor]:
    """d theta/ds = c sqrt(cos^2(theta) + eps^2), eps = e^{-depth}: log-tan above distance eps from E^perp.

    Below eps the grid is uniform. The solution is the Jacobi amplitude, so that masses and spacing are analytic and
    periodic in the label s.
    """
    eps = math.exp(-depth)
    # int dtheta / sqrt(cos^2 + eps^2) = F(theta | m) / sqrt(1 + eps^2), m = 1/(1 + eps^2).
    m1 = eps**2 / (1 + eps**2)
    quarter = float(special.ellipkm1(m1))
    s = (np.arange(n) + 0.5) / n * 4 * quarter
    turns = np.floor((s + quarter) / (2 * quarter))
    _, _, _, amplitude = special.ellipj(s - 2 * quarter * turns, 1 - m1)
    theta = amplitude + np.pi * turns
    slope = np.sqrt(np.cos(theta) ** 2 + eps**2)
    start = math.atan2(axis[1], axis[0])
    mass = slope / slope.sum()
    return sphere.from_angles(theta + start), torch.from_numpy(mass)


def _quantiles(law: Any, n: int) -> np.ndarray:
    """Angles at the levels (j + 1/2)/n of the cumulative distribution, by bisection."""
    cumulative = circle_law(law).cumulative
    level = (np.arange(n) + 0.5) / n
    low, high = np.zeros(n), np.full(n, TWO_PI)
    for _ in range(60):
        middle = (low + high) / 2
        below = cumulative(middle) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


def _square(generator: Any, d: int) -> np.ndarray:
    matrix = as_tensor(generator, "generator").numpy()
    if matrix.shape != (d, d) or not np.isfinite(matrix).all():
        raise InvalidInput(f"generator must be a finite matrix of shape ({d}, {d}), got {shown(generator)}")
    return matrix
