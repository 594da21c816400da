"""Density solver on the circle: the cumulative distribution F of rho_t, dF/dt + v[rho] dF/d theta = 0.

Semi-Lagrangian and adaptive: F is a piecewise polynomial of degree 16 and is constant along characteristics, so
that mass is conserved by construction (F gains exactly one per turn). In one step from t to t + H
  1. the field v(theta, s), s in [t, t+H], is a polynomial of degree 10 in time (Lobatto points) and a piecewise
     polynomial in theta; it and the paths of the mass in it are found together by Picard iteration;
  2. the cells move with the field, F at their nodes is read off at the foot of the characteristic through the
     node, cells that the flow has stretched are halved until F is resolved again, others are joined.
H follows the steepest slope of the field that mass feels. Where a separatrix has been emptied, F is one linear cell
without any characteristic in it, so that the slope beta |B^T e| there costs nothing.
Independent of the node solver: other unknown, other quadrature, other integrator, re-interpolation in each step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

from metastable.arguments import OneLine, instance, integer, number, numbers, shown
from metastable.errors import InvalidInput, SolveError
from metastable.flows.flow import Flow
from metastable.meanfield.circle import CircleLaw, angular_velocity, circle_law, sharpness
from metastable.meanfield.law import as_law
from metastable.meanfield.piecewise import LOBATTO, TO_COEFFICIENTS, TWO_PI, Array, Piecewise, adapt, clenshaw
from metastable.solve.march import march

_DEGREE = 10
"""Degree in time of the field on a step."""
_STAGES: Array = np.asarray(-np.cos(np.pi * np.arange(_DEGREE + 1) / _DEGREE), dtype=np.float64)
_SERIES = np.linalg.inv(chebyshev.chebvander(_STAGES, _DEGREE))
_INTEGRAL: Array = np.asarray(
    chebyshev.chebvander(_STAGES, _DEGREE + 1) @ chebyshev.chebint(_SERIES, lbnd=-1), dtype=np.float64
)
"""Values at the stages to integrals from the first of them."""

_LARGEST_STRETCH = 0.7
"""Largest H times the slope of the field: a path e^{slope s} is then known to 1e-14 from its stages."""
_ROUNDING = 4e-15
"""An angle is not known better than this. A cluster may be torn apart later, so that more would not do."""
_EMPTY_MASS = 1e-15
"""Mass that a cell without characteristics may hold: a few units of rounding of F, which runs from 0 to 1."""
_ROOM_TO_JOIN = 0.02
"""Share of the allowed error below which one cell may replace two, so that it is not halved again at once."""


@dataclass(frozen=True, repr=False)
class DensityPath(OneLine):
    """Cumulative distributions F at the saved times, and how much mass the clipping of round-off touched."""

    times: Array
    cumulative: tuple[Piecewise, ...]
    law: CircleLaw
    clipped: float
    cells: int

    def carry(self, index: int, theta: Array) -> Array:
        """Where the mass that started at the angles theta is at saved time number `index`: F_t(x) = F_0(theta)."""
        index = integer(index, "index", least=-len(self.cumulative), most=len(self.cumulative) - 1)
        theta = np.array(numbers(theta, "theta"))
        F, level = self.cumulative[index], self.law.cumulative(theta)
        turns = np.floor(level - F(F.edges[:1])[0])
        low, high = F.edges[0] + TWO_PI * turns, F.edges[0] + TWO_PI * (turns + 1)
        for _ in range(70):
            middle = (low + high) / 2
            below = F(middle) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2

    def mass_defect(self) -> float:
        """max_t |sum of the masses of all cells - 1|."""
        return max(abs(float(F.quadrature()[1].sum()) - 1) for F in self.cumulative)


def evolve_density(
    flow: Flow, density: Any, times: Any, *, step: float = 0.2, tol: float = 3e-15, max_cells: int = 4000
) -> DensityPath:
    """Solve the mean-field equation for F on the circle and keep F at the given times.

    density: a law, or a function of points (n, 2), relative to the uniform probability measure. step: the largest
    length H of a step. tol: error allowed to F on a cell, where the rounding of the angles is below it.
    """
    instance(flow, "flow", Flow, "a Flow such as SelfAttention")
    step, tol = number(step, "step", above=0), number(tol, "tol", above=0)
    max_cells = integer(max_cells, "max_cells", least=1)
    saved = np.array(numbers(times, "times", least=0))
    if not len(saved) or (np.diff(saved) < 0).any():
        raise InvalidInput(f"times must be >= 0 and increase, got {shown(times)}")
    if saved[-1] + step == saved[-1]:
        raise InvalidInput(f"step = {step:g} is lost in the rounding of t = {saved[-1]:g}; make it longer")
    if flow.d != 2 or not flow.spherical:
        raise InvalidInput(f"the density solver lives on the circle, d = 2, got {shown(flow)}")
    law = circle_law(as_law(density, flow.d))
    # Sixteen Gauss nodes integrate the kernel, of width kappa^{-1/2}, to all digits over four widths.
    widest = 4 / max(sharpness(flow), 1.0) ** 0.5
    F = adapt(law.cumulative, law.cumulative.edges, lambda trial: trial.width <= widest, winding=1.0)[0]
    now = start = _At(0.0, F)
    frames = {now.t: now.F}
    # The loop over steps is `march`; the steps are not those of a Stepper, because a density is not tokens: a step
    # reads F off at the feet of characteristics and chooses its cells anew.
    advance = partial(_step, flow, longest=step, tol=tol, widest=widest, max_cells=max_cells)
    for now in march(advance, start, saved.tolist()):
        if now.t in saved:
            frames[now.t] = now.F
    return DensityPath(saved, tuple(frames[t] for t in saved.tolist()), law, now.clipped, now.most_cells)


@dataclass(frozen=True, eq=False)
class _At:
    """F at time t, the most mass that a step has clipped as negative round-off, and the most cells so far."""

    t: float
    F: Piecewise
    clipped: float = 0.0
    most_cells: int = 0


def _step(flow: Flow, now: _At, target: float, *, longest: float, tol: float, widest: float, max_cells: int) -> _At:
    """One step, which ends at the target or before it."""
    F, t, left = now.F, now.t, target - now.t
    F, empty = _emptied(F)
    nodes, increments = F.quadrature()
    negative = float(-increments[increments < 0].sum())
    nodes, increments = nodes[~empty], np.clip(increments[~empty], 0.0, None)
    sources, mass = nodes.ravel(), increments.ravel() / increments.sum()
    speed = angular_velocity(flow, t, sources, mass).reshape(nodes.shape)
    slope = float((np.abs(np.diff(speed, axis=1)) / np.maximum(np.diff(nodes, axis=1), 1e-13)).max())
    h = min(longest, _LARGEST_STRETCH / max(slope, 1e-300))
    h = left / math.ceil(left / h - 1e-9) if left < 3 * h else h
    field = _picard(flow, t, h, sources, mass)
    edges = field.carry(F.edges[:-1], forward=True)[-1]
    edges = np.concatenate([edges, edges[:1] + TWO_PI])

    def at_foot(theta: Array) -> Array:
        cell = np.clip(np.searchsorted(edges, theta, side="right") - 1, 0, len(edges) - 2)
        free = empty[cell]
        out = np.empty_like(theta)
        ends = F.values[cell[free]][:, [0, -1]]
        share = (theta[free] - edges[cell[free]]) / (edges[cell[free] + 1] - edges[cell[free]])
        out[free] = ends[:, 0] + share * (ends[:, 1] - ends[:, 0])
        out[~free] = F(field.carry(theta[~free], forward=False)[0])
        return out

    def resolved(trial: Piecewise, share: float = 1.0) -> np.ndarray:
        if len(trial.width) > max_cells:
            raise SolveError(
                f"the density needs more than {max_cells} cells at t = {t + h:.6g}; raise max_cells or tol"
            )
        held = trial.values[:, -1] - trial.values[:, 0]
        narrow = (trial.width <= widest) | (held < _EMPTY_MASS)
        thinnest = np.clip(trial.slope().min(axis=1), 0.0, None)
        smooth = trial.tail <= share * np.maximum(tol, _ROUNDING * thinnest)
        return (smooth & narrow) | (trial.width < 1e-13)

    after = _stitched(_joined(adapt(at_foot, edges, resolved, winding=1.0)[0], resolved))
    end = target if h == left else t + h
    return _At(end, after, max(now.clipped, negative), max(now.most_cells, len(after.width)))


def _emptied(F: Piecewise) -> tuple[Piecewise, np.ndarray]:
    """Neighbouring cells that hold less than `_EMPTY_MASS` together become one linear cell; which are such."""
    inside = F.values[:, -1] - F.values[:, 0]
    starts, held, empty = [0], float(inside[0]), [bool(inside[0] < _EMPTY_MASS)]
    for k in range(1, len(inside)):
        held += float(inside[k])
        if not (empty[-1] and held < _EMPTY_MASS):
            starts.append(k)
            held = float(inside[k])
            empty.append(held < _EMPTY_MASS)
    free = np.array(empty)
    if not free.any():
        return F, free
    ends = np.append(starts[1:], len(inside)) - 1
    values = F.values[starts]
    low, high = F.values[starts, 0], F.values[ends, -1]
    values[free] = (low[:, None] + (high - low)[:, None] * (LOBATTO + 1) / 2)[free]
    return Piecewise(np.append(F.edges[starts], F.edges[-1]), values, F.winding), free


def _joined(F: Piecewise, resolved: Callable[[Piecewise, float], np.ndarray]) -> Piecewise:
    """Pairs of neighbouring cells that one cell resolves with room to spare become one."""
    pairs = len(F.width) // 2
    edges = np.append(F.edges[: 2 * pairs : 2], F.edges[2 * pairs])
    at = edges[:-1, None] + np.diff(edges)[:, None] * (LOBATTO + 1) / 2
    whole = Piecewise(edges, F(at.ravel()).reshape(at.shape), F.winding)
    fine = resolved(whole, _ROOM_TO_JOIN)
    if not fine.any():
        return F
    keep = np.ones(len(F.width), dtype=bool)
    keep[1 : 2 * pairs : 2] = ~fine
    values = F.values.copy()
    values[0 : 2 * pairs : 2][fine] = whole.values[fine]
    return Piecewise(np.append(F.edges[:-1][keep], F.edges[-1]), values[keep], F.winding)


def _stitched(F: Piecewise) -> Piecewise:
    """Neighbours share their end value: an edge that is rounded twice would cost density * 1e-16 of mass."""
    values = F.values.copy()
    values[:-1, -1] = values[1:, 0]
    values[-1, -1] = values[0, 0] + F.winding
    return Piecewise(F.edges, values, F.winding)


@dataclass(frozen=True)
class _Field:
    """v(theta, s) at the stages s of [t, t+h]: piecewise polynomials (stages, cells, 17) on common cells."""

    h: float
    edges: Array
    series: Array

    def __call__(self, x: Array) -> Array:
        """The field of every stage at its own row of angles, (stages, n)."""
        inside = x - TWO_PI * np.floor((x - self.edges[0]) / TWO_PI)
        cell = np.clip(np.searchsorted(self.edges, inside, side="right") - 1, 0, len(self.edges) - 2)
        xi = (inside - self.edges[cell]) / (self.edges[cell + 1] - self.edges[cell]) * 2 - 1
        stage = np.broadcast_to(np.arange(len(x))[:, None], x.shape)
        return clenshaw(self.series[stage.ravel(), cell.ravel()], xi.ravel()).reshape(x.shape)

    def moved(self, theta: Array, x: Array, forward: bool) -> Array:
        """One Picard iteration of the paths x (stages, n) that are at theta at the first (backward: last) stage."""
        way = self.h / 2 * (_INTEGRAL @ self(x))
        return theta + way if forward else theta - (way[-1] - way)

    def carry(self, theta: Array, forward: bool) -> Array:
        """Positions (stages, n) along the characteristics through theta at the first (backward: last) stage."""
        x = np.tile(theta, (len(_STAGES), 1))
        before = math.inf
        for _ in range(80):
            moved = self.moved(theta, x, forward)
            change = float(np.abs(moved - x).max()) if len(theta) else 0.0
            x = moved
            if change <= 2e-15 or (change < 1e-13 and change > 0.5 * before):
                return x
            before = change
        raise SolveError(f"the characteristics did not settle with steps of {self.h:g}; use a smaller step")


def _picard(flow: Flow, t: float, h: float, sources: Array, mass: Array, tol: float = 2e-14) -> _Field:
    """The field on [t, t+h], consistent with the paths of the mass that it moves."""

    def resolved(trial: Piecewise) -> np.ndarray:
        return (trial.tail <= tol * max(1.0, float(np.abs(trial.values).max()))) | (trial.width < 1e-6)

    def at(x: Array, time: float) -> Callable[[Array], Array]:
        return lambda theta: angular_velocity(flow, time, x, mass, at=theta)

    edges = adapt(at(sources, t), np.linspace(0, TWO_PI, 14), resolved)[0].edges
    x = np.tile(sources, (len(_STAGES), 1))
    field: _Field | None = None
    before = math.inf
    for sweep in range(60):
        if sweep == 2:
            # The end of the step has its own steep places.
            edges, field = adapt(at(x[-1], t + h), edges, resolved)[0].edges, None
        grid = (edges[:-1, None] + np.diff(edges)[:, None] * (LOBATTO + 1) / 2).ravel()
        values = np.stack(
            [at(x[i], t + h * (1 + tau) / 2)(grid).reshape(-1, len(LOBATTO)) for i, tau in enumerate(_STAGES)]
        )
        new = _Field(h, edges, values @ TO_COEFFICIENTS.T)
        moved = new.moved(sources, new.moved(sources, x, True), True)
        change, x, field = float(np.abs(moved - x).max()), moved, new
        if change <= 4e-15 or (change < 1e-13 and change > 0.5 * before):
            return field
        before = change
    raise SolveError(f"the field did not settle at t = {t:.6g} with steps of {h:g}; use a smaller step")
