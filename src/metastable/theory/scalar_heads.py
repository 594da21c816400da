"""Equiangular tokens <x_i, x_j> = g under heads M_h = m_h I: all of multi-head attention in one number.

x_i' = P_{x_i} (1/n) sum_h f_i^h with f_i^h = sum_j w(m_h <x_i, x_j>) m_h x_j keeps the tokens equiangular, and
g' = (2/n) (1-g) (1+(n-1)g) sum_h m_h w(m_h g), with w(s) = e^{beta s} [arXiv:2605.04279] or, for ReLU attention,
w(s) = max(s, 0). What is said of these flows here is metastable's own estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from metastable.arguments import integer, number, numbers, shown
from metastable.errors import InvalidInput

LARGEST_EXPONENT = 709.0
"""Largest whole x for which e^x is a number in double precision (the limit is 709.78)."""
LARGEST_COUNT = 2**53
"""Largest number of tokens or heads that a float holds exactly."""
LARGEST_STRENGTH = 1e100
"""Largest |m_h| and beta: their products, times e^{709} at most, stay numbers or are refused in words."""


def pull(overlap: float, beta: float, strengths: Sequence[float]) -> float:
    """K(g) = sum_h m_h e^{beta m_h g}: convex in the strengths m_h for beta g >= 0, m_h >= -2/(beta g) (V6).

    At one sum of strengths unequal heads pull harder than equal ones.

    >>> round(pull(0.5, 1.0, (1.5, 0.5)), 4), round(pull(0.5, 1.0, (1, 1)), 4)
    (3.8175, 3.2974)
    """
    g, beta = number(overlap, "the overlap", least=-1.0, most=1.0), _beta(beta)
    m = _strengths(strengths)
    _check_exponent(max(beta * strength * g for strength in m))
    return _pull(g, beta, m)


def _pull(g: float, beta: float, strengths: Sequence[float]) -> float:
    return sum(m * math.exp(beta * m * g) for m in strengths)


def speed(overlap: float, n: int, beta: float, strengths: Sequence[float] = (1.0,)) -> float:
    """g' = (2/n) (1-g) (1+(n-1)g) sum_h m_h e^{beta m_h g} (V3)."""
    g, n = _equiangular(overlap, n)
    return 2 / n * (1 - g) * (1 + (n - 1) * g) * pull(g, beta, strengths)


def travel_time(
    end: float, n: int, beta: float, strengths: Sequence[float] = (1.0,), *, start: float = 0.0
) -> float:
    """t = int dg/g' from `start` to `end` (V3); the heads must pull that way all along.

    >>> round(travel_time(0.5, 50, 1.0, start=0.1), 2), round(travel_time(0.5, 50, 1.0, start=0.01), 2)
    (0.79, 1.49)
    """
    first, n = _equiangular(start, n, "the start overlap")
    last, n = _equiangular(end, n, "the end overlap")
    beta, m = _beta(beta), _strengths(strengths)
    _check_exponent(max(beta * strength * g for strength in m for g in (first, last)))
    if first == last:
        return 0.0
    # K(g) increases with g (K' = beta sum m^2 e^{...}), so that its sign between the two is known from them.
    onward = min(_pull(g, beta, m) * math.copysign(1.0, last - first) for g in (first, last))
    if onward <= 0 or last in (1.0, -1 / (n - 1)) or first in (1.0, -1 / (n - 1)):
        raise InvalidInput(f"the overlap does not travel from {first:g} to {last:g} in a finite time")
    from scipy import integrate

    low, high = _depth(first, n), _depth(last, n)
    value, _ = integrate.quad(
        lambda u: 0.5 / _pull(_overlap(u, n), beta, m), low, high, epsabs=0, epsrel=1e-12, limit=400
    )
    return float(value)


def _depth(g: float, n: int) -> float:
    """u = log((1+(n-1)g)/(1-g)), in which (2/n) (1-g) (1+(n-1)g) d/dg is 2 d/du."""
    return math.log1p((n - 1) * g) - math.log1p(-g)


def _overlap(u: float, n: int) -> float:
    return math.expm1(u) / (math.exp(u) + n - 1) if u < 0 else -math.expm1(-u) / (1 + (n - 1) * math.exp(-u))


def relu_travel_time(end: float, n: int, *, start: float) -> float:
    """Time from `start` > 0 to `end` < 1 of g' = (2/n) (1-g) (1+(n-1)g) g, the ReLU flow with one head M = I (V8).

    t = (n/2) [ln g - (1/n) ln(1-g) - ((n-1)/n) ln(1+(n-1)g)], the difference between both ends: (n/2) ln(1/start)
    while (n-1) start << 1, and 1/(2 start) while 1/n << start << 1.

    >>> round(relu_travel_time(0.5, 50, start=0.1), 2), round(relu_travel_time(0.5, 50, start=0.01), 2)
    (4.67, 28.56)
    """
    n = integer(n, "n", least=2, most=LARGEST_COUNT)
    first = number(start, "the start overlap", above=0.0, below=1.0)
    last = number(end, "the end overlap", least=first, below=1.0)
    rest = (math.log1p(-first) - math.log1p(-last)) / n
    slow = (n - 1) / n * (math.log1p((n - 1) * last) - math.log1p((n - 1) * first))
    return n / 2 * (math.log(last / first) + rest - slow)


