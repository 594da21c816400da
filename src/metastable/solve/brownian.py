"""`Brownian`: the increments of a Brownian motion over equal steps, from a seed and the number of the step alone.

The steps h = c/2^l are the leaves of binary trees whose roots are intervals of length c; every node draws from a
stream of its own, that of a counter: an interval of length r with increment D has the halves D/2 +- sqrt(r)/2 Z.
Hence a run that was killed meets the same noise again, in any order and number of threads; halving the step refines
the same path; and inside a step the tree goes on, down to any time between.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

ROOT = 3
"""Intervals at the roots are between 4 and 8 long: steps m 2^-j < 8 of one m in [1/2, 1) are steps of one path."""
FINEST = 30
"""Bisections of a step after which the path is straight: a part in 1e9 of it."""
FRESH = 2**32
"""Stream, beside those of the levels, of the normals that a step has for itself."""


class Brownian:
    """W(t_k + v h) - W(t_k + u h) of a Brownian motion of this shape, t_k = k h, for 0 <= u <= v <= 1.

    The first entries of a larger shape are those of a smaller one where all but the first axis agree.

    >>> coarse, fine = (Brownian(7, step, (2,)) for step in (0.1, 0.05))
    >>> bool((coarse.increment(3) - fine.increment(6) - fine.increment(7)).abs().max() < 1e-15)
    True
    """

    def __init__(self, seed: int, step: float, shape: tuple[int, ...]) -> None:
        self.step, self.shape = step, shape
        mantissa, exponent = math.frexp(step)
        self.levels = max(ROOT - exponent, 0)
        self.length = math.ldexp(mantissa, max(ROOT, exponent))
        sign = [1, -seed] if seed < 0 else [0, seed]
        self._key = np.random.SeedSequence(sign).generate_state(2, np.uint64)
        self._last: dict[int, tuple[int, Tensor]] = {}

    def increment(self, k: int, u: float = 0.0, v: float = 1.0) -> Float[Tensor, "..."]:
        """The increment over step k, or over the part of it from u to v."""
        if (u, v) == (0.0, 1.0):
            return self._node(self.levels, k)
        return self._within(k, v) - self._within(k, u)

    def fresh(self, k: int, shape: tuple[int, ...]) -> Float[Tensor, "..."]:
        """Standard normals of step k that are no part of the path."""
        return self._normal(FRESH, k, shape)

    def _within(self, k: int, u: float) -> Tensor:
        """W(t_k + u h) - W(t_k)."""
        total, node, length = torch.zeros(self.shape, dtype=torch.float64), self._node(self.levels, k), self.step
        for level in range(self.levels + 1, self.levels + FINEST + 1):
            if u in (0.0, 1.0):
                break
            left, right = self._halves(node, length, level, k)
            length, k, u = length / 2, 2 * k + (u >= 0.5), 2 * u
            if u >= 1.0:
                total, node, u = total + left, right, u - 1.0
            else:
                node = left
        return total + u * node

    def _node(self, level: int, index: int) -> Tensor:
        """The increment over an interval of this level; those on the way to the last one are remembered."""
        known = self._last.get(level)
        if known is not None and known[0] == index:
            return known[1]
        if level == 0:
            value = math.sqrt(self.length) * self._normal(0, index, self.shape)
        else:
            parent = self._node(level - 1, index // 2)
            value = self._halves(parent, math.ldexp(self.length, 1 - level), level, index // 2)[index % 2]
        self._last[level] = index, value
        return value

    def _halves(self, value: Tensor, length: float, level: int, index: int) -> tuple[Tensor, Tensor]:
        """The increments over both halves of interval `index` of the level above."""
        bend = math.sqrt(length) / 2 * self._normal(level, index, self.shape)
        return value / 2 + bend, value / 2 - bend

    def _normal(self, level: int, index: int, shape: tuple[int, ...]) -> Tensor:
        counter = np.array([0, index, level, 0], dtype=np.uint64)
        generator = np.random.Generator(np.random.Philox(key=self._key, counter=counter))
        return torch.from_numpy(generator.standard_normal(shape))
