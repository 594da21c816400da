"""Many systems, each at its own time with its own step: their state, and one round of steps between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numba import njit
from torch import Tensor

from metastable import rowwise
from metastable.flows.flow import Flow
from metastable.threads import over_rows

NANOSECONDS = 0.5
"""Rough cost of one number of one stage in an interpolation, for the choice of threads."""


@dataclass(eq=False, repr=False)
class Round:
    """The accepted steps of one round: system which[r] went from time start[r] to end[r]."""

    which: Int[np.ndarray, "r"]
    start: Float[np.ndarray, "r"]
    end: Float[np.ndarray, "r"]
    points: Float[Tensor, "a n d"]
    """Where all systems of the round stood before it, the rejected ones, too."""
    stages: Float[Tensor, "s a n d"]
    rows: Int[np.ndarray, "r"]
    """Where among them the accepted ones are."""
    between: Callable[[np.ndarray], np.ndarray]
    """Weights of the stages at parts of a step; see `Tableau`."""
    unit: bool

    def at(self, picked: Int[np.ndarray, "k"], times: Float[np.ndarray, "k"]) -> Float[Tensor, "k n d"]:
        """The tokens of systems which[picked] at one time inside the step of each."""
        width = self.end[picked] - self.start[picked]
        weights = width[:, None] * self.between((times - self.start[picked]) / width)
        rows = self.rows[picked]
        if self.points.is_cpu and self.points.dtype == torch.float64:
            out = np.empty((len(rows), *self.points.shape[1:]))
            points, stages = self.points.flatten(1).numpy(), self.stages.flatten(2).numpy()

            def some(start: int, stop: int) -> None:
                _combined_rows(points, stages, rows[start:stop], weights[start:stop], self.unit, out[start:stop])

            over_rows(some, len(rows), cost=NANOSECONDS * out.size * len(stages))
            return torch.from_numpy(out)
        index = torch.from_numpy(rows).to(self.points.device)
        return combined(self.points[index], self.stages[:, index], weights, self.unit)


@dataclass(eq=False, repr=False)
class Systems:
    """Everything that the integrator of many systems needs to go on."""

    times: Float[np.ndarray, "b"]
    points: Float[Tensor, "b n d"]
    slope: Float[Tensor, "b n d"]
    rate: Float[np.ndarray, "b"]
    step: Float[np.ndarray, "b"]
    last_error: Float[np.ndarray, "b"]
    accepted: Int[np.ndarray, "b"]
    rejected: Int[np.ndarray, "b"]
    failed: Bool[np.ndarray, "b"]
    """Whether the last trial of a system was rejected, so that its next step does not grow."""
    running: Bool[np.ndarray, "b"]
    """False for systems that an event stopped."""
    round: Round | None = None
    """The steps that were made last."""

    @classmethod
    def at_rest(cls, points: Float[Tensor, "b n d"], t: float) -> Systems:
        """All systems before their first step."""
        b = len(points)
        real, count = np.zeros(b), np.zeros(b, dtype=np.int64)
        return cls(
            times=np.full(b, t),
            points=points,
            slope=torch.zeros_like(points),
            rate=real,
            step=real.copy(),
            last_error=np.ones(b),
            accepted=count,
            rejected=count.copy(),
            failed=np.zeros(b, dtype=bool),
            running=np.ones(b, dtype=bool),
        )

    def take_over(
        self, which: Int[np.ndarray, "a"], rows: Int[np.ndarray, "r"], points: Tensor, slope: Tensor
    ) -> None:
        """Rows `rows` of these tokens and velocities become those of systems which[rows]."""
        if self.points.is_cpu:  # by numpy, which does not wait for threads of other processes
            self.points.numpy()[which[rows]] = points.numpy()[rows]
            self.slope.numpy()[which[rows]] = slope.numpy()[rows]
            return
        index, taken = (torch.from_numpy(x).to(self.points.device) for x in (which[rows], rows))
        self.points[index], self.slope[index] = points[taken], slope[taken]

    @property
    def t(self) -> float:
        """The time that all systems have reached; infinite when none is running any more."""
        return float(np.min(self.times, where=self.running, initial=math.inf))


@njit(nogil=True, cache=True, error_model="numpy")
def _combined_rows(points: Any, stages: Any, rows: Any, weights: Any, unit: bool, out: Any) -> None:
    """`combined` of some rows, with no copy of their stages; points (a, n d), stages (s, a, n d), out (k, n, d)."""
    n, d = out.shape[1:]
    moved = np.empty(n * d)
    for p in range(len(rows)):
        before = points[rows[p]]
        for i in range(n * d):
            moved[i] = before[i]
        for j in range(stages.shape[0]):
            weight, stage = weights[p, j], stages[j, rows[p]]
            for i in range(n * d):
                moved[i] += weight * stage[i]
        for i in range(n):
            square = 0.0
            for c in range(d):
                square += moved[i * d + c] * moved[i * d + c]
            length = math.sqrt(square) if unit else 1.0
            for c in range(d):
                out[p, i, c] = moved[i * d + c] / length


def combined(
    points: Float[Tensor, "a n d"],
    stages: Float[Tensor, "s a n d"],
    weights: Float[np.ndarray, "a s"],
    unit: bool,
) -> Float[Tensor, "a n d"]:
    """x + sum_j w_j k_j with weights of every system's own, back on the sphere if `unit`."""
    moved = points + torch.einsum("as,sand->and", torch.from_numpy(weights).to(points), stages)
    if not unit:
        return moved
    return rowwise.normalize(moved.view(-1, points.shape[-1])).view_as(points)


def largest_errors(
    flow: Flow,
    before: Float[Tensor, "a n d"],
    after: Float[Tensor, "a n d"],
    stages: Float[Tensor, "s a n d"],
    weights: Float[np.ndarray, "2 a s"],
    damping: float,
    allowed: tuple[float, float],
) -> Float[np.ndarray, "a"]:
    """max_i e_i^2 / sqrt(e_i^2 + D f_i^2) of every system, e_i, f_i tangential and relative to rtol |x_i| + atol.

    e and f are the combinations of stages with both weights; infinite where that is not finite.
    """
    rtol, atol = allowed
    scale: float | Tensor = atol + rtol
    if not flow.spherical:
        scale = atol + rtol * torch.maximum(*(torch.linalg.vector_norm(side, dim=2) for side in (before, after)))
    squares = []
    for weight in weights:
        error = torch.einsum("as,sand->and", torch.from_numpy(weight).to(after), stages)
        if flow.spherical:
            error = error - (error * after).sum(2, keepdim=True) * after
        squares.append((torch.linalg.vector_norm(error, dim=2) / scale).square())
    first, second = squares
    ratio = torch.where(first == 0, first, first / torch.sqrt(first + damping * second))
    largest = ratio.amax(dim=1).double().cpu().numpy()
    return np.where(np.isfinite(largest), largest, math.inf)
