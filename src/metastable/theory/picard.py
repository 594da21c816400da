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
from jaxtyping import Float
from torch import Tensor

from metastable.attention.attend import attend_unchecked
from metastable.errors import NotDefined
from metastable.flows.orbit import orbit
from metastable.measure import Measure
from metastable.sphere import normalize, project_tangent
from metastable.theory.limit import LimitMap, limit_map
from metastable.theory.rates import squared_tangent
from metastable.theory.zero_temperature import nearest_point_distance
from metastable.transport import wasserstein
from metastable.weights import AttentionWeights

SAMPLE = 512
"""Most tokens that are followed; of more, those nearest the separatrix and a random choice of the rest."""
BLOCK = 8
"""Steps whose key positions are computed at once."""


class Prediction:
    """The predicted curve t -> W2(rho_t^beta, Pi#rho_0), marched forward as far as it is asked for."""

    def __init__(self, w: AttentionWeights, beta: float, rho0: Measure, pi: LimitMap | None = None, seed: int = 0):
        self.w, self.beta, self.rho = w, float(beta), rho0
        self.pi = limit_map(w) if pi is None else pi
        self.step = 0.15 / max(w.V_norm, 1e-300)
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
        self.whole = len(rows) == rho0.n
        self.times: list[float] = []
        self.values: list[float] = []
        self.bare: list[float] = []
        self.first: list[float] = []
        self._note(0.0)

    def extend(self, t: float) -> None:
        """March until the last time is at least t."""
        while self.times[-1] < t:
            h = self.step
            stages = orbit(self.w.M, self.w.B, self.crowd, h / 2 * np.arange(2 * BLOCK + 1))
            zeros = orbit(self.w.M, self.w.B, self.zero, h * np.arange(BLOCK + 1))
            for s in range(BLOCK):
                start, middle, end = stages[2 * s], stages[2 * s + 1], stages[2 * s + 2]
                before = self.x
                self.x, leaving, arriving = self._runge_kutta(before, start, middle, end, self.rho.mass)
                if self.whole:
                    halfway = normalize((before + self.x) / 2 + h / 8 * (leaving - arriving))
                    self.second = self._runge_kutta(self.second, before, halfway, self.x, self.mass)[0]
                self.zero, self.crowd = zeros[s + 1], end
                self._note(self.times[-1] + h)

    def __call__(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(predicted, zero-temperature) distances at the times t, log-linear between steps (linear next to 0)."""
        self.extend(float(np.max(t, initial=0.0)))
        predicted, bare = (_interpolated(t, self.times, np.array(values)) for values in (self.values, self.bare))
        return predicted, bare

    def _runge_kutta(
        self, x: Tensor, start: Tensor, middle: Tensor, end: Tensor, mass: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One step in the field of a moving crowd: (new x, velocity at the start, velocity at the end)."""
        h = self.step
        k1 = self._field(x, start, mass)
        k2 = self._field(x + h / 2 * k1, middle, mass)
        k3 = self._field(x + h / 2 * k2, middle, mass)
        k4 = self._field(x + h * k3, end, mass)
        return normalize(x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)), k1, k4

    def _field(self, x: Tensor, keys: Tensor, mass: Tensor) -> Float[Tensor, "q d"]:
        x = normalize(x)
        mean = attend_unchecked(self.w.B_transpose(x), keys, keys, mass, self.beta).mean
        return project_tangent(x, self.w.apply_V(mean))

    def _note(self, t: float) -> None:
        predicted = self._distance(self.x)
        symmetric = self.pi.spectrum.M.symmetric
        bare = self._nearest(self.zero, self.mass) if symmetric else self._distance(self.zero)
        if not self.whole and symmetric:
            # The crowd's own zero-temperature distance is known exactly: the sample only adds the difference.
            full = self._nearest(self.crowd, self.rho.mass)
            predicted = math.sqrt(max(full**2 + predicted**2 - bare**2, (0.05 * predicted) ** 2))
            bare = full
        self.times.append(t)
        self.first.append(predicted)
        self.values.append(self._distance(self.second) if self.whole else predicted)
        self.bare.append(bare)

    def _nearest(self, x: Tensor, mass: Tensor) -> float:
        return float(nearest_point_distance(self.pi, x[None], mass, "chordal")[0])

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
