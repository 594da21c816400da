"""What n tokens of context do to a token, against infinitely many: uniform context on S^{d-1}, V = B = I.

Without noise the token rests. Density modes of degree l of the context, noise of n tokens at first, grow with
sigma_l (`growth_rate`) and move the token; a change of the weights drives modes of degree 1 and 2 only. Source of
the setting: [arXiv:2605.16747]; the formulas are metastable's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import choice, integer, number
from metastable.errors import InvalidInput
from metastable.measure import as_tensor
from metastable.theory.laplace import bessel_ratio
from metastable.theory.modes import LARGEST_EXPONENT, growth_rate
from metastable.theory.tokens import read_times, tokens

LARGEST_BETA = 1e6
"""Largest inverse temperature: about 9 sqrt(beta) modes are summed one after the other."""
LARGEST_DIMENSION = 1000
"""Largest dimension, as far as the sums are checked; far beyond it modes of degree 1 are all that matters."""
NEGLIGIBLE = 1e-17
"""Terms of a sum over modes below this share of it, beyond the fastest mode, are left out."""


def context_spread(t: Any, beta: float, d: int = 2) -> Any:
    """lim n E|x^n(t) - x(t)|^2 = sum_l N_l (e^{sigma_l t} - 1)^2/(l(l+d-2)), N_l harmonics of degree l (X2, X5).

    x^n is a token that n iid uniform tokens move without being moved by it, x the same with infinitely many. On the
    circle N_l = 2. The limit is reached while the spread is small against n; it ends at `clustering_time`.

    >>> round(context_spread(1.0, 2.0) ** 0.5, 5)
    0.87108
    """
    when, beta, d = _checked(t, beta, d)
    total = np.zeros(when.shape)
    for log_count, level, rate in _modes(beta, d):
        with np.errstate(divide="ignore", over="ignore"):
            term = np.exp(log_count + 2 * np.log(np.expm1(rate * when))) / level
        total = total + term
        if _settled(level, beta) and bool((term <= NEGLIGIBLE * total).all()):
            break
    return _given(total)


def sampled_circle_distance(t: Any, beta: float, n: int, l1: float = 1.0) -> Any:
    """E W2(rho_t^n, sigma)^2 = (2/n) sum_k e^{2 l1 sigma_k t}/k^2, n iid tokens on the circle, V = l1 I (X8).

    At t = 0 it is pi^2/(3n), for geodesic W2 and any n. Up to O(n^-2 e^{4 sigma t}), for chordal W2, too.

    >>> round(3 * sampled_circle_distance(0.0, 2.0, 1) / math.pi**2, 12)
    1.0
    """
    when, beta, _ = _checked(t, beta, 2)
    n, l1 = integer(n, "n", least=1, most=2**53), number(l1, "l1")
    total = np.full(when.shape, math.pi**2 / 3)
    for _, level, rate in _modes(beta, 2):
        with np.errstate(over="ignore"):
            term = 2 * np.expm1(2 * l1 * rate * when) / level
        total = total + term
        if _settled(level, beta) and bool((np.abs(term) <= NEGLIGIBLE * total).all()):
            break
    return _given(np.asarray(total / n))


def weight_derivative(points: Any, direction: Any, t: float, beta: float, of: str = "V") -> Float[Tensor, "n d"]:
    """d x(t)/d eps for V = I + eps D, B = I and infinite uniform context, which moves along (X4, X6).

    With S and K the traceless symmetric and the antisymmetric part of D:
        A_d(beta) [ (e^{sigma_2 t} - 1)/sigma_2 P_x S x + t K x ].
    of="B": for V = I, B = I + eps D, the same with D^T. points: (n, d), tokens at time 0, where they stay.

    >>> theta = torch.tensor(0.7).double()
    >>> x = torch.stack([theta.cos(), theta.sin()])[None]
    >>> moved = weight_derivative(x, [[1.0, 0.0], [0.0, -1.0]], 1.0, 2.0)
    >>> round(float(moved[0] @ torch.stack([-theta.sin(), theta.cos()])), 6)
    -0.944487
    """
    D = as_tensor(direction, "direction")
    if D.ndim != 2 or D.shape[0] != D.shape[1] or not bool(torch.isfinite(D).all()):
        raise InvalidInput(f"direction must be a finite square matrix, got one of shape {tuple(D.shape)}")
    when, beta, d = _checked(number(t, "t", least=0.0), beta, len(D))
    x = tokens(points, d).points
    if choice(of, "of", ("V", "B")) == "B":
        D = D.T
    rate, time = growth_rate(2, beta, d), float(when)
    stretched = time if rate == 0 else _grown(rate * time) / rate
    symmetric, skew = (D + D.T) / 2, (D - D.T) / 2
    along = x @ symmetric
    tangent = along - (along * x).sum(1, keepdim=True) * x
    return bessel_ratio(d, beta) * (stretched * tangent + time * (x @ skew.T))


def _grown(exponent: float) -> float:
    """e^x - 1, infinite where it is no number."""
    return math.expm1(exponent) if exponent <= LARGEST_EXPONENT else math.inf


def _modes(beta: float, d: int) -> Iterator[tuple[float, int, float]]:
    """(log N_l, l(l+d-2), sigma_l) for l = 1, 2, ...; at beta = 0 only l = 1 grows."""
    log_count, decline = math.log(d), 1.0
    for degree in itertools.count(1):
        level = degree * (degree + d - 2)
        decline *= bessel_ratio(d + 2 * (degree - 1), beta)
        limit = (d - 1) / d if degree == 1 else 0.0
        yield log_count, level, level * decline / beta if beta > 0 else limit
        more = (degree + d - 2) / (degree + 1)
        log_count += math.log1p(2 / (2 * degree + d - 2)) + math.log(more)


def _settled(level: int, beta: float) -> bool:
    """Whether modes from here on grow less than those before: l(l+d-2) is beyond the 2 beta of the fastest."""
    return level > 2 * beta + 2


def _checked(t: Any, beta: Any, d: Any) -> tuple[np.ndarray, float, int]:
    return (
        read_times(t),
        number(beta, "beta", least=0.0, most=LARGEST_BETA),
        integer(d, "d", least=2, most=LARGEST_DIMENSION),
    )


def _given(values: np.ndarray) -> Any:
    return float(values) if values.ndim == 0 else torch.from_numpy(values)
