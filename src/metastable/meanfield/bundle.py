"""Node solver on S^2: the flow map on a bundle of lines, each with panels of its own (`panel_run`).

    x(lambda, phi) = cos(lambda) (cos(phi) a + sin(phi) b) + sin(lambda) l,  sigma = cos(lambda) dlambda dphi/(4 pi)
l is normal to the separatrix that the zero-temperature flow has, so that every line phi = const, from -l to l,
crosses it. On a line the flow map becomes a jump as on the circle, and its panels are halved there; where that is
may differ from line to line. Integrated over its line a function of the tokens is smooth in phi however sharp the
jump is, so that the trapezoidal rule over the lines converges as fast as before. A mesh of cells would have to
resolve the curve of the separatrix instead, to the 1e-11 of its mass that W2 = 1e-5 sees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from metastable.attention.operands import TokensOfStep
from metastable.attention.thin_air import LARGEST_RTOL, attend_in_thin_air
from metastable.flows import SelfAttention
from metastable.meanfield.law import Law, checked_density
from metastable.meanfield.longitudes import Crowded, Grading
from metastable.meanfield.panel_run import Accuracy, FlowMap, PanelRun
from metastable.meanfield.panels import NODES, WEIGHT, XI, Panels, tails
from metastable.meanfield.piecewise import Array
from metastable.meanfield.progress import Tell
from metastable.rowwise import apply, project_tangent
from metastable.weights import AttentionWeights

CELLS = (4, 8, 16, 32, 64)
"""Root panels of a line: the least number of these on which the density is resolved."""
RESOLVED = 1e-13
"""Last coefficients of a density that is resolved, relative to its largest value."""
ATTENTION, LEAST_ATTENTION = 0.1, 5e-12
"""Error of attention relative to the most that a token could attend to, in units of the mass that a polynomial may
misplace, and the least one that is asked for, near what grids on S^2 can promise: a token in thin air gets as much
wrong, divided by the density there, so that this is the mass that it misplaces. Where tokens in a crowd err by
more, they are no polynomial on their panel, and it is halved without end: with one relative error for all the exit
of family G (benchmarks/meanfield_sphere.py) at beta = 64 took steps of .0003, and takes steps of .06."""
SMOOTH_ON_A_GPU = 1e-7
"""Largest relative error there, below the rounding of float32, whose noise is no polynomial either (972000 nodes at
beta = 16 instead of 60000)."""


@dataclass(frozen=True, eq=False)
class Bundle:
    """Lines at longitudes about the last row of a frame, each cut into `cells` root panels; shares sum to one."""

    law: Law
    frame: Array
    longitudes: Array
    shares: Array
    cells: int

    @classmethod
    def of(cls, law: Law, frame: Array, lines: int, grading: Grading | Crowded | None = None) -> Bundle:
        """Lines about the last row of a frame, with so many cells that the density is a polynomial on each."""
        longitudes, shares = (grading or Grading()).longitudes(lines)
        for cells in CELLS:
            bundle = cls(law, frame, longitudes, shares, cells)
            values = bundle.values(bundle.panels())
            if float(tails(values).max()) <= RESOLVED * float(values.max()):
                break
        return bundle

    def every(self, step: int) -> Bundle:
        """Every step-th of the lines."""
        shares = self.shares[::step]
        return replace(self, longitudes=self.longitudes[::step], shares=shares / shares.sum())

    def on_every(self, step: int, panels: Panels, values: Array) -> tuple[Panels, Array]:
        """Panels and values of the lines of `every(step)`, numbered as there."""
        line, cell = np.divmod(panels.root, self.cells)
        kept = line % step == 0
        root = line[kept] // step * self.cells + cell[kept]
        return Panels(root, panels.left[kept], panels.level[kept]), values[kept]

    def panels(self) -> Panels:
        """The root cells of all lines."""
        count = len(self.longitudes) * self.cells
        return Panels(np.arange(count), np.zeros(count), np.zeros(count, dtype=np.int64))

    def latitudes(self, panels: Panels) -> Array:
        """Latitudes (K, 16) of the nodes at time 0."""
        inside = panels.left[:, None] + np.ldexp(0.5, -panels.level)[:, None] * (XI + 1)
        return math.pi * ((panels.root % self.cells - self.cells / 2)[:, None] + inside) / self.cells

    def start(self, panels: Panels) -> Array:
        """Points (K, 16, 3) of the nodes at time 0."""
        latitude, longitude = self.latitudes(panels), self.longitudes[panels.root // self.cells]
        side = np.cos(longitude)[:, None] * self.frame[0] + np.sin(longitude)[:, None] * self.frame[1]
        return np.cos(latitude)[..., None] * side[:, None] + np.sin(latitude)[..., None] * self.frame[2]

    def values(self, panels: Panels) -> Array:
        """The density times cos(lambda) (K, 16)."""
        points = torch.from_numpy(self.start(panels).reshape(-1, 3))
        return checked_density(self.law, points).numpy().reshape(-1, NODES) * np.cos(self.latitudes(panels))

    def mass(self, panels: Panels) -> Array:
        """Masses (K, 16) of the nodes, which sum to the integral of the density."""
        share = self.shares[panels.root // self.cells] * np.ldexp(math.pi / (4 * self.cells), -panels.level)
        return self.values(panels) * WEIGHT * share[:, None]


def flow_map(
    flow: SelfAttention,
    bundle: Bundle,
    times: Array,
    kappa: float,
    accuracy: Accuracy,
    max_nodes: int,
    max_steps: int = 20000,
    device: Any = None,
    tell: Tell | None = None,
) -> FlowMap:
    """The flow map on the bundle at increasing times; device: where attention is computed."""
    return _BundleRun(flow, bundle, accuracy, kappa, max_nodes, device).through(times, max_steps, tell)


class _BundleRun(PanelRun):
    """Points (K, 16, 3) on the panels of all lines."""

    room_to_halve, room_to_join = 0.02, 0.007
    """Attention is what costs here, so that panels are halved early and hardly a step is repeated."""
    reach, at_once = 1.0, 2

    def __init__(
        self, flow: SelfAttention, bundle: Bundle, accuracy: Accuracy, kappa: float, max_nodes: int, device: Any
    ) -> None:
        self.bundle, self.lines, self.thinnest = bundle, len(bundle.longitudes), 1.0
        self.device, self.attention = device, max(ATTENTION * accuracy.mass, LEAST_ATTENTION)
        assert isinstance(flow.weights, AttentionWeights) and isinstance(flow.beta, float)
        self.B, self.V = (matrix.to(device) for matrix in (flow.weights.B, flow.weights.V))
        self.tokens = TokensOfStep(self.B, flow.beta)  # grids are planned for the surface of all directions
        panels = bundle.panels()
        # Steps are what bundles err by first: the flow map at t = 2 (beta = 16, mass = 1e-10) is off by 1.6e-10
        # with four times as much, by 3e-11 with this, and more lines or narrower panels change neither.
        accuracy = replace(accuracy, step=accuracy.mass)
        super().__init__(accuracy, kappa, max_nodes, panels, bundle.start(panels))

    def velocity(self, t: float, theta: Array) -> Array:
        points = torch.from_numpy(self.settled(theta).reshape(-1, 3)).to(self.device)
        mass = torch.from_numpy(self.mass.ravel()).to(self.device)
        queries = apply(points, self.B)
        operands = self.tokens.operands(queries, points, mass)
        largest = LARGEST_RTOL if points.is_cpu else SMOOTH_ON_A_GPU
        attended = attend_in_thin_air(operands, self.attention, self.thinnest, largest)
        depth = operands.beta * torch.linalg.vector_norm(queries, dim=1) - attended.log_partition
        self.thinnest = math.exp(-float(depth.max()))
        tangent = project_tangent(points, apply(attended.mean, self.V.T))
        return tangent.numpy(force=True).reshape(theta.shape)

    def masses(self, panels: Panels) -> Array:
        mass = self.bundle.mass(panels)
        return mass / mass.sum()

    def extent(self, theta: Array) -> Array:
        return np.linalg.norm(np.diff(theta, axis=1), axis=-1).sum(axis=1)

    def settled(self, theta: Array) -> Array:
        return theta / np.linalg.norm(theta, axis=-1, keepdims=True)
