"""Many systems, each at its own time with its own step: their state, and one round of steps between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numba import njit
from torch import Tensor

from metastable import rowwise
from metastable.flows.flow import Flow


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
    dense: Float[np.ndarray, "s p"]
    """Polynomials of the interpolant: stage j has the weight h sum_p dense_jp s^(p + 1) at the part s of a step."""
    unit: bool

    def at(self, picked: Int[np.ndarray, "k"], times: Float[np.ndarray, "k"]) -> Float[Tensor, "k n d"]:
        """The tokens of systems which[picked] at one time inside the step of each."""
        width = self.end[picked] - self.start[picked]
        part = (times - self.start[picked]) / width
        weights = width[:, None] * (part[:, None] ** np.arange(1, 1 + self.dense.shape[1])) @ self.dense.T
        rows = self.rows[picked]
        if self.points.is_cpu and self.points.dtype == torch.float64:
            out = np.empty((len(rows), *self.points.shape[1:]))
            _combined_rows(self.points.numpy(), self.stages.numpy(), rows, weights, self.unit, out)
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
    """`combined` of some rows, without a copy of their stages."""
    for p in range(len(rows)):
        out[p] = points[rows[p]]
        for j in range(stages.shape[0]):
            out[p] += weights[p, j] * stages[j, rows[p]]
        if unit:
            for i in range(out.shape[1]):
                out[p, i] /= np.sqrt((out[p, i] * out[p, i]).sum())


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
    weights: Float[np.ndarray, "a s"],
    rtol: float,
    atol: float,
) -> Float[np.ndarray, "a"]:
    """max_i |P_{x_i} sum_j w_j k_j| / (atol + rtol |x_i|) of every system; infinite where that is not finite."""
    error = torch.einsum("as,sand->and", torch.from_numpy(weights).to(after), stages)
    allowed: float | Tensor = atol + rtol
    if flow.spherical:
        error = error - (error * after).sum(2, keepdim=True) * after
    else:
        allowed = atol + rtol * torch.maximum(*(torch.linalg.vector_norm(side, dim=2) for side in (before, after)))
    largest = (torch.linalg.vector_norm(error, dim=2) / allowed).amax(dim=1).double().cpu().numpy()
    return np.where(np.isfinite(largest), largest, math.inf)
