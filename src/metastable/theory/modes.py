"""Growth of density modes of the uniform state for V = B = I: where clusters come from once tokens sit on E."""

from __future__ import annotations

import math

from metastable.errors import InvalidInput
from metastable.theory.laplace import bessel_ratio, log_partition_uniform


def growth_rate(k: int, beta: float, d: int = 2, normalized: bool = True) -> float:
    """k(k+d-2) I_{k+d/2-1}(beta)/(beta I_{d/2-1}(beta)): rate of degree-k modes of the uniform law (B6, G3).

    normalized=False gives the unnormalised flow, the same times E e^{beta u}; on the circle k^2 I_k(beta)/beta.
    A dominant space of dimension d with M = l1 there scales the rate by l1 (G1).

    >>> round(growth_rate(6, 20.0), 7)
    0.7201054
    """
    if k < 0 or d < 2:
        raise InvalidInput(f"a mode needs k >= 0 and d >= 2, got k = {k}, d = {d}")
    if not beta >= 0:
        raise InvalidInput(f"beta must be >= 0, got {beta}")
    if k == 0:
        return 0.0
    if beta == 0:
        # I_{k+nu}(b)/(b I_nu(b)) -> (b/2)^{k-1} Gamma(nu+1)/(2 Gamma(k+nu+1)): only k = 1 survives.
        return (d - 1) / d if k == 1 else 0.0
    # The ratio I_{k+nu}/I_nu as a product of ratios of neighbours stays finite for any beta.
    ratio = math.prod(bessel_ratio(d + 2 * j, beta) for j in range(k))
    rate = k * (k + d - 2) * ratio / beta
    return rate if normalized else rate * math.exp(log_partition_uniform(d, beta))


def fastest_mode(beta: float, d: int = 2) -> tuple[int, float]:
    """(k, rate) of the fastest growing mode of the softmax flow; rate -> 2/e, k(k+d-2) ~ 2 beta (G1, G3).

    >>> fastest_mode(20.0)[0]
    6
    """
    candidates = range(1, math.ceil(2 * math.sqrt(2 * beta + d)) + 3)
    return max(((k, growth_rate(k, beta, d)) for k in candidates), key=lambda pair: pair[1])


def clustering_time(n: int, beta: float, d: int = 2, l1: float = 1.0) -> float:
    """ln(sqrt(n))/(l1 max rate): when the noise of n iid tokens on E has grown to clusters (G2, up to O(1))."""
    rate = l1 * fastest_mode(beta, d)[1]
    return math.inf if rate <= 0 else 0.5 * math.log(n) / rate
