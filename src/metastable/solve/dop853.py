"""Dormand-Prince 8(5,3) on the sphere: adaptive steps of order 8, dense output of order 7."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.rowwise import largest_damped, largest_quotient
from metastable.solve import dop853_table as table
from metastable.solve.controller import SHARE, SMALLEST_RATE, Controller
from metastable.solve.embedded import EmbeddedPair
from metastable.solve.problem import Problem, State

DAMPING = 0.01
"""Weight of the square of the difference to order 3 beside that to order 5 (HNW II.10)."""
PROBE = 1e-3
"""How far, at most, any token moves in the Euler step that measures how fast the velocity changes."""
FIRST, FIRST_OF_MANY, MANY = 1.5, 2.0, 12
"""The first step is this, the second from so many dimensions on, times tol^(1/8) times the time in which the
velocity changes: four tenths of the median of what the error control accepts (80 random flows, d = 2 to 64,
beta = 1 to 1000, tol = 1e-4 to 1e-11). What is accepted differs from that by a factor of 1.8, and the rate and
other means over tokens foretell it hardly better, by 1.7; a rejected first step is eleven evaluations, a tenth
of a run of ten steps. Of 244 problems as in benchmarks/pairs.py (eight seeds) two take more than SciPy at the
same error, and with 2.0 in all dimensions ten, at the same mean. In many dimensions tokens turn alike: of 384
runs in 16 dimensions 145 take fewer evaluations with 2.0 and 7 take more, in 64 dimensions 75 and none, and
short runs there a quarter fewer."""

_STAGES, _WITH_LATE = len(table.WEIGHTS), len(table.DENSE[0])


def first_share(d: int) -> float:
    """`FIRST`, or what takes its place in many dimensions."""
    return FIRST_OF_MANY if d >= MANY else FIRST


def _row(values: tuple[float, ...], length: int = 0) -> Tensor:
    """A row of the table, filled up with zeros."""
    return torch.tensor(values + (0.0,) * (length - len(values)), dtype=torch.float64)


def _dense() -> tuple[Tensor, ...]:
    """The d of x(t + s h) = x + h s (d_0 + (1 - s) (d_1 + s (d_2 + (1 - s) (d_3 + ...)))), over all stages."""
    first, last = _row((1.0,), _WITH_LATE), _row((0.0,) * _STAGES + (1.0,), _WITH_LATE)
    whole = _row(table.WEIGHTS, _WITH_LATE)
    return whole, first - whole, 2 * whole - last - first, *(_row(row) for row in table.DENSE)


class Dop853(EmbeddedPair):
    """The pair of order 8(5,3) of Dormand and Prince, DOP853 of Hairer, Norsett and Wanner (II.5 and II.10).

    The error of a step is the largest of any token, e_i^2 / sqrt(e_i^2 + f_i^2/100) <= (atol + rtol |x_i|)/10 with
    the tangential differences e to the embedded formula of order 5 and f to that of order 3. It does not need the
    velocity at the end, so a rejected step costs eleven evaluations, an accepted one twelve. A step between whose
    ends somebody looks costs three more, which are not counted: looking changes nothing.
    """

    name = "dop853"
    order = 8

    nodes = table.NODES
    stages = tuple(_row(row) for row in table.STAGES)
    weights = _row(table.WEIGHTS)
    errors = torch.stack([_row(table.FIFTH), _row(table.THIRD)])
    damping = DAMPING
    late_nodes = table.LATE_NODES
    late_stages = tuple(_row(row) for row in table.LATE_STAGES)
    dense = _dense()
    end_in_error = False

    controller = Controller(8, recent=0.6 / 8, before=0.3 / 8)
    """Without memory three times as many steps are rejected; with the exponents .7 and .4 of HNW IV.2 steps grow
    late where tokens come to rest: 2% more evaluations at the same error (benchmarks/pairs.py, two seeds)."""
    stable = math.inf
    """The error control alone bounds the step: tokens at rest cost nothing, however steep the field around them."""

    def first_step(self, problem: Problem, state: State, slope: Tensor, rate: float) -> float:
        """`first_share` tol^(1/8) / (s + a/s), s the largest velocity and a how fast it changes along the flow.

        At least so long that no token leaves the tolerance at this velocity, or that of the rate which is stated.
        """
        tolerance = problem.atol + problem.rtol
        small = tolerance ** (1 / 8)
        by_rate = small / max(rate, SMALLEST_RATE)
        speed = max(float(torch.linalg.vector_norm(slope, dim=1).max()), SMALLEST_RATE)
        probe = min(PROBE / speed, by_rate)
        there = problem.velocity(state.t + probe, problem.retract(state.points + probe * slope)).vector
        change = float(torch.linalg.vector_norm(there - slope, dim=1).max()) / probe
        share = first_share(problem.flow.d)
        found = share * small / (speed + change / speed) if math.isfinite(change) else 0.0
        return max(found, by_rate, tolerance / speed)

    def error(self, problem: Problem, before: Tensor, after: Tensor, stages: Tensor, h: float) -> float:
        """max_i e_i^2 / sqrt(e_i^2 + f_i^2/100), relative to what is allowed."""
        used, weights = stages[:_STAGES], h * self.errors
        if problem.flow.spherical:
            return largest_damped(after, used, weights, DAMPING) / (SHARE * (problem.atol + problem.rtol))
        errors = (weights.to(used) @ used.view(_STAGES, -1)).view(2, *after.shape)
        size = torch.maximum(*(torch.linalg.vector_norm(side, dim=1) for side in (before, after)))
        allowed = SHARE * (problem.atol + problem.rtol * size)
        fifth, third = (torch.linalg.vector_norm(error, dim=1) / allowed for error in errors)
        return largest_quotient(fifth.square(), third.square(), DAMPING)

    def between(self, s: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k s"]:
        """Hairer's polynomial of degree 7 in s."""
        weights = np.zeros((len(s), _WITH_LATE))
        for power, coefficients in enumerate(reversed(self.dense)):
            weights = (weights + coefficients.numpy()) * (s if power % 2 == 0 else 1 - s)[:, None]
        return weights
