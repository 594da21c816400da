"""The predicted law at finite beta: tokens driven by the attention of the exact zero-temperature crowd.

    x' = P_x V m_beta[rho_t^0](x),   rho_t^0 the exact zero-temperature law           (one Picard iteration)

The crowd is known in closed form, so every token moves by itself: q tokens cost q attention rows over n keys per
stage, linear in n, where a simulation costs n^2. The result holds the first order in 1/beta, the crossing of the
separatrix and the finite-n noise of the keys; it misses how the displaced crowd acts back on itself. Where all
tokens are followed (n <= SAMPLE) a second iteration, driven by the crowd of the first, supplies that reaction; the
difference of the two iterations is the estimate of the error.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from metastable.errors import NotDefined
from metastable.flows.driven import DrivenAttention
from metastable.flows.orbit import orbit
from metastable.measure import Measure
from metastable.solve.solve import solve
from metastable.theory.limit import LimitMap, limit_map
from metastable.theory.rates import squared_tangent
from metastable.theory.zero_temperature import nearest_point_distance
from metastable.transport import wasserstein
from metastable.weights import AttentionWeights

SAMPLE = 512
"""Most tokens that are followed; of more, those nearest the separatrix and a random choice of the rest."""
STEP = 0.15
"""Time step in units of 1/||V||. Half of it changes the curve by less than 1e-5 of itself (measured on the circle
and on S^2 at beta = 64 and 30), far below the 15% that a forecast claims."""
BLOCK = 8
"""Most steps that are solved at once: a start costs one field more, and the crowd is kept at every half step."""
LEAST_SHARE = 0.05
"""Where a sample is corrected by the crowd's exact distance, the prediction keeps at least this share of its
own."""


class Prediction:
    """The predicted curve t -> W2(rho_t^beta, Pi#rho_0), solved forward as far as it is asked for.

    At `times`: `values`, the prediction; `one_iteration`, what one of them gives; `zero_temperature`, the distance
    before any. `follows_all` says that all tokens are followed, so that `values` comes from a second iteration.
    """

    def __init__(self, w: AttentionWeights, beta: float, rho0: Measure, pi: LimitMap | None = None, seed: int = 0):
        self.w, self.beta, self.rho = w, float(beta), rho0
        self.pi = limit_map(w) if pi is None else pi
        self.step = STEP / max(w.V_norm, 1e-300)
        rows, mass = _sample(self.pi, rho0, seed)
        self.mass = mass
        self.x = rho0.points[rows].clone()
        self.zero = self.x.clone()
        self.second = self.x.clone()
        self.crowd = rho0.points.clone()
        bad = self.pi.exceptional(self.x)
        if bool(bad.all()):
            raise NotDefined(
                "every token lies in the exceptional set of the limit map, so there is no limit measure"
            )
        self.target = Measure(self.pi(self.x[~bad]), mass[~bad])
        self.follows_all = len(rows) == rho0.n
        self.times: list[float] = []
        self.values: list[float] = []
        self.zero_temperature: list[float] = []
        self.one_iteration: list[float] = []
        self._note(0.0)

    def extend(self, t: float) -> None:
        """Go on from the last state until the last time is at least t."""
        while self.times[-1] < t:
            count = min(BLOCK, math.ceil((t - self.times[-1]) / self.step))
            steps, half_steps = self.step * np.arange(count + 1), self.step / 2 * np.arange(2 * count + 1)
            crowd = orbit(self.w.M, self.w.B, self.crowd, half_steps)
            zeros = orbit(self.w.M, self.w.B, self.zero, steps)
            if self.follows_all:
                path = self._driven(self.x, crowd, self.rho.mass, half_steps)
                first, second = path[::2], self._driven(self.second, path, self.mass, steps)
            else:
                first = second = self._driven(self.x, crowd, self.rho.mass, steps)
            for k in range(1, count + 1):
                self.x, self.second = first[k], second[k]
                self.zero, self.crowd = zeros[k], crowd[2 * k]
                self._note(self.times[-1] + self.step)

    def __call__(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(predicted, zero-temperature) distances at the times t, log-linear between steps (linear next to 0)."""
        self.extend(float(np.max(t, initial=0.0)))
        curves = (self.values, self.zero_temperature)
        predicted, bare = (_interpolated(t, self.times, np.array(curve)) for curve in curves)
        return predicted, bare

    def _driven(self, x: Tensor, crowd: Tensor, mass: Tensor, times: np.ndarray) -> Tensor:
        """Where the tokens x are at the times, in the field of a crowd that is known at all half steps."""
        flow = DrivenAttention(self.w, self.beta, lambda t: crowd[round(2 * t / self.step)], mass)
        return solve(flow, Measure(x, self.mass), times[-1], times, method="rk4", step=self.step).points

    def _note(self, t: float) -> None:
        predicted = self._distance(self.x)
        symmetric = self.pi.spectrum.M.symmetric
        bare = self._nearest(self.zero, self.mass) if symmetric else self._distance(self.zero)
        if not self.follows_all and symmetric:
            # The crowd's own zero-temperature distance is known exactly: the sample only adds the difference.
            full = self._nearest(self.crowd, self.rho.mass)
            predicted = math.sqrt(max(full**2 + predicted**2 - bare**2, (LEAST_SHARE * predicted) ** 2))
            bare = full
        self.times.append(t)
        self.one_iteration.append(predicted)
        self.values.append(self._distance(self.second) if self.follows_all else predicted)
        self.zero_temperature.append(bare)

    def _nearest(self, x: Tensor, mass: Tensor) -> float:
        return float(nearest_point_distance(self.pi.projector, x[None], mass)[0])

    def _distance(self, x: Tensor) -> float:
        return float(wasserstein(Measure(x, self.mass), self.target))


def _interpolated(t: np.ndarray, times: list[float], values: np.ndarray) -> np.ndarray:
    positive = values > 0
    logarithmic = np.exp(np.interp(t, times, np.log(np.where(positive, values, 1.0))))
    return np.where(np.interp(t, times, positive) == 1, logarithmic, np.interp(t, times, values))


def _sample(pi: LimitMap, rho: Measure, seed: int) -> tuple[Tensor, Tensor]:
    """Rows that are followed, and their masses: all, or the slowest and a choice by mass of the rest."""
    if rho.n <= SAMPLE:
        return torch.arange(rho.n), rho.mass
    slow = torch.topk(torch.nan_to_num(squared_tangent(pi.spectrum.M, rho), nan=torch.inf), SAMPLE // 4).indices
    rest = rho.mass.clone()
    rest[slow] = 0.0
    count = SAMPLE - len(slow)
    chosen = torch.multinomial(rest, count, replacement=True, generator=torch.Generator().manual_seed(seed))
    shared = torch.full((count,), float(rest.sum()) / count, dtype=rho.mass.dtype)
    return torch.cat([slow, chosen]), torch.cat([rho.mass[slow], shared])
