"""What both circle solvers share: the field in angles, the cumulative distribution of rho_0, W2 to two atoms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor

from metastable import sphere
from metastable.attention.attend import attend_unchecked
from metastable.errors import InvalidInput
from metastable.flows import MultiHead, SelfAttention
from metastable.flows.flow import Flow, WeightedFlow
from metastable.meanfield.law import LEAST_INTEGRAL, Law, checked_density
from metastable.meanfield.piecewise import GAUSS, GAUSS_WEIGHTS, TWO_PI, Array, Piecewise, adapt
from metastable.meanfield.turning import MOST_PAIRS, turning

PROBES = 2**20
"""Angles at which a function of unknown integral is asked for its narrow places: 6e-6 apart, so that a spike of
concentration up to some 1e11 is seen; a narrower one is a part of a `Mixture`."""


def angular_velocity(flow: Flow, t: float, theta: Array, mass: Array, at: Array | None = None) -> Array:
    """theta' = <x^perp, v[rho](x)> for rho = sum_j mass_j delta at the angles theta, at those angles or at others.

    Other angles are the queries of self-attention; for other flows they join the tokens with mass zero.
    """
    if plain_attention(flow):
        asked = theta if at is None else at
        if flow.kernel == "auto" and len(asked) * len(theta) <= MOST_PAIRS:
            return turning(flow.weights_at(t), float(flow.beta), theta, mass, asked)
        points = sphere.from_angles(theta if at is None else at)
        velocity = _attention_velocity(
            flow, t, points, points if at is None else sphere.from_angles(theta), torch.from_numpy(mass)
        )
        return (points[:, 0] * velocity[:, 1] - points[:, 1] * velocity[:, 0]).numpy()
    angles = theta if at is None else np.concatenate([at, theta])
    weight = mass if at is None else np.concatenate([np.zeros(len(at)), mass])
    points = sphere.from_angles(angles)
    velocity = flow.velocity(t, points, torch.from_numpy(weight))
    turn = (points[:, 0] * velocity[:, 1] - points[:, 1] * velocity[:, 0]).numpy()
    return turn if at is None else turn[: len(at)]


def sharpness(flow: Flow) -> float:
    """kappa = beta |B|, the largest over heads and over the knots of a schedule: the attention kernel has width
    kappa^{-1/2}."""
    if isinstance(flow, MultiHead):
        return max(sharpness(head) for head in flow.heads)
    if not isinstance(flow, WeightedFlow):
        raise InvalidInput(f"the mean field of {type(flow).__name__} is not known here; use solve with nodes")
    times = [0.0, *flow.breakpoints]
    return float(getattr(flow, "beta", 1.0)) * max(flow.weights_at(time).B_norm for time in times)


def plain_attention(flow: Flow) -> TypeGuard[SelfAttention]:
    """Whether queries and keys of the flow can be told apart here, so that masses may be negative as well."""
    return type(flow) is SelfAttention and flow.field is None


def _attention_velocity(flow: SelfAttention, t: float, points: Tensor, tokens: Tensor, mass: Tensor) -> Tensor:
    """V m(x) for sources of either sign: kernels want masses >= 0, so those of either sign are attended apart."""
    w = flow.weights_at(t, points)
    queries, keys, values = w.queries(points), w.keys(tokens), w.values(tokens)
    negative = mass < 0
    if not bool(negative.any()):
        mean = attend_unchecked(queries, keys, values, mass, flow.beta, kernel=flow.kernel, rtol=flow.rtol).mean
    else:
        plus, minus = (
            attend_unchecked(
                queries, keys[side], values[side], mass[side].abs(), flow.beta, kernel=flow.kernel, rtol=flow.rtol
            )
            for side in (~negative, negative)
        )
        share = torch.exp(minus.log_partition - plus.log_partition)[:, None]
        mean = (plus.mean - share * minus.mean) / (1 - share)
    return w.apply_after_average(mean)


@dataclass(frozen=True)
class CircleLaw:
    """rho_0 on the circle: f relative to the uniform law, its cumulative distribution F_0, the total given."""

    density: Piecewise
    cumulative: Piecewise
    total: float
    resolved: bool

    def mass(self, left: float, right: float) -> float:
        """rho_0 of the arc from `left` to `right` (counter-clockwise, at most one turn)."""
        ends = self.cumulative(np.array([left, right]))
        return float(ends[1] - ends[0])


def circle_law(law: Law, tol: float = 1e-14) -> CircleLaw:
    """Resolve a density to `tol` in mass with piecewise Chebyshev polynomials and normalise it."""

    def function(theta: Array) -> Array:
        return checked_density(law, sphere.from_angles(theta)).numpy()

    def resolved(trial: Piecewise) -> np.ndarray:
        scale = np.abs(trial.values).max(axis=1)
        return (trial.tail * trial.width <= tol * TWO_PI) | (trial.tail <= 1e-13 * scale)

    # 13 cells, so that no edge pattern is aligned with the symmetry of the law; more edges at its narrow places,
    # which are known, or found on a fine grid.
    known = law.integral()
    grid: Array = (np.arange(PROBES, dtype=np.float64) + 0.5) * (TWO_PI / PROBES) if known is None else np.empty(0)
    seen = function(grid)
    narrow = np.append(np.mod(sphere.angles(law.peaks()).numpy(), TWO_PI), _narrow_places(grid, seen))
    edges = np.unique(np.append(np.linspace(0, TWO_PI, 14), narrow))
    density, reached = adapt(function, edges, resolved, levels=44)
    cumulative = density.antiderivative()
    total = cumulative.winding / TWO_PI
    expected, allowed = (float(seen.mean()), 1e-4) if known is None else (known, 1e-9)
    complete = abs(total - expected) <= allowed * expected
    if not reached:
        _refuse_singular(density, cumulative, resolved(density))
    if not total >= LEAST_INTEGRAL:
        raise InvalidInput(f"density must have a positive integral, got {total:g}")
    values = cumulative.values / cumulative.winding
    return CircleLaw(
        Piecewise(density.edges, density.values / total),
        Piecewise(density.edges, values, 1.0),
        total,
        reached and complete,
    )


def _narrow_places(grid: Array, seen: Array) -> Array:
    """Highest places of blocks of 2^16 to 2^4 values in which one value is four times the mean."""
    places = [np.empty(0)]
    for blocks in (2**4, 2**8, 2**12, 2**16) if len(grid) else ():
        of = seen.reshape(blocks, -1)
        narrow = np.flatnonzero(of.max(axis=1) > 4 * of.mean(axis=1))
        if len(narrow) <= 64:  # more are no spikes but a rough function, which halving resolves or does not
            places.append(grid.reshape(blocks, -1)[narrow, of[narrow].argmax(axis=1)])
    return np.concatenate(places)


def _refuse_singular(density: Piecewise, cumulative: Piecewise, done: np.ndarray) -> None:
    """A cell that 44 halvings did not resolve holds next to nothing unless the integral diverges there."""
    held = np.where(done, 0.0, cumulative.values[:, -1] - cumulative.values[:, 0]) / cumulative.winding
    worst = int(held.argmax())
    if held[worst] > 1e-3:
        raise InvalidInput(
            f"density must be integrable, got {held[worst]:.2g} of its mass within {density.width[worst]:.1g} "
            f"of the angle {density.edges[worst]:.6g}"
        )


def two_atoms_from_cumulative(cumulative: Piecewise, axis: float, p: float) -> float:
    """W2(rho, p delta_{+e} + (1-p) delta_{-e}), e at the angle `axis`, for rho given by its cumulative F.

    The optimal plan sends the arc of mass p around e to +e and the rest to -e (chordal cost 2 -+ 2 cos).
    """

    from scipy.optimize import brentq

    def excess(half: float) -> float:
        ends = cumulative(np.array([axis - half, axis + half]))
        return float(ends[1] - ends[0]) - p

    half = math.pi / 2
    if 0 < p < 1:
        half = brentq(excess, 0.0, math.pi, xtol=1e-15, rtol=1e-15)
    elif p >= 1:
        half = math.pi
    else:
        half = 0.0
    inside = _arc_integral(cumulative, axis - half, axis + half, axis, 1.0)
    outside = _arc_integral(cumulative, axis + half, axis - half + TWO_PI, axis, -1.0)
    return math.sqrt(max(inside + outside, 0.0))


def _arc_integral(cumulative: Piecewise, left: float, right: float, axis: float, sign: float) -> float:
    """int (2 - 2 sign cos(theta - axis)) dF over [left, right]: cells are cut at the ends of the arc."""
    if right <= left:
        return 0.0
    turns = np.arange(
        math.floor((left - cumulative.edges[0]) / TWO_PI), 2 + math.floor((right - left) / TWO_PI) + 1
    )
    edges = (cumulative.edges[:-1] + TWO_PI * turns[:, None]).ravel()
    cuts = np.unique(np.concatenate([[left], edges[(edges > left) & (edges < right)], [right]]))
    # Integration by parts: int c dF = [c F] - int F c' needs no derivative of F and is exact on every cell.
    nodes = cuts[:-1, None] + np.diff(cuts)[:, None] * (GAUSS + 1) / 2
    inner = cumulative(nodes.ravel()).reshape(nodes.shape)
    start = cumulative(cuts[:1])[0]
    slope = 2 * sign * np.sin(nodes - axis)
    rest = float(((inner - start) * slope * GAUSS_WEIGHTS * np.diff(cuts)[:, None] / 2).sum())
    end = float(cumulative(cuts[-1:])[0] - start)
    return (2 - 2 * sign * math.cos(right - axis)) * end - rest
