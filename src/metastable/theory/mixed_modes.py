"""Mixed equilibria of spectral selection: three groups in the plane of two eigenvectors [arXiv:2604.26085].

m tokens at u and k each at q u +- sqrt(1 - q^2) v, V u = a u, V v = b v, rest where
    q [(a - b) e^{beta (b + (a - b) q^2)} + (a + b) e^{beta (-b + (a + b) q^2)}] + a (m/k) e^{beta a q} = 0     (P1)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from metastable.arguments import integer, number
from metastable.errors import InvalidInput, NotDefined

LARGEST_EXPONENT = 1e4
"""Largest |a| + |b| and beta (|a| + |b|): the search looks at about a quarter as many intervals, a second."""
NARROWEST = 2.0**-40
"""Intervals are halved down to this width; a root that is still not separated there is a double one."""
MOST_TOKENS = 2**20
"""Largest group: the points of an equilibrium are written out."""


@dataclass(frozen=True)
class _Balance:
    """f(q), the left side of P1, over the largest of its three terms; f and f' also on intervals."""

    a: float
    b: float
    beta: float
    ratio: float

    def value(self, q: float) -> float:
        """f(q) over a positive factor."""
        first, second, third = self._terms((q, q))
        top = max(first.most, second.most, third.most)
        return q * (first.lowest(top) + second.lowest(top)) + third.lowest(top)

    def enclosures(self, low: float, high: float) -> tuple[float, float, float, float]:
        """(min, max) of f and (min, max) of f' on [low, high], rounded outwards, over a common positive factor."""
        *pair, last = self._terms((low, high))
        top = max(term.most for term in (*pair, last))
        largest = max(abs(term.most) + abs(term.least) for term in (*pair, last) if term.sign)
        rounding = 8 * np.finfo(float).eps * (2 + largest)
        value, slope = last.range(top), _scaled(last.range(top), self.beta * self.a)
        size, steepness = _size(value), _size(slope)
        for term, factor in zip(pair, (self.a - self.b, self.a + self.b), strict=True):
            bend = _line(1.0, 2 * self.beta * factor, _square(low, high))
            parts = _product((low, high), term.range(top)), _product(bend, term.range(top))
            value, slope = _sum(value, parts[0]), _sum(slope, parts[1])
            size, steepness = size + _size(parts[0]), steepness + _size(parts[1])
        return (
            value[0] - rounding * size,
            value[1] + rounding * size,
            slope[0] - rounding * steepness,
            slope[1] + rounding * steepness,
        )

    def _terms(self, over: tuple[float, float]) -> tuple[_Term, _Term, _Term]:
        """(a - b) e^{..} and (a + b) e^{..}, which q multiplies, and a (m/k) e^{..}, on an interval of q."""
        a, b, beta = self.a, self.b, self.beta
        squares = _square(*over)
        return (
            _Term.of(a - b, _line(beta * b, beta * (a - b), squares)),
            _Term.of(a + b, _line(-beta * b, beta * (a + b), squares)),
            _Term.of(a * self.ratio, _line(0.0, beta * a, over)),
        )


@dataclass(frozen=True)
class _Term:
    """sign e^x for x between least and most; a factor 0 has x = -infinity, so that it never sets the scale."""

    sign: float
    least: float
    most: float

    @classmethod
    def of(cls, factor: float, exponents: tuple[float, float]) -> _Term:
        if factor == 0:
            return cls(0.0, -math.inf, -math.inf)
        size = math.log(abs(factor))
        return cls(math.copysign(1.0, factor), exponents[0] + size, exponents[1] + size)

    def lowest(self, top: float) -> float:
        return self.sign * math.exp(self.least - top)

    def range(self, top: float) -> tuple[float, float]:
        return _scaled((math.exp(self.least - top), math.exp(self.most - top)), self.sign)


