"""Density solver on the circle: the cumulative distribution F of rho_t, dF/dt + v[rho] dF/d theta = 0.

Semi-Lagrangian and adaptive: F is a piecewise polynomial of degree 16 and is constant along characteristics, so
that mass is conserved by construction (F gains exactly one per turn). In one step from t to t + H
  1. the field v(theta, s), s in [t, t+H], is a polynomial of degree 4 in time (Lobatto points) and a piecewise
     polynomial in theta; it is found by Picard iteration, with integrals against rho_s taken along characteristics;
  2. the cells move with the field, F at their nodes is read off at the foot of the characteristic through the
     node, and cells that the flow has stretched are halved until F is resolved again.
Independent of the node solver: other unknown, other quadrature, other integrator, re-interpolation in each step.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev

from metastable.errors import SolveError
from metastable.flows.flow import Flow
from metastable.meanfield.circle import CircleLaw, angular_velocity, circle_law
from metastable.meanfield.laws import as_law
from metastable.meanfield.piecewise import TWO_PI, Array, Piecewise, adapt

_STAGES = -np.cos(np.pi * np.arange(5) / 4)
_TO_TIME = np.linalg.inv(chebyshev.chebvander(_STAGES, 4))
_SUBSTEPS = 3


@dataclass(frozen=True)
class DensityPath:
    """Cumulative distributions F at the saved times, and how much mass the clipping of round-off touched."""

    times: Array
    cumulative: tuple[Piecewise, ...]
    law: CircleLaw
    clipped: float
    cells: int

    def carry(self, index: int, theta: Array) -> Array:
        """Where the mass that started at the angles theta is at saved time number `index`: F_t(x) = F_0(theta)."""
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
    flow: Flow, density: Any, times: Any, *, step: float = 0.2, tol: float = 1e-12, max_cells: int = 4000
) -> DensityPath:
    """Solve the mean-field equation for F on the circle and keep F at the given times.

    density: a law, or a function of points (n, 2), relative to the uniform probability measure. step: the length H
    of a step. tol: error allowed to F on a cell; a position error of 10 tol is allowed where that is weaker.
    """
    law = circle_law(as_law(density, flow.d))
    saved = np.asarray(times, dtype=np.float64)
    F, t, clipped, frames, most = law.cumulative, 0.0, 0.0, [], 0
    for target in saved:
        while t < target:
            h = min(step, target - t)
            if target - (t + h) < 1e-9 * step:
                h = target - t
            F, negative = _step(flow, F, t, h, tol, max_cells)
            clipped, most = max(clipped, negative), max(most, len(F.width))
            t = target if h == target - t else t + h
        frames.append(F)
    return DensityPath(saved, tuple(frames), law, clipped, most)


def _step(flow: Flow, F: Piecewise, t: float, h: float, tol: float, max_cells: int) -> tuple[Piecewise, float]:
    nodes, increments = F.quadrature()
    sources, mass = nodes.ravel(), np.clip(increments.ravel(), 0.0, None)
    negative = float(-increments[increments < 0].sum())
    mass = mass / mass.sum()
    field = _picard(flow, t, h, sources, mass)
    edges = field.carry(F.edges[:-1], forward=True)[-1]
    edges = np.concatenate([edges, edges[:1] + TWO_PI])

    def at_foot(theta: Array) -> Array:
        return F(field.carry(theta, forward=False)[-1])

    def resolved(trial: Piecewise) -> np.ndarray:
        if len(trial.width) > max_cells:
            raise SolveError(
                f"the density needs more than {max_cells} cells at t = {t + h:.6g}; raise max_cells or tol"
            )
        thinnest = np.clip(trial.slope().min(axis=1), 0.0, None)
        return (trial.tail <= np.maximum(tol, 10 * tol * thinnest)) | (trial.width < 1e-12)

    return adapt(at_foot, edges, resolved, winding=1.0)[0], negative


@dataclass(frozen=True)
class _Field:
    """v(theta, s) on [t, t+h]: Chebyshev in time of piecewise Chebyshev functions in theta."""

    h: float
    stages: tuple[Piecewise, ...]

    def __post_init__(self) -> None:
        stacked = np.stack([stage.coefficients for stage in self.stages])
        object.__setattr__(self, "in_time", np.einsum("kt,tcp->kcp", _TO_TIME, stacked))

    def _velocity(self, tau: float) -> Piecewise:
        """The field at t + h (1 + tau)/2."""
        weights = np.cos(np.arange(5) * np.arccos(np.clip(tau, -1, 1)))
        field = self.stages[0]
        frozen = Piecewise(field.edges, field.values)
        frozen.__dict__["coefficients"] = np.einsum("k,kcp->cp", weights, self.in_time)  # type: ignore[attr-defined]
        return frozen

    def carry(self, theta: Array, forward: bool) -> list[Array]:
        """Positions at the five stages along characteristics that start at the first (or, backward, last) stage."""
        stages = _STAGES if forward else _STAGES[::-1]
        positions = [theta]
        for start, end in itertools.pairwise(stages):
            ds = (end - start) / _SUBSTEPS
            x = positions[-1]
            for i in range(_SUBSTEPS):
                s = start + i * ds
                early, middle, late = self._velocity(s), self._velocity(s + ds / 2), self._velocity(s + ds)
                dt = ds * self.h / 2
                k1 = early(x)
                k2 = middle(x + dt / 2 * k1)
                k3 = middle(x + dt / 2 * k2)
                k4 = late(x + dt * k3)
                x = x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            positions.append(x)
        return positions


def _picard(flow: Flow, t: float, h: float, sources: Array, mass: Array, tol: float = 1e-11) -> _Field:
    """The field on [t, t+h], consistent with the characteristics of the mass that it moves."""

    def at_start(theta: Array) -> Array:
        return angular_velocity(flow, t, sources, mass, at=theta)

    def resolved(trial: Piecewise) -> np.ndarray:
        return (trial.tail <= tol * max(1.0, float(np.abs(trial.values).max()))) | (trial.width < 1e-5)

    first, _ = adapt(at_start, np.linspace(0, TWO_PI, 14), resolved)
    grid = first.edges[:-1, None] + first.width[:, None] * (-np.cos(np.pi * np.arange(17) / 16) + 1) / 2
    field = _Field(h, (first,) * 5)
    for _ in range(25):
        positions = field.carry(sources, forward=True)
        stages = [first]
        for stage, x in zip(_STAGES[1:], positions[1:], strict=True):
            v = angular_velocity(flow, t + h * (1 + stage) / 2, x, mass, at=grid.ravel())
            stages.append(Piecewise(first.edges, v.reshape(grid.shape)))
        change = max(float(np.abs(a.values - b.values).max()) for a, b in zip(stages, field.stages, strict=True))
        field = _Field(h, tuple(stages))
        if change <= tol * max(1.0, float(np.abs(first.values).max())):
            return field
    raise SolveError(f"the field did not settle at t = {t:.6g} with steps of {h:g}; use a smaller step")
