"""The predicted law at finite beta: Picard iterations from the exact zero-temperature crowd.

    x_j' = P_x V m_beta[rho_t^{j-1}](x_j),   rho_t^0 the exact zero-temperature law,   j = 1, 2, 3

The crowd of the first iteration is known in closed form, so every token moves by itself: the first iteration holds
the first order in 1/beta, the crossing of the separatrix and the finite-n noise of the keys; the next ones add how
the displaced crowd acts back on itself, and converge to the run. The difference of the last two tells the error.
Of n > SAMPLE tokens a sample is followed: its displacement is what the crowd's is made of, and q tokens cost q
attention rows over n keys per stage, linear in n, where a simulation costs n^2.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from metastable import arguments
from metastable.attention.attend import Attended
from metastable.errors import NotDefined
from metastable.flows.driven import DrivenAttention
from metastable.flows.orbit import orbit
from metastable.meanfield.limit import two_atom_distance
from metastable.measure import Measure
from metastable.solve.solve import solve
from metastable.theory.limit import LimitMap, limit_map
from metastable.theory.rates import squared_tangent
from metastable.theory.tokens import tokens
from metastable.theory.zero_temperature import nearest_point_distance
from metastable.transport import wasserstein
from metastable.weights import AttentionWeights

SAMPLE = 512
"""Most tokens that are followed; of more, those nearest the separatrix and a random choice of the rest."""
STEP = 0.15
"""Time step in units of 1/||V||. Half of it changes the curve by less than 1e-5 of itself (measured on the circle
and on S^2 at beta = 64 and 30), far below the 15% that a forecast claims."""
ITERATIONS = 3
"""Two give a curve, the third says how far to trust it."""
STRIDE = 4
"""Steps from one note of the distance to the next where it is a transport problem (dim E > 1)."""
STEPS = 256
"""Most steps: the horizon is STEPS * STEP/||V||, 38 of the shortest times in which attention can move a token."""
BLOCK = 8
"""Steps that are solved at once: a start costs one field more, and the crowd is kept at every half step."""
LARGEST_SEED = 2**63 - 1
"""Largest seed of a torch generator."""
LEAST_SHARE = 0.05
"""Where a sample is corrected by the crowd's exact distance, the prediction keeps at least this share of its
own."""


class Prediction:
    """The predicted curve t -> W2(rho_t^beta, Pi#rho_0), solved forward as far as it is asked for.

    At `times`: `iterates`, the distances (zero temperature, first, second, third iteration), and `moved`, the rms
    distance of tokens between the last two, which bounds W2 between their laws. Nothing is solved beyond `horizon`:
    from there on the curve keeps its last value. `follows_all` says that all tokens are followed.
    """

    def __init__(
        self, w: AttentionWeights, beta: float, rho0: Measure, pi: LimitMap | None = None, seed: int = 0
    ) -> None:
        self.w = arguments.instance(w, "w", AttentionWeights, "AttentionWeights")
        self.beta, self.rho = arguments.number(beta, "beta", above=0), tokens(rho0, w.d)
        self.pi = arguments.instance(limit_map(w) if pi is None else pi, "pi", LimitMap, "a LimitMap")
        seed = arguments.integer(seed, "seed", least=0, most=LARGEST_SEED)
        rho0 = self.rho
        self.step = STEP / max(w.V_norm, 1e-300)
        self.horizon = STEPS * self.step
        rows, mass = _sample(self.pi, rho0, seed)
        self.mass, self.follows_all = mass, len(rows) == rho0.n
        self.states = [rho0.points[rows].clone() for _ in range(ITERATIONS + 1)]
        self.crowd = rho0.points.clone()
        self.stride = 1 if self.pi.spectrum.dimension == 1 else STRIDE
        self.distance = distance_from(self.pi, self.states[0], mass)
        self.whole = None if self.follows_all else crowd_distance(self.pi, rho0)
        self.times: list[float] = []
        self.iterates: list[list[float]] = []
        self.moved: list[float] = []
        self._note(0.0)

    @property
    def values(self) -> list[float]:
        """The predicted distance at `times`, that of the last iteration."""
        return [row[-1] for row in self.iterates]

    @property
    def zero_temperature(self) -> list[float]:
        """The distance at zero temperature, before any iteration."""
        return [row[0] for row in self.iterates]

    def __repr__(self) -> str:
        return f"Prediction(beta={self.beta:g}, {self.rho!r}, solved to t = {self.times[-1]:.4g})"

    def extend(self, t: float) -> None:
        """Go on from the last state until the last time is at least t, or the horizon is reached."""
        t = arguments.number(t, "t", least=0, finite=False)
        grid = self.step / 2 * np.arange(2 * BLOCK + 1)
        while self.times[-1] < min(t, self.horizon):
            crowd = orbit(self.w.M, self.w.B, self.crowd, grid)
            paths = [crowd if self.follows_all else orbit(self.w.M, self.w.B, self.states[0], grid)]
            for x in self.states[1:]:
                paths.append(self._driven(x, grid, crowd, paths))
            for k in range(2 * self.stride, 2 * BLOCK + 1, 2 * self.stride):
                self.states, self.crowd = [path[k] for path in paths], crowd[k]
                self._note(self.times[-1] + self.stride * self.step)

    def __call__(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(predicted, zero-temperature) distances at the times t, log-linear between steps (linear next to 0)."""
        times = np.asarray(arguments.numbers(t, "t", least=0))
        self.extend(float(np.max(times, initial=0.0)))
        curves = np.array(self.iterates).T
        predicted, bare = (_interpolated(times, self.times, curve) for curve in (curves[-1], curves[0]))
        return predicted, bare

    def _driven(self, x: Tensor, grid: np.ndarray, crowd: Tensor, paths: list[Tensor]) -> Tensor:
        """Where the tokens x are at the times of the grid, in the field of the crowd of the last of the paths.

        Where only a sample is followed, the crowd is the zero-temperature one and what the path says about the
        sample's displacement.
        """

        def at(path: Tensor) -> Callable[[float], Tensor]:
            return lambda t: path[round(2 * t / self.step)]

        flow: DrivenAttention
        if self.follows_all or len(paths) == 1:
            flow = DrivenAttention(self.w, self.beta, at(paths[-1] if self.follows_all else crowd), self.rho.mass)
        else:
            flow = DisplacedAttention(
                self.w, self.beta, at(crowd), self.rho.mass, at(paths[-1]), at(paths[0]), self.mass
            )
        return solve(flow, Measure(x, self.mass), grid[-1], grid, method="rk4", step=self.step).points

    def _note(self, t: float) -> None:
        found = [self.distance(x) for x in self.states]
        if not self.follows_all and self.whole is not None:
            # The crowd's own zero-temperature distance is known exactly: the sample only adds the difference.
            full, bare = self.whole(self.crowd), found[0]
            found = [math.sqrt(max(full**2 + v**2 - bare**2, (LEAST_SHARE * v) ** 2)) for v in found]
        self.times.append(t)
        self.iterates.append(found)
        self.moved.append(math.sqrt(float(self.mass @ (self.states[-1] - self.states[-2]).square().sum(1))))


def distance_from(pi: LimitMap, points: Tensor, mass: Tensor) -> Callable[[Tensor], float]:
    """x -> W2(tokens at x, Pi#rho_0), where rho_0 are these points with these masses.

    Two atoms (dim E = 1) take a sort, a law on a larger E the transport problem.
    """
    good = ~pi.exceptional(points)
    if not bool(good.any()):
        raise NotDefined("every token lies in the exceptional set of the limit map, so there is no limit measure")
    target = pi(points[good])
    if pi.spectrum.dimension > 1:
        limit = Measure(target, mass[good])
        return lambda x: float(wasserstein(Measure(x, mass), limit))
    e = pi.spectrum.M.space[:, 0]
    p = float(mass[good][target @ e > 0].sum() / mass[good].sum())
    return lambda x: two_atom_distance(Measure(x, mass), e.numpy(), p)


def crowd_distance(pi: LimitMap, rho: Measure) -> Callable[[Tensor], float] | None:
    """x -> W2(crowd at zero temperature, Pi#rho_0) for any number of tokens; None where that is too dear.

    Symmetric M: the nearest-point map is the optimal one (Z5). Else two atoms are cheap, larger spaces are not.
    """
    if pi.spectrum.M.symmetric:
        return lambda x: float(nearest_point_distance(pi.projector, x[None], rho.mass)[0])
    return distance_from(pi, rho.points, rho.mass) if pi.spectrum.dimension == 1 else None


class DisplacedAttention(DrivenAttention):
    """m = m_beta[crowd] + m_beta[moved] - m_beta[unmoved]: the crowd, some of whose tokens are known to have moved.

    `moved` and `unmoved` are the same sample of the crowd after and before, so that their noise cancels.
    """

    def __init__(
        self,
        weights: AttentionWeights,
        beta: float,
        crowd: Callable[[float], Tensor],
        crowd_mass: Tensor,
        moved: Callable[[float], Tensor],
        unmoved: Callable[[float], Tensor],
        sample_mass: Tensor,
    ) -> None:
        super().__init__(weights, beta, crowd, crowd_mass)
        self.sample = tuple(DrivenAttention(weights, beta, path, sample_mass) for path in (moved, unmoved))

    def attention(self, t: float, points: Tensor, mass: Tensor) -> tuple[Attended, AttentionWeights]:
        """Attention over the crowd, and by how much the displaced sample changes its mean."""
        attended, w = super().attention(t, points, mass)
        after, before = (flow.attention(t, points, mass)[0].mean for flow in self.sample)
        return dataclasses.replace(attended, mean=attended.mean + after - before), w


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
