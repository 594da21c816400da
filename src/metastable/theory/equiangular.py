"""Equiangular tokens <x_i, x_j> = g, V = B = I: n tokens reduce to one equation for g [arXiv:2312.10794]."""

from __future__ import annotations

import math

from metastable.arguments import flag, integer, number
from metastable.errors import InvalidInput

LARGEST_EXPONENT = 709.0
"""Largest whole x for which e^x is a number in double precision (the limit is 709.78)."""
LARGEST_COUNT = 2**53
"""Largest number of tokens that a float holds exactly."""
LARGEST_DEPTH = 700.0
"""Largest u = -log(1 - g) that is looked at: 1 - g = e^{-u} is then about to leave the range of numbers."""


def speed(g: float, n: int, beta: float, normalized: bool = True) -> float:
    """g' = 2 e^{beta g}(1-g)((n-1)g+1)/(e^beta + (n-1)e^{beta g}), the softmax flow (B1).

    Unnormalised: g' = (2/n) e^{beta g}(1-g)((n-1)g+1).
    """
    g, n, beta = _checked(g, n, beta)
    return (1 - g) * _pull(1 - g, n, beta, flag(normalized, "normalized"))


def _pull(gap: float, n: int, beta: float, normalized: bool) -> float:
    """g'/(1-g) in terms of 1-g, which keeps its digits near consensus."""
    g = 1 - gap
    shape = max(0.0, (n - 1) * g + 1)
    if normalized:
        # Divided by e^{beta (1-g)}, which overflows for cold tokens: their speed becomes small, or 0 at last.
        small = math.exp(-beta * gap)
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
    t, n = number(t, "t", least=0.0), integer(n, "n", least=2, most=LARGEST_COUNT)
    return -math.expm1(-2 * t) / (1 + (n - 1) * math.exp(-2 * t))


def travel_time(end: float, n: int, beta: float, start: float = 0.0, normalized: bool = True) -> float:
    """t(g) = int dg/g' from `start` to `end` (B4), start < end < 1.

    >>> round(travel_time(0.5, 32, 4.0), 6)
    3.431732
    """
    start, n, beta = _checked(start, n, beta)
    end, normalized = number(end, "the end overlap"), flag(normalized, "normalized")
    if not start <= end < 1:
        raise InvalidInput(f"the end overlap must lie in [start, 1), got {end} with start {start}")
    return _time(-math.log1p(-start), -math.log1p(-end), n, beta, normalized)


def _time(low: float, high: float, n: int, beta: float, normalized: bool) -> float:
    """The time between two depths u = -log(1-g), in which the approach to consensus is a straight line."""
    if low < high and _pull(math.exp(-low), n, beta, normalized) == 0:
        start = -math.expm1(-low)
        raise InvalidInput(
            f"the overlap does not move from {start:g} within the range of numbers: beta = {beta:g} is too large "
            "or the start is a point of rest"
        )
    from scipy import integrate

    value, _ = integrate.quad(
        lambda u: 1 / _pull(math.exp(-u), n, beta, normalized), low, high, epsabs=0, epsrel=1e-12, limit=400
    )
    return value


def overlap(t: float, n: int, beta: float, start: float = 0.0, normalized: bool = True) -> float:
    """g(t), the inverse of `travel_time`; 1 where 1 - g is below the range of numbers."""
    start, n, beta = _checked(start, n, beta)
    t, normalized = number(t, "t", least=0.0), flag(normalized, "normalized")
    if t == 0 or start == 1:
        return start
    from scipy import optimize

    low = -math.log1p(-start)
    high, step = low, 1.0
    while high < LARGEST_DEPTH and _time(low, high, n, beta, normalized) < t:
        high, step = high + step, 2 * step
    if high >= LARGEST_DEPTH and _time(low, high, n, beta, normalized) < t:
        return 1.0
    u = optimize.brentq(lambda v: _time(low, v, n, beta, normalized) - t, low, high, xtol=1e-14, rtol=1e-14)
    return -math.expm1(-u)


def late_rate(beta: float, normalized: bool = True) -> float:
    """Exponent of 1-g near consensus: 2 (softmax), 2 e^beta (unnormalised) (B3)."""
    beta, normalized = number(beta, "beta", least=0.0), flag(normalized, "normalized")
    if not normalized and beta > LARGEST_EXPONENT:
        raise InvalidInput(
            f"the unnormalised rate 2 e^beta overflows for beta > {LARGEST_EXPONENT:g}, got {beta:g}"
        )
    return 2.0 if normalized else 2 * math.exp(beta)


def simplex_rates(n: int, beta: float, normalized: bool = True) -> tuple[float, float, float]:
    """Rates at which overlaps leave the simplex g = -1/(n-1), in units of b = e^{-beta/(n-1)}/Z (B9).

    2 n b when all overlaps are equal (needs d >= n); (n-2 + beta n/(n-1)) b n/(n-1) for changes u_i + u_j with
    sum u = 0; 2 beta b n/(n-1) for changes whose rows sum to zero (n >= 4). Z = e^beta + (n-1) e^{-beta/(n-1)} for
    the softmax flow, n for the unnormalised one. V = -I turns time around, so that repelled tokens reach the
    simplex at these rates, at the end at the least of them.

    >>> simplex_rates(4, 0.0)
    (2.0, 0.6666666666666666, 0.0)
    """
    _, n, beta = _checked(0.0, n, beta)
    small, stretch = math.exp(-beta * n / (n - 1)), n / (n - 1)
    b = small / (1 + (n - 1) * small) if flag(normalized, "normalized") else math.exp(-beta / (n - 1)) / n
    return 2 * n * b, (n - 2 + beta * stretch) * stretch * b, 2 * beta * stretch * b


def attention_on_others(g: float, n: int, beta: float) -> float:
    """(n-1) e^{beta g}/(e^beta + (n-1) e^{beta g}): what of its attention a token gives to the others (B8).

    Long contexts, beta = c ln n: it tends to 1 if c (1-g) < 1 and to 0 if c (1-g) > 1.

    >>> round(attention_on_others(0.5, 1001, 2 * math.log(1000)), 12)
    0.5
    """
    g, n, beta = _checked(g, n, beta)
    logit = math.log(n - 1) - beta * (1 - g)
    small = math.exp(-abs(logit))
    return 1 / (1 + small) if logit > 0 else small / (1 + small)


def _checked(g: float, n: int, beta: float) -> tuple[float, int, float]:
    beta, n = number(beta, "beta", least=0.0), integer(n, "n", least=2, most=LARGEST_COUNT)
    g = number(g, "the overlap")
    if not -1 / (n - 1) <= g <= 1:
        raise InvalidInput(f"{n} equiangular tokens have overlaps in [{-1 / (n - 1):.4g}, 1], got {g}")
    return g, n, beta
