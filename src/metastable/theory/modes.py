"""Growth of density modes of the uniform state for V = B = I: where clusters come from once tokens sit on E."""

from __future__ import annotations

import math

import numpy as np

from metastable.arguments import flag, integer, number
from metastable.errors import InvalidInput
from metastable.theory.laplace import bessel_ratio, log_partition_uniform, log_scaled_bessel

LARGEST_MODE = 10**8
"""Largest degree and dimension of a mode; the orders of the Bessel functions are exact far beyond it."""
LARGEST_BETA = 1e14
"""Largest inverse temperature: its fastest mode, of degree sqrt(2 beta), is below LARGEST_MODE."""
LARGEST_EXPONENT = 709.0
"""Largest whole x for which e^x is a number in double precision."""
FEW_FACTORS = 400
"""Up to this degree the ratio of Bessel functions is a product of ratios of neighbours, exact to rounding."""


def growth_rate(k: int, beta: float, d: int = 2, normalized: bool = True) -> float:
    """k(k+d-2) I_{k+d/2-1}(beta)/(beta I_{d/2-1}(beta)): rate of degree-k modes of the uniform law (B6, G3).

    normalized=False gives the unnormalised flow, the same times E e^{beta u}; on the circle k^2 I_k(beta)/beta.
    A dominant space of dimension d with M = l1 there scales the rate by l1 (G1).

    >>> round(growth_rate(6, 20.0), 7)
    0.7201054
    """
    k = integer(k, "k", least=0, most=LARGEST_MODE)
    d = integer(d, "d", least=2, most=LARGEST_MODE)
    beta = number(beta, "beta", least=0.0, most=LARGEST_BETA)
    normalized = flag(normalized, "normalized")
    if k == 0:
        return 0.0
    if beta == 0:
        # I_{k+nu}(b)/(b I_nu(b)) -> (b/2)^{k-1} Gamma(nu+1)/(2 Gamma(k+nu+1)): only k = 1 survives.
        return (d - 1) / d if k == 1 else 0.0
    rate = k * (k + d - 2) * _decline(k, beta, d) / beta
    if normalized or rate == 0:
        return rate
    exponent = log_partition_uniform(d, beta)
    if exponent > LARGEST_EXPONENT:
        raise InvalidInput(f"the unnormalised rate, which grows like e^beta, overflows for beta = {beta:g}")
    return rate * math.exp(exponent)


def _decline(k: int, beta: float, d: int) -> float:
    """I_{k+nu}(beta)/I_nu(beta), nu = d/2 - 1: a product of ratios of neighbours, which stays finite for any beta.

    Of many neighbours the logarithms of the two ends are enough.
    """
    if k <= FEW_FACTORS:
        return math.prod(bessel_ratio(d + 2 * j, beta) for j in range(k))
    far, near = (float(log_scaled_bessel(nu, np.array(beta))) for nu in (k + d / 2 - 1, d / 2 - 1))
    return math.exp(far - near)


def fastest_mode(beta: float, d: int = 2) -> tuple[int, float]:
    """(k, rate) of the fastest growing mode of the softmax flow; rate -> 2/e, k(k+d-2) ~ 2 beta (G1, G3).

    >>> fastest_mode(20.0)[0]
    6
    """
    d = integer(d, "d", least=2, most=LARGEST_MODE)
    beta = number(beta, "beta", least=0.0, most=LARGEST_BETA)
    # The rate rises to one maximum and falls from there: halve the range of k by the slope in its middle.
    low, high = 1, math.ceil(2 * math.sqrt(2 * beta + d)) + 2
    while low < high:
        k = (low + high) // 2
        low, high = (k + 1, high) if growth_rate(k + 1, beta, d) > growth_rate(k, beta, d) else (low, k)
    return low, growth_rate(low, beta, d)


def clustering_time(n: int, beta: float, d: int = 2, l1: float = 1.0) -> float:
    """ln(sqrt(n))/(l1 max rate): when the noise of n iid tokens on E has grown to clusters (G2, up to O(1))."""
    n = integer(n, "n", least=1, most=2**53)
    rate = number(l1, "l1") * fastest_mode(beta, d)[1]
    return math.inf if rate <= 0 else 0.5 * math.log(n) / rate
