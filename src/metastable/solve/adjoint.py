"""One Runge-Kutta step, made again with its stages, and the transpose of its derivative.

    z_i = x + h sum_j a_ij k_j,  y_i = z_i/|z_i|,  k_i = P_{y_i} F(y_i),  z = x + h sum_j b_j k_j,  x' = z/|z|.

Backwards, from cotangents l' of x': every normalisation becomes P_y/|z|, every combination the transpose of its
weights, every velocity the transpose of its derivative. What comes out is the derivative of the numbers that were
computed, with the steps as they were chosen, and not an approximation of the derivative of the exact flow.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.flows.pullback import HeadCotangent
from metastable.rowwise import combine, project_back, project_tangent
from metastable.solve.problem import Problem
from metastable.solve.recording import Stage, Tape
from metastable.solve.runge_kutta import RungeKutta
from metastable.solve.trace import Interval


def record(problem: Problem, table: RungeKutta, points: Float[Tensor, "n d"], interval: Interval) -> Tape:
    """Make a step again."""
    interval.enter(problem)
    h, projected = interval.end - interval.start, _projected(problem, table)
    slopes = torch.empty((len(table.nodes), *points.shape), dtype=points.dtype, device=points.device)
    stages: list[Stage] = []
    for number, (node, row) in enumerate(zip(table.nodes, table.stages, strict=True)):
        y, length = (points, None) if number == 0 else _moved(problem, points, slopes[:number], h * row)
        pullback = problem.pullback(interval.start + node * h, y)
        slopes[number] = problem.projected(y, pullback.drift) if projected else pullback.drift.vector
        stages.append(Stage(y, length, pullback))
    end, length = _moved(problem, points, slopes, h * table.weights)
    return Tape(h, tuple(stages), end, length)


def transpose(
    problem: Problem, table: RungeKutta, tape: Tape, cotangent: Float[Tensor, "n d"]
) -> tuple[Float[Tensor, "n d"], list[Sequence[HeadCotangent]]]:
    """The cotangents of the tokens at the start of the step, and those of the weights in each stage."""
    of_weights: list[Sequence[HeadCotangent]] = []
    projected = _projected(problem, table)
    back, count, none = velocity_back if projected else drift_back, len(tape.stages), torch.zeros_like(cotangent)
    # Of every stage, and at last of the end: all that moved with its slopes.
    found = torch.empty((count + 1, *cotangent.shape), dtype=cotangent.dtype, device=cotangent.device)
    found[count] = _unnormalised(tape.points, tape.length, cotangent)
    weights = tape.h * table.columns
    for number in reversed(range(count)):
        stage = tape.stages[number]
        of_slope = combine(none, found[number + 1 :], weights[number, number + 1 :], unit=False)
        moved, heads = back(stage, of_slope)
        of_weights.append(heads)
        found[number] = _unnormalised(stage.points, stage.length, moved)
    return found.sum(0), of_weights


def velocity_back(
    stage: Stage, cotangent: Float[Tensor, "n d"]
) -> tuple[Float[Tensor, "n d"], Sequence[HeadCotangent]]:
    """The transpose of the derivative of P_x F(x) = F - <x, F> x at tokens with |x| = 1."""
    x, drift = stage.points, stage.pullback.drift.vector
    found, heads = stage.pullback.back(project_tangent(x, cotangent))
    return project_back(x, drift, cotangent, found), heads


def drift_back(
    stage: Stage, cotangent: Float[Tensor, "n d"]
) -> tuple[Float[Tensor, "n d"], Sequence[HeadCotangent]]:
    """The transpose of the derivative of F itself."""
    return stage.pullback.back(cotangent)


def _projected(problem: Problem, table: RungeKutta) -> bool:
    return problem.flow.spherical and not (table.ambient and problem.flow.residual)


def _moved(
    problem: Problem, points: Tensor, slopes: Tensor, weights: Tensor
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n 1"] | None]:
    """x + sum_j w_j k_j back on the sphere, and its length before."""
    if not problem.flow.spherical:
        return problem.combine(points, slopes, weights), None
    lengths = points.new_empty(len(points))
    return combine(points, slopes, weights, unit=True, lengths=lengths), lengths[:, None]


def _unnormalised(points: Tensor, length: Tensor | None, cotangent: Tensor) -> Tensor:
    """P_y w/|z|: the transpose of the derivative of z -> z/|z|."""
    return cotangent if length is None else project_tangent(points, cotangent) / length