def radial_shadow(overlap: float, n: int, beta: float, strength: float = 1.0) -> float:
    """<x_i, f_i^h> = m (e^{beta m} + (n-1) g e^{beta m g}): what a head pulls along the token itself (V4)."""
    g, n = _equiangular(overlap, n)
    beta, m = _beta(beta), _strength(strength)
    _check_exponent(max(beta * m, beta * m * g))
    return m * (math.exp(beta * m) + (n - 1) * g * math.exp(beta * m * g))


def tangential_square(overlap: float, n: int, beta: float, strength: float = 1.0) -> float:
    """|P f_i^h|^2 = m^2 e^{2 beta m g} (n-1) (1-g) (1+(n-1)g): the square of what moves the token (V4)."""
    g, n = _equiangular(overlap, n)
    beta, m = _beta(beta), _strength(strength)
    _check_exponent(2 * beta * m * g)
    return m * m * math.exp(2 * beta * m * g) * (n - 1) * (1 - g) * (1 + (n - 1) * g)


def dominance_threshold(n: int, heads: int, overlap: float = 0.0) -> float:
    """beta_RD: |P f|^2 >= (H-1) <x, f>^2 for H equal heads, m = 1, exactly if beta <= beta_RD (V4).

    beta_RD = ln( sqrt((n-1)(1-g)(1+(n-1)g)/(H-1)) - (n-1)g ) / (1-g), and (1/2) ln((n-1)/(H-1)) at g = 0. Below 0
    no beta is small enough; -inf where the logarithm has no argument; inf for one head, which has no rival.

    >>> round(dominance_threshold(40, 3, 0.1), 8)
    1.86827927
    """
    g, n = _equiangular(overlap, n)
    heads = integer(heads, "heads", least=1, most=LARGEST_COUNT)
    if heads == 1:
        return math.inf
    if g == 1:
        return -math.inf
    argument = math.sqrt(max(0.0, (n - 1) * (1 - g) * (1 + (n - 1) * g)) / (heads - 1)) - (n - 1) * g
    return math.log(argument) / (1 - g) if argument > 0 else -math.inf


def critical_beta(attraction: float, repulsion: float, overlap: float) -> float:
    """beta_c = ln(mu/m)/((m+mu) g): heads m > 0 > -mu let the overlap g > 0 grow exactly if beta > beta_c (V5).

    beta_c < 0 for mu < m: then it grows at every beta.

    >>> critical_beta(1.0, 2.0, 0.5) == math.log(2) / 1.5
    True
    """
    m = number(attraction, "attraction", above=0.0, most=LARGEST_STRENGTH)
    mu = number(repulsion, "repulsion", above=0.0, most=LARGEST_STRENGTH)
    g = number(overlap, "the overlap", above=0.0, most=1.0)
    product = (m + mu) * g
    critical = math.inf if product == 0 else (math.log(mu) - math.log(m)) / product
    if not math.isfinite(critical):
        raise InvalidInput(f"the critical beta overflows for attraction {m:g}, repulsion {mu:g} and overlap {g:g}")
    return critical


def _equiangular(overlap: float, n: int, name: str = "the overlap") -> tuple[float, int]:
    n = integer(n, "n", least=2, most=LARGEST_COUNT)
    g = number(overlap, name)
    if not -1 / (n - 1) <= g <= 1:
        raise InvalidInput(f"{name} of {n} equiangular tokens lies in [{-1 / (n - 1):.4g}, 1], got {shown(g)}")
    return g, n


def _beta(beta: float) -> float:
    return number(beta, "beta", least=0.0, most=LARGEST_STRENGTH)


def _strength(strength: float) -> float:
    return number(strength, "strength", least=-LARGEST_STRENGTH, most=LARGEST_STRENGTH)


def _strengths(strengths: Sequence[float]) -> list[float]:
    m = numbers(strengths, "strengths", least=-LARGEST_STRENGTH)
    if not m or max(m) > LARGEST_STRENGTH:
        raise InvalidInput(f"strengths must be one number <= {LARGEST_STRENGTH:g} per head, got {shown(m)}")
    return m


def _check_exponent(exponent: float) -> None:
    if exponent > LARGEST_EXPONENT:
        raise InvalidInput(f"the exponent beta m g overflows above {LARGEST_EXPONENT:g}, got {exponent:g}")
