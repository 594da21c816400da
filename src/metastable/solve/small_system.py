"""`SmallSystem`: steps of one small system, compiled: a call for a whole step and not one for every stage.

With two hundred tokens a stage takes some ten microseconds, and a call of Python several times as long.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.direct import MAX_COLUMNS, WIDE_LIBRARIES
from metastable.flows.attending import AttendingFlow
from metastable.flows.drift import Velocity
from metastable.flows.flow import Flow
from metastable.flows.multihead import MultiHead
from metastable.flows.pairwise import pairwise
from metastable.solve.compiled_trial import CompiledTrial
from metastable.solve.controller import SHARE
from metastable.solve.problem import Problem
from metastable.solve.tableau import Pair, Tableau
from metastable.solve.trial import Made
from metastable.solve.wide_trial import LEAST_COLUMNS, plain_weights

MOST_TOKENS = 512
"""Tokens up to which one core that makes a whole step is faster than all cores that make it stage by stage."""
LEAST_TOKENS = 80
"""Tokens from which `WideTrial` is faster still, where products are our own: .76 to .87 of the time for 100 to 400
tokens in eight dimensions, 1.04 for 64."""


class SmallSystem:
    """The compiled step of many systems (`CompiledTrial`) for one of them."""

    def __init__(self, compiled: CompiledTrial, allowed: tuple[float, float]) -> None:
        self.compiled, self.allowed = compiled, allowed
        self.which, self.h, self.looked = np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros(1, dtype=bool)

    def __call__(self, points: Float[Tensor, "n d"], slope: Float[Tensor, "n d"], h: float) -> Made:
        """A step of size h from points with that velocity."""
        self._make(points, slope, h, looked=False)
        made, error = self.compiled, float(self.compiled.error[0])
        after, velocity = (torch.from_numpy(x[0].copy()) for x in (made.points, made.slope))
        error = error if math.isfinite(error) else math.inf
        evaluations = made.evaluations(made.error[:1], self.looked)
        return Made(after, Velocity(velocity, float(made.rate[0])), error, evaluations)

    def stages(self, points: Float[Tensor, "n d"], slope: Float[Tensor, "n d"], h: float) -> Float[Tensor, "s n d"]:
        """The stages of that step, which is made once more for them."""
        self._make(points, slope, h, looked=True)
        return torch.from_numpy(self.compiled.kept[1:, 0].copy())

    def _make(self, points: Tensor, slope: Tensor, h: float, looked: bool) -> None:
        self.h[0], self.looked[0] = h, looked
        self.compiled(points.numpy()[None], slope.numpy()[None], self.which, self.h, self.looked, self.allowed)


def small_system(problem: Problem, points: Float[Tensor, "n d"], pair: Pair) -> SmallSystem | None:
    """The compiled steps of few tokens in few dimensions under attention with constant weights; else None."""
    flow = pairwise(problem.flow, 1) if suits(problem, points) else None
    if flow is None:
        return None
    compiled = CompiledTrial(flow, problem.mass.numpy()[None], points.shape[1], Tableau.of(pair))
    return SmallSystem(compiled, (SHARE * problem.rtol, SHARE * problem.atol))


def suits(problem: Problem, points: Float[Tensor, "n d"]) -> bool:
    """Whether a call for a whole step pays: few tokens in few dimensions, and no kernel that was asked for."""
    few = points.is_cpu and points.dtype == torch.float64 and len(points) <= MOST_TOKENS
    if not (few and points.shape[1] <= MAX_COLUMNS and _free(problem.flow)):
        return False
    by_products = points.shape[1] >= LEAST_COLUMNS and len(points) >= LEAST_TOKENS and not WIDE_LIBRARIES
    return not (by_products and plain_weights(problem.flow, points) is not None)


def _free(flow: Flow) -> bool:
    """Whether nobody asked for a kernel by its name."""
    heads = flow.heads if isinstance(flow, MultiHead) else (flow,)
    return all(isinstance(head, AttendingFlow) and head.kernel == "auto" for head in heads)
