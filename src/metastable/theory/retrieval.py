"""What the last of many causal tokens on the circle still knows of the others: the closed U of lost-in-the-middle.

Tokens theta_j, iid uniform at first, attend to earlier ones with ALiBi weights w_jk ~ e^{-(lambda/N)(j-k)}:
    theta_j' = -sum_{k<j} w_jk beta sin(theta_j - theta_k) e^{beta cos(theta_j - theta_k)}.
The token at place s of the context (0 the first, 1 the last) leaves N E[e^{in(theta_last(t) - theta_s(0))}], which
tends to g_a for a = a_n = n^2 I_n(beta),
    g_a(t; s) = lambda e^{lambda s}/(e^lambda - 1) psi_{at}(Y(s)),   Y(s) = log((e^lambda - 1)/(e^{lambda s} - 1)),
    psi_c(y) = sum_k c^{k+1} y^k/(k! (k+1)!) = sqrt(c/y) I_1(2 sqrt(c y)).
Source: [arXiv:2605.09213] and its public code; `metastable.Causal` is the flow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor

from metastable.arguments import array, integer, number, shown
from metastable.errors import InvalidInput
from metastable.measure import as_tensor

LARGEST_BETA = 1e8
"""Largest inverse temperature: the Bessel functions of all modes have their digits up to here
(tests/theory/test_retrieval.py); beyond 1e9 SciPy gives none."""
MOST_MODES = 10_000
"""Most Fourier modes. Weights e^{-pi^2 n^2/2M^2} make those far above the width M vanish."""
MOST_TOKENS = 10**6
"""Most tokens of the recursion, which takes seconds then."""
LARGEST_ALIBI = 1e12
"""Largest ALiBi slope over the context: lambda (1 - s) keeps its digits far beyond any use."""


def retrieval_profile(
    s: Any, t: Any, beta: float = 1.0, alibi: float = 1.0, width: float = 8.0, modes: int = 20
) -> Any:
    """S_t(s) = sum_{n=1}^{modes} e^{-pi^2 n^2/(2 M^2)} g_{a_n}(t; s): soft accuracy of retrieving place s (K2).

    s in (0, 1], t >= 0: numbers, or arrays that broadcast (t[:, None] against s gives a row per depth). alibi: the
    slope lambda >= 0 over the whole context; 0 is no preference for recent tokens. width: M, how many places on the
    circle the readout tells apart. A number for numbers, else a float64 tensor; infinite where it leaves the range
    of numbers, for which there is `log_retrieval_profile`.

    >>> round(retrieval_profile(0.5, 1.0), 10)
    1.2655236928
    """
    found = _log_profile(s, t, beta, alibi, width, modes)
    with np.errstate(over="ignore"):
        return _answer(np.exp(found))


def log_retrieval_profile(
    s: Any, t: Any, beta: float = 1.0, alibi: float = 1.0, width: float = 8.0, modes: int = 20
) -> Any:
    """log S_t(s), for depths at which S_t(s) ~ e^{2 sqrt(a t Y(s))} is no number any more; -infinity at t = 0.

    >>> round(log_retrieval_profile(0.1, 1e6))
    2514
    """
    return _answer(_log_profile(s, t, beta, alibi, width, modes))


def multihead_profile(s: Any, t: Any, heads: Sequence[Sequence[float]], width: float = 8.0, modes: int = 20) -> Any:
    """sum_h c_h S_t(s; beta_h, lambda_h), the readout of several heads (c_h, beta_h, lambda_h): c_h of any sign.

    With one head the profile has at most one well; with several it can have two.

    >>> one, two = (retrieval_profile(0.5, 1.0, beta=beta) for beta in (1.0, 0.5))
    >>> round(multihead_profile(0.5, 1.0, [(1.0, 1.0, 1.0), (-2.0, 0.5, 1.0)]) - (one - 2 * two), 12)
    0.0
    """
    try:
        table = array(heads).astype(float) if array(heads).dtype.kind in "iuf" else None
    except Exception:  # whatever a stranger's object raises on its way into an array
        table = None
    if table is None or table.ndim != 2 or table.shape[1] != 3 or len(table) == 0 or not np.isfinite(table).all():
        raise InvalidInput(f"heads must be rows (weight, beta, alibi) of numbers, got {shown(heads)}")
    return sum(
        weight * retrieval_profile(s, t, beta, alibi, width, modes) for weight, beta, alibi in table.tolist()
    )


def critical_depth(beta: Any, alibi: float = 1.0, width: float = 8.0, modes: int = 20) -> Any:
    """t_crit = 2(1 - e^{-lambda}) sum w_n a_n / sum w_n a_n^2, w_n = e^{-pi^2 n^2/(2 M^2)} (K1).

    Below, S_t has one interior minimum and rises towards s = 1; above, it falls all the way, and what is recent is
    the least known: the slope at s = 1 changes its sign here. beta a number or an array; infinite for beta = 0,
    and 0 for alibi = 0.

    >>> [round(critical_depth(beta), 8) for beta in (0.5, 1.0, 2.0, 3.0)]
    [5.91157864, 2.45748898, 0.60071622, 0.17401839]
    """
    _, alibi, width, modes = _checked(1.0, alibi, width, modes)
    betas = _array(beta, "beta", 0.0, LARGEST_BETA)
    log_rate, log_weight = _modes(betas, width, modes)
    first, second = (special.logsumexp(log_weight + power * log_rate, axis=0) for power in (1, 2))
    with np.errstate(over="ignore", invalid="ignore"):
        depth = -2 * np.expm1(-alibi) * np.exp(first - second)
    return _answer(np.where(betas > 0, depth, math.inf))


def token_profile(
    n: int, t: float, beta: float = 1.0, alibi: float = 1.0, width: float = 8.0, modes: int = 20
) -> Float[Tensor, "n"]:
    """n G_k for the tokens k = 0, ..., n-2: `retrieval_profile` before the limit of many tokens, at s = k/n (K4).

    G_j' = a(w_jk + sum_{k<i<j} w_ji G_i) is e^{atW} - 1 for the matrix W of the weights, of which the last row is
    summed as its power series; every term is a pass over the tokens, since w_ji is a geometric sequence. It leaves
    out correlations of more than two tokens, so that it is a limit of the flow, not the flow of n tokens.

    >>> round(float(token_profile(200, 2.0, modes=1, width=1e9)[80]), 5)
    1.86256
    """
    n = integer(n, "n", least=2, most=MOST_TOKENS)
    t = number(t, "t", least=0.0)
    beta, alibi, width, modes = _checked(beta, alibi, width, modes)
    from scipy import signal

    log_rate, log_weight = _modes(np.array(beta), width, modes)
    with np.errstate(divide="ignore"):
        log_depth = log_rate + np.log(t)
    decay, before = math.exp(-alibi / n), np.arange(1.0, n)
    totals = before * _mean_decay(alibi / n * before) / _mean_decay(np.array(alibi / n))
    row, summed = np.zeros(n), np.zeros(n)
    row[-1] = 1.0
    for power in range(1, n):
        # (v W)_k = sum_{j>k} e^{-(lambda/n)(j-k-1)} v_j / Z_j, from the last token to the first.
        passed = signal.lfilter([1.0], [1.0, -decay], (row[1:] / totals)[::-1])[::-1]
        row = np.append(passed, 0.0)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            share = np.exp(special.logsumexp(log_weight + power * log_depth) - special.gammaln(power + 1))
            term = np.where(row > 0, share * row, 0.0)
        summed += term
        if not (term > np.finfo(float).eps / 8 * summed).any():
            break
    return torch.from_numpy(n * summed[:-1])


def _log_profile(s: Any, t: Any, beta: float, alibi: float, width: float, modes: int) -> np.ndarray:
    """The logarithm of S_t(s), a sum of positive terms."""
    beta, alibi, width, modes = _checked(beta, alibi, width, modes)
    places, depths = _array(s, "s", 0.0, 1.0), _array(t, "t", 0.0, math.inf)
    if bool((places == 0).any()):
        raise InvalidInput("s must be > 0: the profile diverges at the first token")
    try:
        shape = np.broadcast_shapes(places.shape, depths.shape)
    except ValueError:
        raise InvalidInput(
            f"s and t must broadcast, got shapes {places.shape} and {depths.shape}; use t[:, None] for all pairs"
        ) from None
    ratio = np.log(_mean_decay(np.array(alibi))) - np.log(_mean_decay(alibi * places)) - np.log(places)
    log_places = np.maximum(alibi * (1 - places) + ratio, 0.0)
    log_share = -alibi * (1 - places) - np.log(_mean_decay(np.array(alibi)))
    total = np.full(shape, -math.inf)
    with np.errstate(divide="ignore", over="ignore"):
        log_depths = np.log(depths)
        for log_rate, log_weight in zip(*_modes(np.array(beta), width, modes), strict=True):
            log_c = log_rate + log_depths
            z = 2 * np.exp(log_c / 2) * np.sqrt(log_places)
            total = np.logaddexp(total, log_weight + log_c + z + _log_bessel_quotient(z))
    return total + log_share


def _mean_decay(x: np.ndarray) -> np.ndarray:
    """(1 - e^{-x})/x, 1 at x = 0."""
    return np.where(x > 0, -np.expm1(-x) / np.where(x > 0, x, 1.0), 1.0)


def _log_bessel_quotient(z: np.ndarray) -> np.ndarray:
    """log(2 I_1(z) e^{-z}/z), 0 at z = 0."""
    positive = np.where(z > 0, z, 1.0)
    return np.where(z > 0, np.log(2 * special.i1e(positive)) - np.log(positive), 0.0)


def _modes(beta: np.ndarray, width: float, modes: int) -> tuple[np.ndarray, np.ndarray]:
    """log a_n = log n^2 I_n(beta) and log w_n of the modes, along the first axis."""
    n = np.arange(1, modes + 1).reshape(-1, *(1,) * beta.ndim)
    with np.errstate(divide="ignore"):
        scaled = np.log(special.ive(n, beta))
    return 2 * np.log(n) + scaled + beta, np.broadcast_to(-((math.pi * n / width) ** 2) / 2, scaled.shape)


def _checked(beta: float, alibi: float, width: float, modes: int) -> tuple[float, float, float, int]:
    return (
        number(beta, "beta", least=0.0, most=LARGEST_BETA),
        number(alibi, "alibi", least=0.0, most=LARGEST_ALIBI),
        number(width, "width", least=1e-100),
        integer(modes, "modes", least=1, most=MOST_MODES),
    )


def _array(values: Any, name: str, least: float, most: float) -> np.ndarray:
    """Finite numbers in [least, most], in any shape."""
    read = as_tensor(values, name).cpu().numpy()
    if not (np.isfinite(read) & (read >= least) & (read <= most)).all():
        bounds = f">= {least:g}" if most == math.inf else f"in [{least:g}, {most:g}]"
        raise InvalidInput(f"{name} must be finite and {bounds}, got {shown(values)}")
    return np.asarray(read, dtype=float)


def _answer(values: np.ndarray) -> Any:
    return float(values) if np.ndim(values) == 0 else torch.from_numpy(np.asarray(values))