def mixed_equilibria(a: float, b: float, beta: float, m: int = 1, k: int = 1) -> tuple[float, ...]:
    """All q in (-1, 1) at which the three groups rest (P1), increasing; empty where there are none.

    [-1, 1] is halved until f is of one sign or monotone on every interval, so that no root is lost; each is then
    bracketed and found to the last digits.

    >>> [round(q, 10) for q in mixed_equilibria(2.0, -3.0, 1.5)]
    [-0.9065249663, 0.0239051913, 0.800751966]
    """
    a, b = number(a, "a"), number(b, "b")
    beta = number(beta, "beta", least=0.0)
    m, k = integer(m, "m", least=1, most=MOST_TOKENS), integer(k, "k", least=1, most=MOST_TOKENS)
    if beta * (abs(a) + abs(b)) > LARGEST_EXPONENT or abs(a) + abs(b) > LARGEST_EXPONENT:
        raise InvalidInput(
            f"|a| + |b| and beta (|a| + |b|) must be <= {LARGEST_EXPONENT:g}, got {abs(a) + abs(b):g} at beta = "
            f"{beta:g}"
        )
    if a == 0:
        if b == 0 or beta == 0:
            raise NotDefined(f"every q is at rest for a = {a:g}, b = {b:g}, beta = {beta:g}")
        return (0.0,)
    balance = _Balance(a, b, beta, m / k)
    found: list[float] = []
    waiting = [(-1.0, 1.0)]
    while waiting:
        low, high = waiting.pop()
        least, most, falling, rising = balance.enclosures(low, high)
        if least > 0 or most < 0:
            continue
        monotone = falling > 0 or rising < 0
        if monotone:
            found += _only_root(balance, low, high)
        elif high - low <= NARROWEST:
            found.append((low + high) / 2)
        else:
            waiting += [((low + high) / 2, high), (low, (low + high) / 2)]
    return tuple(q for q in _joined(found) if -1 < q < 1)


def mixed_points(q: float, m: int = 1, k: int = 1) -> np.ndarray:
    """m rows (1, 0), then k each of (q, sqrt(1 - q^2)) and (q, -sqrt(1 - q^2)): coordinates along u and v.

    >>> mixed_points(0.6).round(12).tolist()
    [[1.0, 0.0], [0.6, 0.8], [0.6, -0.8]]
    """
    q = number(q, "q", least=-1.0, most=1.0)
    m, k = integer(m, "m", least=1, most=MOST_TOKENS), integer(k, "k", least=1, most=MOST_TOKENS)
    s = math.sqrt((1 - q) * (1 + q))
    return np.array([[1.0, 0.0]] * m + [[q, s]] * k + [[q, -s]] * k)


def _only_root(balance: _Balance, low: float, high: float) -> list[float]:
    """The root of f in an interval on which it is monotone, if there is one."""
    from scipy.optimize import brentq

    first, last = balance.value(low), balance.value(high)
    if first == 0 or last == 0:
        return [low if first == 0 else high]
    if (first > 0) == (last > 0):
        return []
    return [float(brentq(balance.value, low, high, xtol=1e-15, rtol=4 * np.finfo(float).eps))]


def _joined(roots: list[float]) -> list[float]:
    """Roots in order; those that neighbouring intervals share, and the parts of a double one, are one."""
    found: list[float] = []
    for q in sorted(roots):
        if not found or q - found[-1] > 4 * NARROWEST:
            found.append(q)
    return found


def _square(low: float, high: float) -> tuple[float, float]:
    ends = low * low, high * high
    return (0.0 if low <= 0 <= high else min(ends)), max(ends)


def _line(start: float, factor: float, over: tuple[float, float]) -> tuple[float, float]:
    """The range of start + factor x."""
    ends = start + factor * over[0], start + factor * over[1]
    return min(ends), max(ends)


def _scaled(over: tuple[float, float], factor: float) -> tuple[float, float]:
    return _line(0.0, factor, over)


def _product(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    corners = [x * y for x in one for y in other]
    return min(corners), max(corners)


def _sum(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return one[0] + other[0], one[1] + other[1]


def _size(over: tuple[float, float]) -> float:
    return max(abs(over[0]), abs(over[1]))
