"""`RungeKutta`: the table of an explicit method, by which a step can be made again and differentiated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.solve.embedded import EmbeddedPair
from metastable.solve.euler import Euler
from metastable.solve.rk4 import RK4
from metastable.solve.stepper import Stepper

ROUNDING = 1e-12
"""Differences of coefficients below this are none: tables have sixteen digits, and the least defect is 6e-8."""


@dataclass(frozen=True, eq=False)
class RungeKutta:
    """k_i = v(t + c_i h, x + h sum_j a_ij k_j),   x <- x + h sum_j b_j k_j, back on the sphere."""

    nodes: tuple[float, ...]
    """c_i."""
    stages: tuple[Tensor, ...]
    """a_ij, one row for each stage."""
    weights: Float[Tensor, "s"]
    """b_j."""
    ambient: bool = False
    """Whether the stages of a `residual` flow are its drift, not projected to the sphere."""

    @cached_property
    def columns(self) -> Float[Tensor, "s t"]:
        """How slope j enters every stage i, and at last the end: a_ij and b_j, transposed."""
        count = len(self.nodes)
        columns = torch.zeros((count, count + 1), dtype=torch.float64)
        for stage, row in enumerate((*self.stages, self.weights)):
            columns[: len(row), stage] = row
        return columns

    @cached_property
    def defect(self) -> tuple[int, float]:
        """(k, c) of the first term c z^k in which a step of x' = x, of length z, differs from e^z."""
        count = len(self.nodes)
        matrix = self.columns[:, :count].T
        power = torch.ones(count, dtype=torch.float64)
        for k in range(1, count + 1):
            error = abs(float(self.weights @ power) - 1 / math.factorial(k))
            if error > ROUNDING:
                return k, error
            power = matrix @ power
        return count + 1, 1 / math.factorial(count + 1)

    def resolved(self, tolerance: float) -> float:
        """The length z of a step of x' = x whose error is that part of it.

        >>> round(CLASSICAL.resolved(1e-7), 3)  # z^5/5! = 1e-7
        0.104
        """
        k, error = self.defect
        return float((tolerance / error) ** (1 / k))


def _table(
    nodes: tuple[float, ...], stages: tuple[tuple[float, ...], ...], weights: tuple[float, ...]
) -> RungeKutta:
    rows = tuple(torch.tensor(row, dtype=torch.float64) for row in stages)
    return RungeKutta(nodes, rows, torch.tensor(weights, dtype=torch.float64), ambient=len(nodes) == 1)


EULER = _table((0.0,), ((),), (1.0,))
CLASSICAL = _table((0.0, 0.5, 0.5, 1.0), ((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6))


def runge_kutta(stepper: Stepper) -> RungeKutta | None:
    """The table of a stepper; None where its steps are something else."""
    if isinstance(stepper, EmbeddedPair):
        return RungeKutta(stepper.nodes, stepper.stages, stepper.weights)
    return CLASSICAL if type(stepper) is RK4 else EULER if type(stepper) is Euler else None
