"""Two clusters at an angle theta, V = B = I: the equation of theta and the time until they meet."""

from __future__ import annotations

import math

from metastable.arguments import flag, number
from metastable.errors import InvalidInput

LARGEST_BETA = 340.0
"""Largest inverse temperature: the time from the antipode, of order e^{2 beta}, is below the largest number."""


def closing_speed(
    angle: float, beta: float, first: float = 0.5, second: float = 0.5, normalized: bool = True
) -> float:
    """-theta' = (a_12 + a_21) sin theta, a_12 = m_2 e^{beta cos theta}/(m_1 e^beta + m_2 e^{beta cos theta}) (B10).

    first, second: the masses m_1 and m_2 of the clusters, as parts of the mass of all tokens; others are far. The
    unnormalised flow has -theta' = (m_1 + m_2) e^{beta cos theta} sin theta.

    >>> round(closing_speed(math.pi / 2, 0.0), 12)
    1.0
    """
    angle = number(angle, "the angle", least=0.0, most=math.pi)
    beta, first, second = _checked(beta, first, second)
    return _pull(angle, beta, first, second, flag(normalized, "normalized")) * math.sin(angle)


def _pull(angle: float, beta: float, first: float, second: float, normalized: bool) -> float:
    """-theta'/sin theta."""
    if not normalized:
        return (first + second) * math.exp(beta * math.cos(angle))
    weight = math.exp(-2 * beta * math.sin(angle / 2) ** 2)
    return second * weight / (first + second * weight) + first * weight / (second + first * weight)


def merging_time(
    start: float, end: float, beta: float, first: float = 0.5, second: float = 0.5, normalized: bool = True
) -> float:
    """int_end^start d theta/(-theta'): the time in which two clusters come from the angle `start` to `end` (B10).

    For large beta it is e^{beta (1 - cos start)}/(beta sin^2 start (m_1/m_2 + m_2/m_1)): exponentially long, and
    almost all of it is spent near the start.

    >>> round(merging_time(1.0, 0.1, 0.0), 12) == round(math.log(math.tan(0.5) / math.tan(0.05)), 12)
    True
    """
    start = number(start, "the start", above=0.0, below=math.pi)
    end = number(end, "the end", above=0.0)
    beta, first, second = _checked(beta, first, second)
    normalized = flag(normalized, "normalized")
    if end > start:
        raise InvalidInput(f"clusters come closer: the end must be an angle up to {start:g}, got {end:g}")
    from scipy import integrate

    # In u = log tan(theta/2), du = d theta/sin theta, the end of the merging is a straight line.
    value, _ = integrate.quad(
        lambda u: 1 / _pull(2 * math.atan(math.exp(u)), beta, first, second, normalized),
        math.log(math.tan(end / 2)),
        math.log(math.tan(start / 2)),
        epsabs=0,
        epsrel=1e-12,
        limit=400,
    )
    return value


def _checked(beta: float, first: float, second: float) -> tuple[float, float, float]:
    beta = number(beta, "beta", least=0.0, most=LARGEST_BETA)
    first, second = (number(m, "the mass of a cluster", above=0.0, below=1.0) for m in (first, second))
    if first + second > 1 + 1e-12:
        raise InvalidInput(f"two clusters have at most the mass 1 of all tokens, got {first + second:g}")
    return beta, first, second
