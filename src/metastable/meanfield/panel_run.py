"""A run of the flow map on panels of labels that are halved where the flow stretches.

    d x/dt = v[rho_t](x),  rho_t = x_t # rho_0
Masses never change; the Gauss rules of the panels integrate against rho_t. Concentration tears tokens apart at a
separatrix, after the metastable phase at the rate beta |B^T e|, so that x_t becomes a jump there. What W2 then
sees is the mass on either side: W2 = 2 sqrt(dp) for a misplaced mass dp, so that 1e-6 asks for 2.5e-13. Hence
  - errors of a step and of a polynomial are weighed by the density: an error x misplaces the mass density * x;
  - panels at the separatrix are halved, by interpolation in their own label, until their mass is negligible;
  - panels that the flow has pressed together again are joined.
The circle is one line of labels (`lagrangian`), S^2 is a bundle of lines (`bundle`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from metastable.errors import SolveError
from metastable.meanfield.panels import (
    MOST_HALVINGS,
    NODES,
    Panels,
    halved_values,
    joined,
    siblings,
    tails,
    without_halves,
)
from metastable.meanfield.piecewise import Array
from metastable.meanfield.progress import Tell
from metastable.solve.march import march

ROUNDING = 4e-15
"""A polynomial of angles is not known better than this, some five units in the last place of 2 pi."""
LEAST_MASS = 5e-14
"""Least misplaced mass that is asked of a polynomial: the rounding of the angles alone misplaces some 1e-15."""
NARROW_TO_JOIN = 0.5
"""Width of the union of two panels, in units of the widest, below which they may be joined."""


@dataclass(frozen=True)
class Accuracy:
    """mass, step: what a polynomial and what a step may misplace. width: of a panel, in widths kappa^{-1/2} of the
    kernel (16 Gauss nodes integrate it to 1e-15 over 5 of them and to 1e-13 over 6). negligible: mass of a panel
    that may stay torn."""

    mass: float
    step: float
    width: float
    negligible: float

    @classmethod
    def within(cls, mass: float, width: float) -> Accuracy:
        """Measured: a step misplaces far less than it is allowed to, and a polynomial about that much.

        What may stay torn shrinks with the mass as well: the exit from the metastable phase begins with the little
        mass between the clusters, so that two runs that neglect the same would leave at the same, wrong time.
        """
        return cls(mass, 4 * mass, width, max(7e-3 * mass, 1e-18))


@dataclass(eq=False)
class Frame:
    """Positions (K, 16) or (K, 16, 3) on panels at one time."""

    panels: Panels
    theta: Array


@dataclass(eq=False)
class FlowMap:
    """Frames at the times, and what the run took."""

    frames: list[Frame] = field(default_factory=list)
    steps: int = 0
    most_nodes: int = 0
    torn: bool = False
    """Whether panels of negligible mass were left torn: W2 then sees which mass went where."""
    unresolved: float = 0.0
    """Mass misplaced because max_nodes was reached: that of panels too wide and of polynomials too rough."""


class PanelRun(ABC):
    """The state of a run: time, panels, positions, masses, the velocity at the current time.

    The loop over steps is `march`, as for tokens. The steps are not those of a `Stepper`: panels are born and
    merged between them, so that the number of unknowns changes, and errors are weighed by the mass that they
    misplace.
    """

    room_to_halve, room_to_join = 0.3, 0.005
    """Shares of the allowed error: a panel above the first is halved between steps, so that the next step need not
    be repeated; one panel replaces two when it is below the second, far less, so that it is not halved at once."""
    at_once = 1
    """How often a panel is halved that a step has torn, before the step is repeated."""
    lines = 1
    """How many lines share the mass one: what may be misplaced is shared by them as well."""
    reach = 0.0
    """Width over which the mass of a panel counts that the flow presses together: it will not be torn any more, and
    what an error of its place does to the field is the error times its mass."""

    def __init__(self, accuracy: Accuracy, kappa: float, max_nodes: int, panels: Panels, theta: Array) -> None:
        self.accuracy, self.kappa, self.max_nodes = accuracy, kappa, max_nodes
        self.widest = accuracy.width / max(kappa, 1e-300) ** 0.5
        self.t, self.h = 0.0, 0.0
        self.steps, self.most_nodes, self.unresolved, self.torn = 0, 0, 0.0, False
        self.speed: Array | None = None
        self._put(panels, theta, np.zeros(len(panels), dtype=bool))

    @abstractmethod
    def velocity(self, t: float, theta: Array) -> Array:
        """The velocity of all nodes."""

    @abstractmethod
    def masses(self, panels: Panels) -> Array:
        """Masses (K, 16) of the nodes of panels, which sum to one."""

    @abstractmethod
    def extent(self, theta: Array) -> Array:
        """How far (K,) the panels reach now."""

    def settled(self, theta: Array) -> Array:
        """Positions brought back to where they live after a step or an interpolation."""
        return theta

    def arranged(self) -> None:  # noqa: B027  a hook that may stay empty
        """Called after panels or positions have changed, before the next velocity."""

    def through(self, times: Array, max_steps: int, tell: Tell | None = None) -> FlowMap:
        """The flow map at increasing times; tell: is told of every step."""
        self.adapt()
        out = FlowMap()
        for target in times:
            for now in march(type(self).advance, self, [float(target)]):
                if now.steps > max_steps:
                    raise SolveError(
                        f"the flow map needs more than {max_steps} steps: t = {now.t:.6g} of {times[-1]:.6g}"
                    )
                if tell is not None:
                    tell(now.t, now.steps)
            out.frames.append(Frame(self.panels, self.theta))
        out.steps, out.most_nodes, out.unresolved, out.torn = (
            self.steps,
            self.most_nodes,
            self.unresolved,
            self.torn,
        )
        return out

    def _put(self, panels: Panels, theta: Array, pressed: np.ndarray) -> None:
        self.panels, self.theta, self.speed, self.pressed = panels, theta, None, pressed
        self.mass = self.masses(panels)
        self.panel_mass = self.lines * self.mass.sum(axis=1)
        self.most_nodes = max(self.most_nodes, self.mass.size)

    def _defects(self, theta: Array) -> tuple[Array, Array]:
        """By panel, the mass that its polynomial misplaces and its width in units of the allowed one."""
        width, tail = self.extent(theta), tails(theta)
        misplaced = tail * self._density(self.panel_mass, width, self.pressed)
        return np.where(tail <= ROUNDING, 0.0, misplaced), width / self.widest

    def _density(self, mass: Array, width: Array, pressed: np.ndarray) -> Array:
        """Mass per radian of a panel, at most one: in a cluster the displacement itself counts."""
        # A panel of no mass that the flow has pressed to a point misplaces nothing.
        reach = np.where(pressed, self.reach, 1e-300)
        return np.asarray(mass / np.maximum(np.maximum(width, mass), reach))

    def _unresolved(self, theta: Array, share: float) -> np.ndarray:
        misplaced, width = self._defects(theta)
        wanted = (misplaced > share * self.accuracy.mass) | (width > 1)
        possible = (self.panel_mass > self.accuracy.negligible) & (self.panels.level < MOST_HALVINGS)
        self.torn = self.torn or bool((wanted & ~possible).any())
        return wanted & possible

    def _halve(self, theta: Array, chosen: np.ndarray) -> bool:
        if self.mass.size + NODES * int(chosen.sum()) > self.max_nodes:
            misplaced, width = self._defects(theta)
            mass = float(np.where(width > 1, self.panel_mass, misplaced)[chosen].sum()) / self.lines
            self.unresolved = max(self.unresolved, mass)
            return False
        pressed = np.repeat(self.pressed, np.where(chosen, 2, 1))
        self._put(self.panels.halved(chosen), self.settled(halved_values(theta, chosen)), pressed)
        self.arranged()
        return True

    def adapt(self) -> None:
        """Halve the panels that are not resolved with room to spare; join those that need not be two."""
        while True:
            chosen = self._unresolved(self.theta, self.room_to_halve)
            if not chosen.any() or not self._halve(self.theta, chosen):
                break
        first = siblings(self.panels)
        if len(first):
            whole, error = joined(self.theta, first)
            width = self.extent(whole)
            mass = self.panel_mass[first] + self.panel_mass[first + 1]
            error = np.maximum(error, tails(whole))
            pressed = self.pressed[first] & self.pressed[first + 1]
            fine = (error <= ROUNDING / 2) | (
                error * self._density(mass, width, pressed) <= self.room_to_join * self.accuracy.mass
            )
            fine &= width < NARROW_TO_JOIN * self.widest
            if fine.any():
                theta = self.theta.copy()
                theta[first[fine]] = self.settled(whole[fine])
                keep = np.ones(len(self.panels), dtype=bool)
                keep[first[fine] + 1] = False
                self.pressed[first[fine]] = pressed[fine]
                self._put(without_halves(self.panels, first[fine]), theta[keep], self.pressed[keep])
        self.arranged()

    def _first_step(self) -> float:
        """A tenth of the time in which neighbours change their distance by its own size."""
        self.speed = self.velocity(self.t, self.theta)
        apart = np.maximum(_size(np.diff(self.theta, axis=1)), 1e-12)
        rate = _size(np.diff(self.speed, axis=1)) / apart
        return min(0.1, 0.1 / max(float(rate.max()), 1e-3))

    def advance(self, target: float) -> Self:
        """One accepted step, which ends at the target if that is near; the run itself, moved on."""
        t, h = self.t, self.h or self._first_step()
        while True:
            if self.speed is None:
                self.speed = self.velocity(t, self.theta)
            step = target - t if t + 1.0001 * h >= target else h
            if step < 1e-12 * max(1.0, target):
                raise SolveError(f"the flow map needs steps below {step:.3g} at t = {t:.6g}")
            theta, speed, error = self._step(t, step, self.speed)
            factor = min(5.0, max(0.2, 0.9 * max(error, 1e-10) ** (-1 / 8)))
            self.steps += 1
            if not error <= 1:
                h = step * min(factor, 0.9)
                continue
            torn = self._unresolved(theta, 1.0)
            if torn.any() and self._halve(self.theta, torn):
                for _ in range(1, self.at_once):
                    torn = np.repeat(torn, np.where(torn, 2, 1)) & (self.panels.level < MOST_HALVINGS)
                    self._halve(self.theta, torn)
                h = step
                continue
            self.pressed = self.extent(theta) < self.extent(self.theta)
            self.theta, self.speed = theta, speed
            self.adapt()
            self.t = target if step == target - t else t + step
            self.h = h if step < h and factor > 1 else step * factor
            return self

    def _step(self, t: float, h: float, speed: Array) -> tuple[Array, Array, float]:
        """Positions and velocities after h, and the estimated misplaced mass in units of the allowed one."""
        from scipy.integrate import DOP853

        stages = np.empty((DOP853.n_stages + 1, *speed.shape))
        stages[0] = speed
        for i in range(1, DOP853.n_stages):
            shift = np.tensordot(DOP853.A[i, :i], stages[:i], axes=1)
            stages[i] = self.velocity(t + DOP853.C[i] * h, self.theta + h * shift)
        theta = self.settled(self.theta + h * np.tensordot(DOP853.B, stages[:-1], axes=1))
        stages[-1] = self.velocity(t + h, theta)
        fifth, third = (_size(h * np.tensordot(E, stages, axes=1)) for E in (DOP853.E5, DOP853.E3))
        size = np.hypot(fifth, 0.1 * third)
        error = np.divide(fifth**2, size, out=np.zeros_like(size), where=size != 0).max(axis=1)
        misplaced = error * self._density(self.panel_mass, self.extent(self.theta), self.pressed)
        worst = float(misplaced.max()) / self.accuracy.step
        return theta, stages[-1], worst if math.isfinite(worst) else math.inf


def _size(vectors: Array) -> Array:
    """Lengths (K, 16) of what is given by number (K, 16) or by vector (K, 16, 3)."""
    return np.abs(vectors) if vectors.ndim == 2 else np.linalg.norm(vectors, axis=-1)
