"""The curve W2(rho_t, Pi#rho_0) of the mean field, with a known error.

Pi(x) = Qx/|Qx| with the spectral projector Q of M = V B^T onto its dominant eigenspace E. When dim E = 1 the limit
Pi#rho_0 is two atoms, p at +e and 1-p at -e, p = rho_0{<l, x> > 0} with l the left eigenvector, and W2 is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import OneLine, instance, number
from metastable.errors import InvalidInput, NotDefined
from metastable.meanfield.caps import cap_mass, split
from metastable.meanfield.circle import circle_law
from metastable.meanfield.law import Empirical, Law, checked_density, unit_vector
from metastable.meanfield.path import MeanFieldPath
from metastable.meanfield.product_rule import ProductRule
from metastable.meanfield.sobol import sobol
from metastable.measure import Measure
from metastable.spectral import Dominant, dominant
from metastable.weights import AttentionWeights


def limit_space(weights: AttentionWeights) -> Dominant:
    """The dominant space E of M = V B^T with its projector, refused where Pi(x) = Qx/|Qx| is no limit map."""
    top = dominant(weights.M)
    if top.kind == "rotation":
        raise NotDefined(
            f"M = V B^T has a complex dominant pair {complex(top.eigenvalues[0]):.6g}, so there is no limit map"
        )
    if top.kind == "jordan":
        raise NotDefined("M = V B^T has a Jordan block at its dominant eigenvalue, so there is no projector")
    top.require_isolated()
    return top


def axis_and_normal(top: Dominant) -> tuple[np.ndarray, np.ndarray]:
    """(e, l) for dim E = 1: the unit vector e of E and the unit left eigenvector l, <l, e> > 0.

    Pi sends x to +e where <l, x> > 0. The sign is one that everybody understands: the largest component of e is
    positive.
    """
    e = top.space[:, 0].numpy()
    e = e * np.sign(e[np.argmax(np.abs(e))])
    row = e @ top.projector.numpy()
    return e, row / np.linalg.norm(row)


def limit_mass(law: Law, normal: Any) -> float:
    """p = rho_0{<normal, x> > 0}: the mass that Pi sends to +e; by quadrature that is cut at the separatrix."""
    instance(law, "law", Law, "a law of metastable.meanfield")
    normal = unit_vector(normal, "normal", law.d).numpy()
    if isinstance(law, Empirical):
        side = law.measure.points.numpy() @ normal
        return float(law.measure.mass.numpy()[side > 0].sum())
    if law.d == 2:
        angle = math.atan2(normal[1], normal[0])
        return circle_law(law).mass(angle - math.pi / 2, angle + math.pi / 2)
    parts = split(law)
    above = sum(weight * cap_mass(part, normal) for weight, part in parts.caps)
    total = sum(weight for weight, _ in parts.caps)
    if parts.smooth is not None:
        of = _hemisphere_masses if law.d == 3 else _hemisphere_masses_of_points
        plus, minus = of(parts.smooth, normal)
        above, total = above + parts.share * plus, total + parts.share * (plus + minus)
    return above / total


def _hemisphere_masses_of_points(law: Law, normal: np.ndarray) -> tuple[float, float]:
    """Integrals of the density over both halves by Sobol points, d > 3."""
    points = sobol(2**17, law.d)
    values = checked_density(law, points) / len(points)
    side = points @ torch.from_numpy(normal) > 0
    return float(values[side].sum()), float(values[~side].sum())


def _hemisphere_masses(law: Law, normal: np.ndarray, order: int = 96) -> tuple[float, float]:
    """Integrals over both halves of S^2 by Gauss in the height, trapezoidal in the longitude."""
    xi, weight = np.polynomial.legendre.leggauss(order)
    phi = 2 * np.pi * np.arange(2 * order) / (2 * order)
    frame = ProductRule(normal).frame
    totals = []
    for sign in (1.0, -1.0):
        z = sign * (xi + 1) / 2
        side = np.sqrt(1 - z * z)
        local = np.stack(
            [
                side[:, None] * np.cos(phi),
                side[:, None] * np.sin(phi),
                np.broadcast_to(z[:, None], (order, len(phi))),
            ],
            -1,
        ).reshape(-1, 3)
        values = checked_density(law, torch.from_numpy(local @ frame)).numpy().reshape(order, -1)
        totals.append(float(weight @ values.mean(axis=1)) / 4)
    return totals[0], totals[1]


def two_atom_distance(measure: Measure, axis: Any, p: float) -> float:
    """W2(rho, p delta_{+e} + (1-p) delta_{-e}), chordal: the top mass p in <x, e> goes to +e, the node on the
    boundary is split. W2^2 = sum_+ m (2 - 2u) + sum_- m (2 + 2u)."""
    instance(measure, "measure", Measure, "a Measure")
    axis, p = unit_vector(axis, "axis", measure.d).numpy(), number(p, "p", least=0, most=1 + 1e-9)
    u = measure.points.numpy() @ axis
    order = np.argsort(-u, kind="stable")
    u, mass = np.clip(u[order], -1, 1), measure.mass.numpy()[order]
    before = np.concatenate([[0.0], np.cumsum(mass)[:-1]])
    plus = np.clip(p - before, 0.0, mass)
    # 2 - 2|u| from the chord itself, since 1 - u cancels in a cluster.
    near = measure.points.numpy()[order]
    to_plus, to_minus = (((near - s * axis) ** 2).sum(1) for s in (1, -1))
    return math.sqrt(float(plus @ to_plus + (mass - plus) @ to_minus))


@dataclass(frozen=True, eq=False, repr=False)
class LimitCurve(OneLine):
    """W2(rho_t, Pi#rho_0) at the path's times: lower <= W2 <= upper, and `error` of either at each time.

    dim E = 1: lower = upper = `distance`, exact up to `error`. dim E > 1: lower = sqrt E 2(1 - |P_E x|), the
    distance to E itself; upper = the cost of the coupling x_t <-> Pi(x_0); `distance` is the lower one.
    """

    times: Float[Tensor, "m"]
    lower: Float[Tensor, "m"]
    upper: Float[Tensor, "m"]
    error: Float[Tensor, "m"]
    k: int
    p: float | None

    @property
    def distance(self) -> Float[Tensor, "m"]:
        """The exact W2 when dim E = 1, else its lower bound."""
        return self.lower


def distance_to_limit(path: MeanFieldPath) -> LimitCurve:
    """The curve of W2(rho_t, Pi#rho_0) (chordal) along a mean-field path; see `LimitCurve`.

    error = error of the path's flow map + quadrature error at the kink of the two-atom cost, bounded by the mass
    and the spacing of the nodes there.
    """
    if not isinstance(path, MeanFieldPath) or path.law is None or path.start is None or path.errors is None:
        raise InvalidInput(f"distance_to_limit needs the path of meanfield.solve, got {type(path).__name__}")
    if not isinstance(path.weights, AttentionWeights):
        raise InvalidInput("distance_to_limit needs constant weights, got a schedule")
    top = limit_space(path.weights)
    frames = [path.measure(i) for i in range(len(path))]
    if top.dimension > 1:
        projector = top.space @ top.space.T
        image = path.start.points @ top.projector.T
        target = image / torch.linalg.vector_norm(image, dim=1, keepdim=True)
        inside = [torch.linalg.vector_norm(f.points @ projector, dim=1) for f in frames]
        lower = [math.sqrt(max(float(f.mass @ (2 - 2 * z)), 0.0)) for f, z in zip(frames, inside, strict=True)]
        upper = [math.sqrt(float(f.mass @ (f.points - target).square().sum(1))) for f in frames]
        return LimitCurve(path.times, _tensor(lower), _tensor(upper), path.errors, top.dimension, None)
    e, normal = axis_and_normal(top)
    p = limit_mass(path.law, normal)
    exact = _tensor([two_atom_distance(f, e, p) for f in frames])
    kink = _tensor([_kink_error(f, e, p, path.law) for f in frames])
    return LimitCurve(path.times, exact, exact, path.errors + kink, 1, p)


def _kink_error(measure: Measure, e: np.ndarray, p: float, law: Law) -> float:
    """Error of W2 because the boundary between the two atoms falls between nodes."""
    if isinstance(law, Empirical):
        return 0.0
    full = two_atom_distance(measure, e, p)
    if measure.d == 2:
        return _kink_error_on_the_circle(measure, e, p, full)
    u, mass = measure.points.numpy() @ e, measure.mass.numpy()
    order = np.argsort(-u)
    boundary = u[order][min(int(np.searchsorted(np.cumsum(mass[order]), p)), len(u) - 1)]
    spacing = 4 / math.sqrt(measure.n)
    near = float(mass[np.abs(u - boundary) < spacing].sum())
    return near * spacing**2 / max(full, spacing)


def _kink_error_on_the_circle(measure: Measure, e: np.ndarray, p: float, full: float) -> float:
    """W2^2 is the integral of min(2 - 2u + c, 2 + 2u), whose slope jumps by at most 4 at two angles: a rule with
    mass m and spacing h there is off by at most m h at each."""
    x, mass = measure.points.numpy(), measure.mass.numpy()
    order = np.argsort(np.arctan2(x[:, 1], x[:, 0]))
    u, mass = (x @ e)[order], mass[order]
    by_height = np.argsort(-u)
    level = u[by_height][min(int(np.searchsorted(np.cumsum(mass[by_height]), p)), len(u) - 1)]
    crosses = (u > level) != (np.roll(u, -1) > level)
    gap = np.linalg.norm(x[order] - np.roll(x[order], -1, axis=0), axis=1)
    square = float((np.maximum(mass, np.roll(mass, -1)) * gap)[crosses].sum())
    return square / max(2 * full, math.sqrt(square), 1e-300)


def _tensor(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
