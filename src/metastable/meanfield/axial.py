"""The mean field on S^2 with an axis of symmetry: one line of labels, the kernel averaged over rotations.

    V = v e e^T + w (1 - e e^T),  B = b e e^T + c (1 - e e^T),  rho_0 a function of u = <x, e> = sin(lambda)
    K(u, u') = e^{beta b u u'} I_0(beta c s s'),   s = cos(lambda)
    lambda' = v s E[K u']/E[K] - w u E[e^{beta b u u'} I_1(beta c s s') s']/E[K]
A law that is symmetric about e stays so, and its flow map is one function lambda_t of the latitude: panels of a
single line (`panel_run`), which converge as on the circle. Independent of the bundle of lines: other unknown, other
kernel, other quadrature, and no grid of Fourier modes; it says what `meanfield.solve` may be off by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from numpy.polynomial import chebyshev
from scipy import special
from torch import Tensor

from metastable.arguments import OneLine, instance, integer, number, numbers, shown
from metastable.errors import InvalidInput
from metastable.meanfield.agreement import agree, differences_of_angles
from metastable.meanfield.bundle import Bundle
from metastable.meanfield.groups import Groups
from metastable.meanfield.law import Empirical, Law, as_law, rows, unit_vector
from metastable.meanfield.panel_run import Accuracy, FlowMap, PanelRun
from metastable.meanfield.panels import Panels, read_at
from metastable.meanfield.piecewise import Array
from metastable.meanfield.product_rule import ProductRule
from metastable.threads import over_rows
from metastable.weights import AttentionWeights

CELLS, DEGREE = 128, 9
"""Cells in z/(z + 4) and degree of the table of Bessel functions: attention is right to 1e-14, tests measure."""
NEGLIGIBLE = -100.0
"""Scores so far below the highest are left out: e^{-100} is less than the least mass of a panel."""
MOST_STEPS = 20000
"""Most steps of a run."""
SYMMETRIC = 1e-12
"""How far weights may be from having the axis, relative to their size."""


def _table() -> Array:
    """(CELLS, 2, DEGREE + 1): series in the cell's variable of sqrt(1 + z) e^{-z} I_0(z) and I_1/I_0."""
    nodes = chebyshev.chebpts1(DEGREE + 1)
    to_powers = np.array(
        [np.pad(chebyshev.cheb2poly(row), (0, DEGREE + 1))[: DEGREE + 1] for row in np.eye(DEGREE + 1)]
    )
    inverse = np.linalg.inv(chebyshev.chebvander(nodes, DEGREE))
    at = (np.arange(CELLS)[:, None] + (nodes + 1) / 2) / CELLS
    z = 4 * at / (1 - at)
    values = np.stack([np.sqrt(1 + z) * special.i0e(z), special.i1e(z) / special.i0e(z)], axis=1)
    return np.ascontiguousarray(values @ inverse.T @ to_powers)


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def _attended(
    at: np.ndarray, latitude: np.ndarray, mass: np.ndarray, along: float, across: float, table: np.ndarray,
    first: int, last: int, out: np.ndarray,
) -> None:  # fmt: skip
    """out[i] = (E[K u'], E[K_1 s'])/E[K] at the latitudes at[first:last]; along = beta b, across = beta c."""
    cells, degree = table.shape[0], table.shape[2] - 1
    n = len(latitude)
    # A stage of a step may overshoot a pole: there the latitude is that of the opposite meridian.
    u, s = np.sin(latitude), np.abs(np.cos(latitude))
    for i in range(first, last):
        x, y = along * math.sin(at[i]), across * math.cos(at[i])
        sign = 1.0 if y >= 0 else -1.0
        y = abs(y)
        # x u' + y s' <= |(x, y)| over all u'^2 + s'^2 = 1, s' >= 0, and over the tokens less: theirs is the shift.
        shift = -np.inf
        for j in range(n):
            shift = max(shift, x * u[j] + y * s[j])
        total = up = side = 0.0
        for j in range(n):
            score = x * u[j] + y * s[j] - shift
            if score < NEGLIGIBLE:
                continue
            z = y * s[j]
            place = z / (z + 4.0) * cells
            cell = min(int(place), cells - 1)
            xi = 2.0 * (place - cell) - 1.0
            a, b = table[cell, 0, degree], table[cell, 1, degree]
            for k in range(degree - 1, -1, -1):
                a, b = a * xi + table[cell, 0, k], b * xi + table[cell, 1, k]
            weight = mass[j] * math.exp(score) * a / math.sqrt(1.0 + z)
            total += weight
            up += weight * u[j]
            side += weight * b * s[j]
        out[i, 0], out[i, 1] = up / total, sign * side / total


class _AxialRun(PanelRun):
    """Latitudes (K, 16) on one line."""

    room_to_halve, room_to_join = 0.03, 0.002

    def __init__(
        self, weights: tuple[float, float, float, float], beta: float, bundle: Bundle, accuracy: Accuracy, most: int
    ) -> None:
        self.v, self.w, b, c = weights
        self.along, self.across, self.bundle, self.table = beta * b, beta * c, bundle, _table()
        panels = bundle.panels()
        kappa = max(abs(self.along), abs(self.across))
        super().__init__(accuracy, kappa, most, panels, bundle.latitudes(panels))

    def arranged(self) -> None:
        self.groups = Groups(self.field, self.theta, self.mass, self.kappa)

    def velocity(self, t: float, theta: Array) -> Array:
        return self.groups.velocity(t, theta)

    def field(self, t: float, latitude: Array, mass: Array) -> Array:
        """lambda' at the latitudes, where the masses are."""
        found = np.empty((len(latitude), 2))

        def work(first: int, last: int) -> None:
            _attended(latitude, latitude, mass, self.along, self.across, self.table, first, last, found)

        over_rows(work, len(latitude), cost=20.0 * len(latitude) ** 2)
        turn = self.v * np.cos(latitude) * found[:, 0] - self.w * np.sin(latitude) * found[:, 1]
        return np.asarray(turn)

    def masses(self, panels: Panels) -> Array:
        mass = self.bundle.mass(panels)
        return np.asarray(mass / mass.sum())

    def extent(self, theta: Array) -> Array:
        return np.abs(theta[:, -1] - theta[:, 0])


