"""Equiangular tokens <x_i, x_j> = g, V = B = I: n tokens reduce to one equation for g [arXiv:2312.10794]."""

from __future__ import annotations

import math

from metastable.attention.attend import check_beta
from metastable.errors import InvalidInput

LARGEST_EXPONENT = 709.0
"""Largest whole x for which e^x is a number in double precision (the limit is 709.78)."""
LARGEST_DEPTH = 700.0
"""Largest u = -log(1 - g) that is looked at: 1 - g = e^{-u} is then about to leave the range of numbers."""


def speed(g: float, n: int, beta: float, normalized: bool = True) -> float:
    """g' = 2 e^{beta g}(1-g)((n-1)g+1)/(e^beta + (n-1)e^{beta g}), the softmax flow (B1).

    Unnormalised: g' = (2/n) e^{beta g}(1-g)((n-1)g+1).
    """
    _check(g, n, beta)
    shape = (1 - g) * ((n - 1) * g + 1)
    if normalized:
        # Divided by e^{beta (1-g)}, which overflows for cold tokens: their speed becomes small, or 0 at last.
        small = math.exp(-beta * (1 - g))
        return 2 * shape * small / (1 + (n - 1) * small)
    if beta * g > LARGEST_EXPONENT:
        raise InvalidInput(
            f"the unnormalised speed e^(beta g) overflows for beta g > {LARGEST_EXPONENT:g}, got {beta * g:g}"
        )
    return 2 / n * math.exp(beta * g) * shape


def overlap_at_zero_beta(t: float, n: int) -> float:
    """g(t) = (e^{2t}-1)/(e^{2t}+n-1) for beta = 0 and g(0) = 0 (B2).

    >>> round(overlap_at_zero_beta(1.0, 2), 12) == round(math.tanh(1.0), 12)
    True
    """
    return -math.expm1(-2 * t) / (1 + (n - 1) * math.exp(-2 * t))


def travel_time(end: float, n: int, beta: float, start: float = 0.0, normalized: bool = True) -> float:
    """t(g) = int dg/g' from `start` to `end` (B4), start < end < 1.

    >>> round(travel_time(0.5, 32, 4.0), 6)
    3.431732
    """
    _check(start, n, beta)
    if not start <= end < 1:
        raise InvalidInput(f"the end overlap must lie in [start, 1), got {end} with start {start}")
    if speed(start, n, beta, normalized) == 0 and start < end:
        raise InvalidInput(
            f"the overlap does not move from {start:g} within the range of numbers: beta = {beta:g} is too large "
            "or the start is a point of rest"
        )
    from scipy import integrate

    # 1-g = e^{-u} turns the approach to consensus into a straight line.
    value, _ = integrate.quad(
        lambda u: math.exp(-u) / speed(-math.expm1(-u), n, beta, normalized),
        -math.log1p(-start),
        -math.log1p(-end),
        epsabs=0,
        epsrel=1e-12,
        limit=400,
    )
    return value


def overlap(t: float, n: int, beta: float, start: float = 0.0, normalized: bool = True) -> float:
    """g(t), the inverse of `travel_time`."""
    _check(start, n, beta)
    if t < 0:
        raise InvalidInput(f"t must be >= 0, got {t}")
    if t == 0:
        return start
    from scipy import optimize

    low = high = -math.log1p(-start)
    while travel_time(-math.expm1(-(high + 1)), n, beta, start, normalized) < t and high < LARGEST_DEPTH:
        high += 1
    u = optimize.brentq(
        lambda v: travel_time(-math.expm1(-v), n, beta, start, normalized) - t,
        low,
        high + 1,
        xtol=1e-14,
        rtol=1e-14,
    )
    return -math.expm1(-u)


def late_rate(beta: float, normalized: bool = True) -> float:
    """Exponent of 1-g near consensus: 2 (softmax), 2 e^beta (unnormalised) (B3)."""
    check_beta(beta)
    if not normalized and beta > LARGEST_EXPONENT:
        raise InvalidInput(
            f"the unnormalised rate 2 e^beta overflows for beta > {LARGEST_EXPONENT:g}, got {beta:g}"
        )
    return 2.0 if normalized else 2 * math.exp(beta)


def _check(g: float, n: int, beta: float) -> None:
    check_beta(beta)
    if n < 2:
        raise InvalidInput(f"equiangular tokens need n >= 2, got {n}")
    if not -1 / (n - 1) <= g <= 1:
        raise InvalidInput(f"{n} equiangular tokens have overlaps in [{-1 / (n - 1):.4g}, 1], got {g}")
