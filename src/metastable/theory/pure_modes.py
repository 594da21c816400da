"""Pure modes: all tokens at +-e_p, an eigenvector of V = V^T = Q^T K; which of them are stable [arXiv:2604.26085].

n_+ tokens at e_p, n_- at -e_p, L = l_p, r = n_+/n_-:  phi_+- = L tanh(beta L +- ln(r)/2),  2 a_+- - 1 = phi_+-/L.
Rates of small disturbances: -phi_+- inside a group of two and more, and for every other eigenvalue l_k those of
    [[l_k a_+ - phi_+, l_k (1 - a_+)], [l_k (1 - a_-), l_k a_- - phi_-]],      or l_k - L if all tokens agree   (P6)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from metastable.arguments import OneLine, integer, number
from metastable.errors import InvalidInput
from metastable.theory.selection import LARGEST, read_eigenvalues

MOST_TOKENS = 2**53
"""Largest group: a float holds its size exactly."""
MOST_NUMBERS = 2**24
"""Largest table of points that a mode writes out, 128 MiB."""


@dataclass(frozen=True, repr=False)
class PureMode(OneLine):
    """`plus` tokens at e_p and `minus` at -e_p, p = `axis`, at inverse temperature beta.

    eigenvalues: a row of them, counted by `axis` as they stand, or a symmetric matrix, counted from its largest.

    >>> mode = PureMode((1.251, -1.614, -2.137), axis=0, plus=4, minus=1, beta=0.537)
    >>> mode.stable, mode.published, round(mode.growth, 3)  # a singleton: the published form does not apply
    (True, False, -0.72)
    """

    eigenvalues: tuple[float, ...]
    axis: int
    plus: int
    minus: int
    beta: float

    def __init__(self, eigenvalues: Any, axis: int, plus: int, minus: int, beta: float) -> None:
        values = tuple(float(value) for value in read_eigenvalues(eigenvalues))
        object.__setattr__(self, "eigenvalues", values)
        object.__setattr__(self, "axis", integer(axis, "axis", least=0, most=len(values) - 1))
        object.__setattr__(self, "plus", integer(plus, "plus", least=0, most=MOST_TOKENS))
        object.__setattr__(self, "minus", integer(minus, "minus", least=0, most=MOST_TOKENS))
        object.__setattr__(self, "beta", number(beta, "beta", least=0.0, most=LARGEST))
        if self.plus + self.minus == 0:
            raise InvalidInput("a pure mode needs at least one token, got plus = minus = 0")

    @property
    def value(self) -> float:
        """L, the eigenvalue of the axis."""
        return self.eigenvalues[self.axis]

    @property
    def split(self) -> bool:
        """Whether there are tokens on both sides."""
        return self.plus > 0 and self.minus > 0

    @property
    def log_ratio(self) -> float:
        """ln(n_+/n_-) of a split mode, infinite where all tokens agree."""
        if not self.split:
            return math.inf if self.plus else -math.inf
        return math.log(self.plus) - math.log(self.minus)

    @property
    def tilts(self) -> tuple[float, float]:
        """(2 a_+ - 1, 2 a_- - 1): what a token of either group attends on its own side less what on the other."""
        if not self.split:
            return (1.0, -1.0) if self.plus else (-1.0, 1.0)
        return tilts(self.beta * self.value, self.log_ratio)

    @property
    def pulls(self) -> tuple[float, float]:
        """(phi_+, phi_-): the rate at which two tokens of one group approach each other."""
        plus, minus = self.tilts
        return self.value * plus, self.value * minus

    @property
    def inner_rates(self) -> tuple[float, ...]:
        """-phi of every group of two and more: how fast tokens of one group part."""
        groups = zip((self.plus, self.minus), self.pulls, strict=True)
        return tuple(0.0 - pull for size, pull in groups if size >= 2)

    @property
    def outer_rates(self) -> tuple[float, ...]:
        """Rates of disturbances along the other eigenvectors that move a group as one."""
        others = (value for k, value in enumerate(self.eigenvalues) if k != self.axis)
        return tuple(rate for other in others for rate in self._between(other))

    @property
    def rates(self) -> tuple[float, ...]:
        """The different rates of small disturbances, the largest first."""
        return tuple(sorted(self.inner_rates + self.outer_rates, reverse=True))

    @property
    def growth(self) -> float:
        """The largest of the rates: the mode is left like e^{growth t}, or approached."""
        return self.rates[0]

    @property
    def stable(self) -> bool:
        """Whether every small disturbance decays."""
        return self.growth < 0

    @property
    def published(self) -> bool:
        """The published closed form; it says what `stable` says where no group is a singleton.

        All agree: L > 0 and l_k < L. Split: |L| > |ln r|/(2 beta), and l_k < L sigma for L > 0, L < l_k < L sigma
        for L < 0, with sigma = `split_factor`. Of a singleton it asks that two of its tokens approach each other.
        """
        others = [value for k, value in enumerate(self.eigenvalues) if k != self.axis]
        if not self.split:
            return self.value > 0 and max(others) < self.value
        exponent = self.beta * self.value
        if exponent == 0 or 2 * abs(exponent) <= abs(self.log_ratio):
            return False
        most = self.value * _factor(exponent, self.log_ratio)
        return max(others) < most and (self.value > 0 or min(others) > self.value)

    @property
    def published_applies(self) -> bool:
        """Whether every group that is not empty has at least two tokens."""
        return 1 not in (self.plus, self.minus)

    def points(self) -> np.ndarray:
        """The tokens, rows of +-e_p in the eigenbasis."""
        n, d = self.plus + self.minus, len(self.eigenvalues)
        if n * d > MOST_NUMBERS:
            raise InvalidInput(f"the points of a mode are at most {MOST_NUMBERS} numbers, got {n} tokens in R^{d}")
        x = np.zeros((n, d))
        x[: self.plus, self.axis], x[self.plus :, self.axis] = 1.0, -1.0
        return x

    def _between(self, other: float) -> list[float]:
        """The eigenvalues of the matrix of P6 for another eigenvalue of V."""
        if not self.split:
            return [other - self.value]
        plus, minus = self.tilts
        a, b = (1 + plus) / 2, (1 + minus) / 2
        half = (other * (a + b) - self.value * (plus + minus)) / 2
        skew = (other * (a - b) - self.value * (plus - minus)) / 2
        reach = math.hypot(skew, other * math.sqrt((1 - plus) * (1 - minus)) / 2)
        # The determinant in factors, so that the rate that is nearly zero keeps its sign.
        determinant = (other - self.value) * (other * (plus + minus) / 2 - self.value * plus * minus)
        if reach == 0 or half == 0:
            return [half + reach, half - reach]
        far = half + math.copysign(reach, half)
        return [far, determinant / far]


def tilts(exponent: float, log_ratio: float) -> tuple[float, float]:
    """tanh(beta L +- ln(r)/2) for exponent = beta L."""
    return math.tanh(exponent + log_ratio / 2), math.tanh(exponent - log_ratio / 2)


def split_factor(beta: float, value: float, ratio: float) -> float:
    """sigma = (c - r)(c r - 1)/(r (c^2 - 1)), c = e^{2 beta L}, r = n_+/n_-: the harmonic mean of the tilts (P7).

    A split mode with groups of two and more needs l_k < L sigma; sigma = tanh(beta L) for equal groups.

    >>> split_factor(1.5, 2.0, 1.0) == math.tanh(3.0)
    True
    """
    beta = number(beta, "beta", above=0.0, most=LARGEST)
    value = number(value, "value", least=-LARGEST, most=LARGEST)
    ratio = number(ratio, "ratio", least=1 / LARGEST, most=LARGEST)
    if beta * value == 0:
        raise InvalidInput(f"sigma is not defined for an eigenvalue 0, got value = {value:g} at beta = {beta:g}")
    return _factor(beta * value, math.log(ratio))


def _factor(exponent: float, log_ratio: float) -> float:
    """2 sinh(u) sinh(v)/sinh(u + v), u, v = beta L +- ln(r)/2: the same without cancellation or overflow."""
    u, v = exponent + log_ratio / 2, exponent - log_ratio / 2
    size = math.exp(max(0.0, abs(log_ratio) - 2 * abs(exponent)))
    sign = math.copysign(1.0, u) * math.copysign(1.0, v) * math.copysign(1.0, exponent)
    return sign * size * math.expm1(-2 * abs(u)) * math.expm1(-2 * abs(v)) / -math.expm1(-4 * abs(exponent))


def split_threshold(value: float, ratio: float) -> float:
    """beta = |ln r|/(2 |L|): from here on both groups of a split mode hold their tokens together (P8).

    >>> round(split_threshold(-2.0, 2.0), 6)  # three tokens, two against one
    0.173287
    """
    value = number(value, "value", least=-LARGEST, most=LARGEST)
    ratio = number(ratio, "ratio", least=1 / LARGEST, most=LARGEST)
    if value == 0:
        raise InvalidInput("the threshold of a split mode needs an eigenvalue that is not 0, got 0")
    return abs(math.log(ratio)) / (2 * abs(value))
