"""How alike the tokens of a text are, at every point of the depth: the input of each layer and the last output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.audit.spread import mean, standard_error
from metastable.measure import Measure
from metastable.observe import effective_rank

GROWTH = 0.05
"""Difference of mean cosines from which tokens are said to be more or less alike: a rule of thumb."""


@dataclass(frozen=True)
class DepthPoint:
    """Hidden states at one point of the depth, averaged over texts; errors are standard errors over texts."""

    point: int
    """p < L: the input of layer p; p = L: the output of the last layer."""
    mean_cosine: float
    """Mean cosine between two tokens of a text, as the model hands them on: 1 is full collapse."""
    mean_cosine_error: float
    growth: float
    """Its difference from point 0, text by text."""
    growth_error: float
    effective_rank: float
    effective_rank_error: float


def similarity(states: Float[Tensor, "points n d"]) -> tuple[list[float], list[float]]:
    """`mean_cosines`, and the effective rank of the tokens' directions, at every point of one text."""
    return mean_cosines(states), [effective_rank(Measure(rows.cpu())) for rows in states]


def mean_cosines(states: Float[Tensor, "points n d"]) -> list[float]:
    """Mean cosine between two different tokens at every point of one text; 1 for a single token."""
    unit = states / torch.linalg.vector_norm(states, dim=2, keepdim=True).clamp_min(1e-300)
    n = unit.shape[1]
    if n < 2:
        return [1.0] * len(unit)
    return list(((unit.sum(dim=1).square().sum(dim=1) - n) / (n * (n - 1))).tolist())


def depth_points(cosines: Sequence[Sequence[float]], ranks: Sequence[Sequence[float]]) -> list[DepthPoint]:
    """All points from what `similarity` found in every text."""
    result = []
    for p in range(len(cosines[0])):
        here = [text[p] for text in cosines]
        growth = [text[p] - text[0] for text in cosines]
        rank = [text[p] for text in ranks]
        result.append(
            DepthPoint(
                p, mean(here), standard_error(here), mean(growth), standard_error(growth), mean(rank),
                standard_error(rank),
            )
        )  # fmt: skip
    return result


def course(points: Sequence[DepthPoint]) -> tuple[str, int | None]:
    """How the mean cosine goes from the first point to the last, and the point in between outside of both, if any.

    "rise" or "fall": it changes by more than `GROWTH`, whatever two standard errors over texts may add; "same": by
    less, whatever they may add; "open": it cannot be told.
    """
    first, last = points[0], points[-1]

    def differ(a: DepthPoint, b: DepthPoint) -> bool:
        return abs(a.growth - b.growth) - 2 * max(a.growth_error, b.growth_error) > GROWTH

    word = "rise" if last.growth > 0 else "fall"
    if not differ(last, first):
        word = "same" if abs(last.growth) + 2 * last.growth_error <= GROWTH else "open"
    ends = [pick(points, key=lambda p: p.mean_cosine) for pick in (max, min)]
    outside = [p for p in ends if p not in (first, last) and differ(p, first) and differ(p, last)]
    farthest = max(outside, key=lambda p: min(abs(p.growth), abs(p.growth - last.growth)), default=None)
    return word, None if farthest is None else farthest.point
