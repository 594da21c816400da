"""Dormand-Prince 5(4) on the sphere: adaptive steps, error control in the tangent space, dense output."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.rowwise import largest_tangential
from metastable.solve.controller import SHARE, SMALLEST_RATE, Controller
from metastable.solve.embedded import EmbeddedPair
from metastable.solve.problem import Problem, State

FIRST_MOVE = 0.01
"""How far, at most, any token moves in the first step (HNW II.4)."""

# The pair of Dormand and Prince, 1980: nodes c, stages a, weights b of order 5, b minus those of order 4, and the
# polynomials of Shampine's interpolant of order 4 (1986, with his optimal c_6).
_C = (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0)
_A = (
    (),
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
)
_B = (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)
_E = (-71 / 57600, 0, 71 / 16695, -71 / 1920, 17253 / 339200, -22 / 525, 1 / 40)
_P = (
    (1, -8048581381 / 2820520608, 8663915743 / 2820520608, -12715105075 / 11282082432),
    (0, 0, 0, 0),
    (0, 131558114200 / 32700410799, -68118460800 / 10900136933, 87487479700 / 32700410799),
    (0, -1754552775 / 470086768, 14199869525 / 1410260304, -10690763975 / 1880347072),
    (0, 127303824393 / 49829197408, -318862633887 / 49829197408, 701980252875 / 199316789632),
    (0, -282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844),
    (0, 40617522 / 29380423, -110615467 / 29380423, 69997945 / 29380423),
)


class Adaptive(EmbeddedPair):
    """The pair of Dormand and Prince with PI step control (Hairer, Norsett, Wanner, II.4-5).

    The error of a step is the largest tangential error of any token, |P_x e_i| <= (atol + rtol |x_i|)/10: a
    maximum, so that no token is sacrificed to the average. Between steps the pair's own interpolant of order 4 is
    used.
    """

    name = "adaptive"
    order = 5

    nodes = _C
    stages = tuple(torch.tensor(row, dtype=torch.float64) for row in _A)
    weights, errors, dense = (torch.tensor(row, dtype=torch.float64) for row in (_B, _E, _P))
    end_in_error = True

    controller = Controller(5, recent=0.7 / 5, before=0.4 / 5)
    """The exponents of HNW IV.2."""
    stable = 2.5
    """The pair is stable on the real axis down to -3.3, and rates are estimates."""

    def first_step(self, problem: Problem, state: State, slope: Tensor, rate: float) -> float:
        """No token moves far, and the step is short for the rate (HNW II.4)."""
        scale = problem.atol + problem.rtol
        speed = float(torch.linalg.vector_norm(slope, dim=1).max())
        return min(FIRST_MOVE / max(speed, SMALLEST_RATE), scale ** (1 / 5) / max(rate, SMALLEST_RATE))

    def error(self, problem: Problem, before: Tensor, after: Tensor, stages: Tensor, h: float) -> float:
        """max_i |P_{x_i} e_i|, relative to what is allowed; for a Euclidean flow max_i |e_i|."""
        weights = h * self.errors
        if problem.flow.spherical:
            return largest_tangential(after, stages, weights) / (SHARE * (problem.atol + problem.rtol))
        error = (weights.to(stages) @ stages.view(len(stages), -1)).view_as(after)
        size = torch.maximum(*(torch.linalg.vector_norm(side, dim=1) for side in (before, after)))
        allowed = SHARE * (problem.atol + problem.rtol * size)
        largest = float((torch.linalg.vector_norm(error, dim=1) / allowed).max())
        return largest if math.isfinite(largest) else math.inf

    def between(self, s: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k s"]:
        """Shampine's polynomials."""
        dense = self.dense.numpy()
        return np.asarray((s[:, None] ** np.arange(1, 1 + dense.shape[1])) @ dense.T)
