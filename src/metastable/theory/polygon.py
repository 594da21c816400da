"""Equal clusters at the corners of a regular polygon on the circle, V = B = I: how their displacements grow."""

from __future__ import annotations

import math

from metastable.arguments import flag, integer, number

LARGEST_BETA = 700.0
"""Largest |beta|: e^|beta| is a number."""
MOST_CLUSTERS = 2**20
"""Most corners that are summed over."""


def polygon_rate(mode: int, corners: int, beta: float, normalized: bool = True) -> float:
    """(1/k) sum_j h'(2 pi j/k)(cos(2 pi m j/k) - 1)/Z: rate of displacements cos(2 pi m i/k) of k clusters (B7).

    h'(phi) = e^{beta cos phi}(cos phi - beta sin^2 phi) is the slope of the pull between two tokens; Z = (1/k)
    sum_j e^{beta cos(2 pi j/k)} for the softmax flow and 1 for the unnormalised one. beta may be negative. Three
    corners have (1/2 + 3 beta/4) e^{-beta/2}, so that they are stable for beta < -2/3; on the circle only, because
    in higher dimension all of them together leave its plane.

    >>> round(polygon_rate(1, 3, -2 / 3), 12)
    0.0
    """
    mode, corners, beta = _checked(mode, corners, beta)
    turned = (2 * math.pi * j / corners for j in range(1, corners))
    total = sum(_slope(phi, beta) * (math.cos(mode * phi) - 1) for phi in turned)
    return total / corners / _partition(corners, beta, flag(normalized, "normalized"))


def token_rate(corners: int, beta: float, normalized: bool = True) -> float:
    """-(1/k) sum_j h'(2 pi j/k)/Z: rate at which one token, of no mass, leaves its corner of the polygon (B7).

    >>> token_rate(3, -2 / 3) < 0
    True
    """
    _, corners, beta = _checked(1, corners, beta)
    total = sum(_slope(2 * math.pi * j / corners, beta) for j in range(corners))
    return -total / corners / _partition(corners, beta, flag(normalized, "normalized"))


def _slope(phi: float, beta: float) -> float:
    return math.exp(beta * math.cos(phi)) * (math.cos(phi) - beta * math.sin(phi) ** 2)


def _partition(corners: int, beta: float, normalized: bool) -> float:
    if not normalized:
        return 1.0
    return sum(math.exp(beta * math.cos(2 * math.pi * j / corners)) for j in range(corners)) / corners


def _checked(mode: int, corners: int, beta: float) -> tuple[int, int, float]:
    return (
        integer(mode, "mode", least=0, most=MOST_CLUSTERS),
        integer(corners, "corners", least=2, most=MOST_CLUSTERS),
        number(beta, "beta", least=-LARGEST_BETA, most=LARGEST_BETA),
    )