@dataclass(frozen=True, eq=False, repr=False)
class AxialPath(OneLine):
    """The flow map of latitudes at the times; errors as those of a `MeanFieldPath`."""

    times: Float[Tensor, "m"]
    errors: Float[Tensor, "m"]
    converged: bool
    axis: Float[Tensor, "3"]
    nodes: int
    bundle: Bundle
    map: FlowMap

    def carry(self, index: int, points: Any) -> Float[Tensor, "n 3"]:
        """Where tokens that started at the points (n, 3) are at saved time number `index`."""
        index = integer(index, "index", least=-len(self.times), most=len(self.times) - 1)
        x = rows(points, 3).to(torch.float64).numpy()
        axis, frame, cells = self.axis.numpy(), self.map.frames[index], self.bundle.cells
        height = x @ axis
        across = x - height[:, None] * axis
        away = np.linalg.norm(across, axis=1)
        place = (np.arctan2(height, away) / math.pi + 0.5) * cells
        start = frame.panels.root + frame.panels.left
        host = np.clip(np.searchsorted(start, place, side="right") - 1, 0, len(start) - 1)
        xi = 2 * np.ldexp(place - start[host], frame.panels.level[host]) - 1
        latitude = read_at(frame.theta[host], xi[:, None])[:, 0]
        sideways = across / np.maximum(away, 1e-300)[:, None]
        return torch.from_numpy(np.cos(latitude)[:, None] * sideways + np.sin(latitude)[:, None] * axis)

    def nodes_at(self, index: int) -> tuple[Array, Array]:
        """Latitudes and masses (n,) at saved time number `index`: a quadrature of the law of the latitude."""
        frame = self.map.frames[integer(index, "index", least=-len(self.times), most=len(self.times) - 1)]
        mass = self.bundle.mass(frame.panels).ravel()
        return frame.theta.ravel(), mass / mass.sum()


def solve_axial(
    w: AttentionWeights,
    beta: float,
    density: Any,
    times: Any,
    axis: Any,
    *,
    tol: float = 1e-6,
    max_nodes: int = 16384,
) -> AxialPath:
    """The mean field on S^2 when V, B and the law are symmetric about the axis: see the module.

    density: as for `meanfield.solve`. It is read on one line from -axis to axis, and refused where another
    line sees another density. tol: as there; the last change of the flow map is `path.errors`.

    >>> from metastable.meanfield import Uniform
    >>> w = AttentionWeights(V=np.diag([2.0, 1.0, 1.0]), B=np.eye(3))
    >>> path = solve_axial(w, 16.0, Uniform(3), [1.0], [1.0, 0.0, 0.0], tol=1e-4)
    >>> path.converged, bool(path.errors.max() < 1e-4)
    (True, True)
    """
    instance(w, "w", AttentionWeights, "AttentionWeights")
    beta, tol = number(beta, "beta", least=0.0), number(tol, "tol", least=1e-14, most=2.0)
    max_nodes = integer(max_nodes, "max_nodes", least=16)
    saved = np.array(numbers(times, "times", least=0, increasing=True))
    if not len(saved):
        raise InvalidInput("times must be at least one number, got none")
    e = unit_vector(axis, "axis", 3)
    law = as_law(density, 3)
    if isinstance(law, Empirical):
        raise InvalidInput("a law with an axis of symmetry needs a density, got tokens")
    parts = (*_along_and_across(w.V, "V", e), *_along_and_across(w.B, "B", e))
    frame = ProductRule(e.numpy()).frame
    bundle = Bundle.of(law, frame, 1)
    _require_symmetry(law, frame)

    def run(accuracy: Accuracy) -> FlowMap:
        return _AxialRun(parts, beta, bundle, accuracy, max_nodes).through(saved, MOST_STEPS)

    found = agree(run, partial(differences_of_angles, bundle.mass), saved, tol)
    return AxialPath(
        torch.from_numpy(saved), torch.from_numpy(found.errors), found.converged, e, found.fine.most_nodes, bundle,
        found.fine,
    )  # fmt: skip


def _along_and_across(matrix: Tensor, name: str, axis: Tensor) -> tuple[float, float]:
    """(v, w) of v e e^T + w (1 - e e^T), or a sentence."""
    along = float(axis @ matrix @ axis)
    across = (float(matrix.trace()) - along) / 2
    rest = matrix - across * torch.eye(3, dtype=matrix.dtype) - (along - across) * torch.outer(axis, axis)
    if float(rest.abs().max()) > SYMMETRIC * float(matrix.abs().max()):
        raise InvalidInput(f"{name} must be v e e^T + w (1 - e e^T) about the axis e, got {shown(matrix.tolist())}")
    return along, across


def _require_symmetry(law: Law, frame: Array) -> None:
    """Refuse a density that is not the same on 7 lines."""
    lines = Bundle(law, frame, 2 * np.pi * np.arange(7) / 7, np.full(7, 1 / 7), 4)
    values = lines.values(lines.panels()).reshape(7, -1)
    if float(np.ptp(values, axis=0).max()) > 1e-9 * float(values.max()):
        raise InvalidInput("the density must be symmetric about the axis, but it differs on two meridians")
