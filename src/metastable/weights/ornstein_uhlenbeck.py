"""`OrnsteinUhlenbeck`: random weights of several heads that relax to a target, sampled exactly from a seed.

The equation is linear, so nothing is approximated: D_h(t) = p(t) + e^{-t} (D_h(0) - p(0)) + sqrt(nu) Y_h(t), with
the target's response p and an Ornstein-Uhlenbeck process Y from 0. On a grid of m 2^k steps, m odd, Y is drawn at
m + 1 times by its transitions, then at the midpoints, level by level, by its bridges

    Y((a + b)/2) = (Y(a) + Y(b))/(2 cosh h) + sqrt(tanh(h)/2) S,      h = (b - a)/2,   S as dW/sqrt(dt),

each level from a stream of its own. Halving the step therefore refines the same path, and a run that was killed
meets the same weights again.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import instance, integer, number
from metastable.errors import InvalidInput
from metastable.weights.target import MOST_ENTRIES, Target, symmetric_heads

STEP = 5e-3
"""Default step of the grid: the published one [arXiv:2605.18870]."""
NOISE = 2.0
"""Default strength nu of the noise: the published one."""
LARGEST_SEED = 2**63 - 1
"""Seeds fit into a signed integer of 64 bits, as elsewhere."""
START, COARSEST, FINER = 0, 1, 2
"""Streams of random numbers of one seed: of D(0), of the coarsest grid, and of the first level of midpoints."""


@dataclass(frozen=True, eq=False)
class OrnsteinUhlenbeck:
    """dD_h = (A_h(t) - D_h) dt + sqrt(nu) dW_h on [0, t], h = 1..H, D_h symmetric (d, d).

    W_h are independent symmetric Brownian matrices, dW = (Z + Z^T)/2 sqrt(dt) with Z standard normal, so that
    Var <x, dW y> = (1 + <x, y>^2)/2 dt for unit vectors. target: A; noise: nu >= 0; start: D(0) (H, d, d), by
    default Z + Z^T from the seed. The path is known at `steps` + 1 equidistant times, by default 5e-3 apart, and
    linear between them. Head h is the same however many there are.

    >>> process = OrnsteinUhlenbeck(Target.resting(3, heads=2), t=1.0, steps=8, seed=1)
    >>> finer = process.refined(4)
    >>> finer.steps, bool((finer.values[::4] == process.values).all())
    (32, True)
    """

    target: Target
    t: float
    steps: int | None = None
    noise: float = NOISE
    start: Float[Tensor, "h d d"] | None = None
    seed: int = 0
    values: Float[Tensor, "m h d d"] = field(init=False, repr=False)
    """D at all times of the grid."""

    def __post_init__(self) -> None:
        target = instance(self.target, "target", Target, "a Target such as Target.resting(3)")
        t = number(self.t, "t", above=0)
        if self.steps is None and t / STEP > MOST_ENTRIES:
            raise InvalidInput(
                f"weights until t = {t:g} in steps of {STEP:g} are more than memory holds; give steps"
            )
        steps = max(1, round(t / STEP)) if self.steps is None else integer(self.steps, "steps", least=1)
        noise, seed = number(self.noise, "noise", least=0), integer(self.seed, "seed", least=0, most=LARGEST_SEED)
        if (steps + 1) * target.mean.numel() > MOST_ENTRIES:
            raise InvalidInput(
                f"{steps} steps of {target.heads} heads in dimension {target.d} do not fit into memory"
            )
        for name, value in (("t", t), ("steps", steps), ("noise", noise), ("seed", seed)):
            object.__setattr__(self, name, value)
        start = self._drawn_start() if self.start is None else symmetric_heads(self.start, "start")
        if start.shape != target.mean.shape:
            raise InvalidInput(
                f"start must have shape {tuple(target.mean.shape)} like the target, got {tuple(start.shape)}"
            )
        object.__setattr__(self, "start", start)
        values = self._settling(self.times) + math.sqrt(noise) * self._fluctuation()
        object.__setattr__(self, "values", values)

    @property
    def heads(self) -> int:
        """Number of heads H."""
        return self.target.heads

    @property
    def d(self) -> int:
        """Dimension of the tokens."""
        return self.target.d

    @property
    def step(self) -> float:
        """Distance of two times of the grid."""
        assert self.steps is not None
        return self.t / self.steps

    @cached_property
    def times(self) -> Float[Tensor, "m"]:
        """The times of the grid."""
        assert self.steps is not None
        return torch.arange(self.steps + 1, dtype=torch.float64) * self.t / self.steps

    def __call__(self, t: float) -> Float[Tensor, "h d d"]:
        """D(t), linear between the times of the grid."""
        assert self.steps is not None
        place = min(max(number(t, "t") / self.t, 0.0), 1.0) * self.steps
        k = min(int(place), self.steps - 1)
        return torch.lerp(self.values[k], self.values[k + 1], place - k)

    @cached_property
    def innovations(self) -> Float[Tensor, "m h d d"]:
        """D(t_{k+1}) - E[D(t_{k+1}) | D(t_k)]: independent, of mean zero, nu (1 - e^{-2 step})/2 times a unit
        dW."""
        settled = self.target.response(self.times)
        return self.values[1:] - settled[1:] - math.exp(-self.step) * (self.values[:-1] - settled[:-1])

    def refined(self, factor: int = 2) -> OrnsteinUhlenbeck:
        """The same path, known at `factor` times as many steps, a power of two."""
        factor = integer(factor, "factor", least=1, most=MOST_ENTRIES)
        if factor & (factor - 1):
            raise InvalidInput(f"a path is refined by a power of two, got {factor}")
        assert self.steps is not None
        return replace(self, steps=self.steps * factor)

    def describe(self) -> dict[str, Any]:
        """All that the weights depend on, as plain data."""
        digest = hashlib.sha256()
        target, start = self.target, self.start
        assert start is not None
        for tensor in (target.mean, target.amplitude, target.frequency, target.phase, start):
            digest.update(tensor.numpy().tobytes())
        sizes = {"heads": self.heads, "d": self.d, "t": self.t, "steps": self.steps}
        return sizes | {"noise": self.noise, "seed": self.seed, "sha256": digest.hexdigest()}

    def __repr__(self) -> str:
        return f"OrnsteinUhlenbeck({self.target!r}, noise={self.noise:g}, {self.steps} steps until t = {self.t:g})"

    def _settling(self, times: Tensor) -> Tensor:
        """E[D(t)] = p(t) + e^{-t} (D(0) - p(0))."""
        assert self.start is not None
        initial = self.start - self.target.response(0.0)
        return self.target.response(times) + torch.exp(-times)[:, None, None, None] * initial

    def _fluctuation(self) -> Tensor:
        """Y at all times of the grid: coarsest grid first, then the midpoints level by level."""
        assert self.steps is not None
        levels = (self.steps & -self.steps).bit_length() - 1
        h = self.t / (self.steps >> levels)
        y = math.sqrt(-math.expm1(-2 * h) / 2) * self._drawn(COARSEST, self.steps >> levels)
        shift = 1
        while shift < len(y):  # Y_k = sum_j e^{-(k - j) h} (transition j), by doubling
            y[shift:] += math.exp(-h * shift) * y[:-shift].clone()
            shift *= 2
        y = torch.cat([torch.zeros_like(y[:1]), y])
        for level in range(levels):
            h /= 2
            between = (y[1:] + y[:-1]) / (2 * math.cosh(h)) if h < 700 else torch.zeros_like(y[1:])
            between += math.sqrt(math.tanh(h) / 2) * self._drawn(FINER + level, len(between))
            finer = torch.empty(2 * len(y) - 1, *y.shape[1:], dtype=y.dtype)
            finer[::2], finer[1::2] = y, between
            y = finer
        return y

    def _drawn(self, stream: int, count: int) -> Float[Tensor, "m h d d"]:
        """dW/sqrt(dt) for `count` intervals and all heads."""
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, stream])))
        normal = torch.from_numpy(generator.standard_normal((self.heads, count, self.d, self.d)))
        return ((normal + normal.mT) / 2).transpose(0, 1).contiguous()

    def _drawn_start(self) -> Float[Tensor, "h d d"]:
        """Z + Z^T."""
        return 2 * self._drawn(START, 1)[0]
