"""What tokens at the antipode do to synchronisation, V = B = I: rates of the mean field and of pairs of clusters.

Mass near the antipode of the cluster that forms is slow to leave; a density always has some there, finitely many
tokens have none after a while. Source of the setting: [arXiv:2504.14697]; the formulas are ours.
"""

from __future__ import annotations

import math

from metastable.arguments import flag, integer, number
from metastable.errors import InvalidInput
from metastable.theory.equiangular import LARGEST_COUNT, LARGEST_EXPONENT, late_rate

LARGEST_DIMENSION = 2**53
"""Largest dimension that a float holds exactly."""


def synchronisation_rate(d: int, beta: float, normalized: bool = True) -> float:
    """1 - R ~ e^{-rt} of a density, R = |E[x]|: r = min(2, d-1), unnormalised min(2 e^beta, (d-1) e^{-beta})
    (Q2, Q3).

    Tokens leave the antipode at the rate 1 (unnormalised e^{-beta}) and so keep the mass e^{-(d-1)t} there, while
    1 - R inside the cluster falls at the rate 2 (2 e^beta). Where both agree, as on S^2, it is t e^{-rt} (Q6).

    >>> synchronisation_rate(2, 0.5), synchronisation_rate(8, 0.5)
    (1.0, 2.0)
    """
    d, beta, normalized = (
        integer(d, "d", least=2, most=LARGEST_DIMENSION),
        _beta(beta),
        flag(normalized, "normalized"),
    )
    return min(late_rate(beta, normalized), (d - 1) * escape_rate(beta, 0.0, normalized))


def escape_rate(beta: float, mass: float = 0.0, normalized: bool = True) -> float:
    """Rate at which tokens leave the antipode -e of a cluster at e while the mass a is still at -e (Q8).

    -tanh(beta - beta_c), beta_c = (1/2) ln((1-a)/a); unnormalised (1-a) e^{-beta} - a e^beta. Below zero tokens
    gather at -e, too, and a density that is symmetric about the axis ends as two atoms.

    >>> escape_rate(3.0), escape_rate(1.0, 0.5) == -math.tanh(1.0)
    (1.0, True)
    """
    beta, mass, normalized = _beta(beta), number(mass, "mass", least=0.0, most=1.0), flag(normalized, "normalized")
    if normalized:
        return -math.tanh(beta - critical_beta(mass))
    if mass > 0 and beta > LARGEST_EXPONENT:
        raise InvalidInput(f"the unnormalised rate overflows for beta > {LARGEST_EXPONENT:g}, got {beta:g}")
    return (1 - mass) * math.exp(-beta) - (mass * math.exp(beta) if mass > 0 else 0.0)


def critical_beta(mass: float) -> float:
    """beta_c = (1/2) ln((1-a)/a): above it the mass a at -e holds itself together against 1-a at e (Q8).

    >>> critical_beta(0.5), critical_beta(0.0)
    (0.0, inf)
    """
    mass = number(mass, "mass", least=0.0, most=1.0)
    if mass in (0.0, 1.0):
        return math.inf if mass == 0 else -math.inf
    return 0.5 * (math.log1p(-mass) - math.log(mass))


def tilting_rate(beta: float, mass: float = 0.5, normalized: bool = True) -> float:
    """Rate at which two antipodal clusters of masses a and 1-a begin to close up, once tilted (Q5).

    w(a) + w(1-a), w(a) = a e^{-beta}/(a e^{-beta} + (1-a) e^beta) the attention of a cluster to the other; for a
    balanced pair 2/(1 + e^{2 beta}). Unnormalised e^{-beta} whatever a is.

    >>> round(tilting_rate(1.0) * (1 + math.exp(2)), 12)
    2.0
    """
    beta, mass = _beta(beta), number(mass, "mass", above=0.0, below=1.0)
    if not flag(normalized, "normalized"):
        return math.exp(-beta)
    odds = 2 * critical_beta(mass)
    return _share(-odds - 2 * beta) + _share(odds - 2 * beta)


def last_departure(n: int, d: int) -> float:
    """ln(n)/(d-1): when the last of n tokens leaves the antipode at beta = 0 or under softmax, up to O(1) (Q7).

    >>> last_departure(1000, 2) == math.log(1000)
    True
    """
    n = integer(n, "n", least=1, most=LARGEST_COUNT)
    return math.log(n) / (integer(d, "d", least=2, most=LARGEST_DIMENSION) - 1)


def _share(log_odds: float) -> float:
    """1/(1 + e^{-log_odds}), which neither overflows nor loses a small share."""
    small = math.exp(-abs(log_odds))
    return (small if log_odds < 0 else 1.0) / (1 + small)


def _beta(beta: float) -> float:
    return number(beta, "beta", least=0.0)
