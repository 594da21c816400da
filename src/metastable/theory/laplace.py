"""The Laplace principle of attention: how close the attended mean m_beta(x) is to e = B^T x/|B^T x|.

With kappa = beta |B^T x| the query sees keys through the weight e^{kappa <e, y>}; low temperature is kappa >> d-1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor

from metastable.arguments import function, integer, number, shown
from metastable.attention import attend
from metastable.errors import InvalidInput
from metastable.measure import as_tensor
from metastable.theory.tokens import answer, check_weights, tokens
from metastable.weights import AttentionWeights

EXPANSION_FROM = 100.0
"""From kappa = EXPANSION_FROM * d on the ten terms of A_d in 1/kappa are exact to rounding: they fall like
(d/kappa)^j."""
LARGEST_LEADING_TERM = 250
"""Largest index of the leading term for which the power series of the partition function is summed: beyond it
scaled Bessel functions have all their digits."""
LARGEST_DIMENSION = 10**9
"""Largest dimension of a Bessel ratio that is asked for; the order d/2 of the functions is exact far beyond it."""
LARGEST_KAPPA = 1e150
"""Largest kappa, so that its square is a number."""
LARGEST_COUNT = 2**53
"""Largest number of tokens that a float holds exactly."""
UNDERFLOW = 1e-280
"""Scaled Bessel functions below this are about to leave the range of numbers, whose end is 1e-308."""


def bessel_ratio(d: int, kappa: Any) -> Any:
    """A_d(kappa) = I_{d/2}(kappa)/I_{d/2-1}(kappa), the length of m_beta for uniform keys (L1).

    A number for a number, a float64 tensor for an array. Scaled Bessel functions where they neither underflow nor
    give up, the expansion in 1/kappa for kappa >= 100 d, and otherwise (d much larger than kappa) Gauss's continued
    fraction kappa/(d + kappa^2/(d+2 + ...)).

    >>> round(bessel_ratio(64, 10.0), 10)
    0.1527119042
    """
    d, k = _checked(d, kappa)
    ratio = _ratio_and_complement(d, k)[0]
    return float(ratio) if np.ndim(kappa) == 0 else torch.from_numpy(np.asarray(ratio))


def _ratio_and_complement(d: int, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(A_d(k), 1 - A_d(k)), each with all its digits where it is small."""
    large = k >= EXPANSION_FROM * d
    middle = np.where(large, 1.0, k)
    below, above = special.ive(d / 2 - 1, middle), special.ive(d / 2, middle)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(below > UNDERFLOW, above / below, np.nan)
    lost = np.isnan(ratio)
    if lost.any():
        q = np.where(lost, middle, 0.0)
        # From the fixed point of one step of the fraction, whose error shrinks at least like 1 - d/k at each step.
        steps = math.ceil(40 * (1 + float(q.max()) / d))
        end = d + 2.0 * steps
        tail = q * q / (end / 2 + np.sqrt(end**2 / 4 + q * q))
        for j in range(steps - 1, -1, -1):
            tail = q * q / (d + 2 * j + tail)
        ratio = np.where(lost, tail / np.where(q == 0, 1.0, q), ratio)
    series = np.zeros_like(k)
    inverse = 1 / np.where(large, k, 1.0)
    for coefficient in reversed(_ratio_series(d)[1:]):
        # Scaled by d at each order: the coefficients grow like d^j.
        series = (series - coefficient) * (d * inverse)
    return np.where(large, 1 - series, ratio), np.where(large, series, 1 - ratio)


def _ratio_series(d: int, terms: int = 10) -> list[float]:
    """a_j/d^j with A_d(k) = sum_j a_j k^-j for large k, from the equation A' = 1 - A^2 - (d-1) A/k."""
    a = [1.0]
    for j in range(1, terms):
        inner = sum(a[i] * a[j - i] for i in range(1, j))
        a.append(((j - d) / d * a[j - 1] - inner) / 2)
    return a


def bessel_ratio_expansion(d: int, kappa: Any) -> Any:
    """1 - (d-1)/(2k) + (d-1)(d-3)/(8k^2), the first three terms of A_d(k) for large k."""
    d, k = _checked(d, kappa)
    value = 1 - (d - 1) / (2 * k) + (d - 1) * (d - 3) / (8 * k**2)
    return float(value) if np.ndim(kappa) == 0 else torch.from_numpy(np.asarray(value))


def uniform_mean(w: AttentionWeights, points: Any, beta: float) -> Float[Tensor, "n d"]:
    """m_beta(x) = A_d(beta|B^T x|) B^T x/|B^T x| for uniform keys, exact (L1)."""
    x = tokens(points, check_weights(w).d).points
    beta = number(beta, "beta", least=0.0)
    direction = w.B_transpose(x)
    length = torch.linalg.vector_norm(direction, dim=1)
    return (bessel_ratio(w.d, (beta * length).numpy()) / length)[:, None] * direction


def smooth_mean(
    direction: Float[Tensor, "n d"], kappa: Float[Tensor, "n"], gradient_log_density: Float[Tensor, "n d"]
) -> Float[Tensor, "n d"]:
    """e + (1/kappa)[-(d-1)/2 e + grad_S log f(e)]: the mean for a smooth density f up to O(kappa^-2) (L2)."""
    e, k = as_tensor(direction, "direction"), as_tensor(kappa, "kappa")
    slope = as_tensor(gradient_log_density, "gradient_log_density")
    if e.ndim != 2 or k.shape != e.shape[:1] or slope.shape != e.shape:
        raise InvalidInput(
            "directions, kappas and gradients must have shapes (n, d), (n,) and (n, d), got "
            f"{tuple(e.shape)}, {tuple(k.shape)} and {tuple(slope.shape)}"
        )
    if not bool((k > 0).all()):
        raise InvalidInput(f"kappa must be > 0, got {shown(kappa)}")
    return e + (slope - (e.shape[1] - 1) / 2 * e) / k[:, None]


def density_bound(d: int, kappa: Any, ratio: float) -> Any:
    """|m - e| <= sqrt(2 (f_max/f_min)(1 - A_d(kappa))), for f_min <= f <= f_max, ratio = f_max/f_min (L3).

    For d >= 3 itself below sqrt(ratio (d-1)/kappa); not for d = 2, where 1 - A_2 = 1/(2k) + 1/(8k^2) + ...
    """
    ratio = number(ratio, "f_max/f_min", least=1.0)
    d, k = _checked(d, kappa)
    value = np.sqrt(2 * ratio * _ratio_and_complement(d, k)[1])
    return float(value) if np.ndim(kappa) == 0 else torch.from_numpy(np.asarray(value))


def cap_bound(kappa: float, cap_mass: Callable[[np.ndarray], np.ndarray]) -> float:
    """|m - e|^2 <= 2 min_r [r + 2 e^{-kappa r/2}/rho(cap(e, r/2))], cap(e, h) = {y : 1 - <y, e> <= h} (L4).

    `cap_mass` maps heights h (array) to the masses of the caps around e; empty caps are skipped. This is the origin
    of sqrt(log(beta+1)/beta): for mass >= const h^{(d-1)/2} the minimum sits at r ~ log(kappa)/kappa.
    """
    kappa = number(kappa, "kappa", least=0.0)
    function(cap_mass, "cap_mass")
    if kappa == 0:
        return 2.0
    r = np.geomspace(1e-3 / kappa, 4.0, 800) if kappa > 2.5e-4 else np.array([4.0])
    mass = answer(cap_mass, r / 2, "cap_mass").numpy()
    if mass.shape != r.shape:
        raise InvalidInput(f"cap_mass must give one mass per height, got {shown(mass)} for {len(r)} heights")
    seen = mass > 0
    if not seen.any():
        return 2.0
    value = r[seen] + 2 * np.exp(-kappa * r[seen] / 2) / mass[seen]
    return min(2.0, math.sqrt(2 * float(value.min())))


def cap_moment(kappa: float, chords: np.ndarray, masses: np.ndarray) -> float:
    """|m - e|^2 <= F, the largest E_w|y - e|^2, w = e^{-kappa|y-e|^2/2}, when caps hold at least their masses (L6).

    masses[j] (increasing) is a lower bound of the mass within chords[j] of e. With s^2 = F + 2/kappa the function
    w(u)(u^2 - F) of u = |y - e| increases up to s and then decreases: the worst law has the mass that is bound to
    lie within s as far out as it may and the rest at s, so that F solves
        sum_{u_j < s} dm_j w(u_j)(u_j^2 - F) + (1 - m(s)) w(s)(s^2 - F) = 0,  decreasing in F.
    """
    if kappa <= 0:
        return 2.0
    square, held = chords**2, np.minimum(masses, 1.0)
    parts = np.diff(held, prepend=0.0)
    weight = parts * np.exp(-kappa * square / 2)
    inside, moment = np.cumsum(weight), np.cumsum(weight * square)
    low, high = 0.0, 4.0
    for _ in range(50):
        F = (low + high) / 2
        far = min(F + 2 / kappa, 4.0)
        j = int(np.searchsorted(square, far)) - 1
        sure = (held[j], inside[j], moment[j]) if j >= 0 else (0.0, 0.0, 0.0)
        rest = (1 - sure[0]) * math.exp(-kappa * far / 2) * (far - F)
        low, high = (F, high) if sure[2] - F * sure[1] + rest > 0 else (low, F)
    return math.sqrt(high)


def uniform_cap(d: int, height: Any) -> np.ndarray:
    """Uniform measure of {y : 1 - <y, e> <= h}: (1/2) I_{1-(1-h)^2}((d-1)/2, 1/2), reflected beyond the equator."""
    d = integer(d, "d", least=2, most=LARGEST_DIMENSION)
    h = np.clip(as_tensor(height, "height").numpy(), 0.0, 2.0)
    half = 0.5 * special.betainc((d - 1) / 2, 0.5, h * (2 - h))
    return np.where(h <= 1, half, 1 - half)


def log_partition_uniform(d: int, kappa: Any) -> Any:
    """log E e^{kappa u} = log[Gamma(d/2) (2/kappa)^{d/2-1} I_{d/2-1}(kappa)], u = <e, y>, y uniform on S^{d-1}."""
    d, k = _checked(d, kappa)
    quarter = k * k / 4
    # The largest term of the series 0F1(; d/2; k^2/4) sits at the root of j (j + d/2) = k^2/4.
    peak = quarter / (d / 4 + np.sqrt(d * d / 16 + quarter))
    short = peak <= LARGEST_LEADING_TERM
    value = np.where(short, _series_log_partition(d, np.where(short, quarter, 0.0)), 0.0)
    if not short.all():
        q = np.where(short, 1.0, k)
        long = special.gammaln(d / 2) + (d / 2 - 1) * np.log(2 / q) + log_scaled_bessel(d / 2 - 1, q) + q
        value = np.where(short, value, long)
    return float(value) if np.ndim(kappa) == 0 else torch.from_numpy(np.asarray(value))


def _series_log_partition(d: int, quarter: np.ndarray) -> np.ndarray:
    """log sum_j (k^2/4)^j/((d/2)_j j!): positive terms, no cancellation, relative accuracy down to k = 0."""
    term, total, j = np.ones_like(quarter), np.zeros_like(quarter), 0
    while bool((term > 1e-17 * total).any()) and j < 10 * LARGEST_LEADING_TERM:
        term = term * quarter / ((d / 2 + j) * (j + 1))
        total = total + term
        j += 1
    return np.log1p(total)


def log_scaled_bessel(nu: float, x: np.ndarray) -> np.ndarray:
    """log(e^{-x} I_nu(x)) for large x or nu: where scipy underflows or gives up, Debye's or Hankel's expansion."""
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = special.ive(nu, x)
        value = np.log(plain)
    lost = ~(plain > UNDERFLOW)
    if not lost.any():
        return value
    if nu < 50:
        series = term = np.ones_like(x)
        for j in range(1, 6):
            term = -term * (4 * nu * nu - (2 * j - 1) ** 2) / (8 * j * x)
            series = series + term
        return np.where(lost, np.log(series) - np.log(2 * np.pi * x) / 2, value)
    z = x / nu
    root = np.hypot(1.0, z)
    p = 1 / root
    u1 = (3 * p - 5 * p**3) / 24
    u2 = (81 * p**2 - 462 * p**4 + 385 * p**6) / 1152
    u3 = (30375 * p**3 - 369603 * p**5 + 765765 * p**7 - 425425 * p**9) / 414720
    # sqrt(1+z^2) - z + log(z/(1 + sqrt(1+z^2))), without the cancellation of large z.
    exponent = 1 / (root + z) - np.arcsinh(1 / z)
    debye = nu * exponent - np.log(2 * np.pi * nu * root) / 2 + np.log1p(((u3 / nu + u2) / nu + u1) / nu)
    return np.where(lost, debye, value)


def sampling_error(d: int, kappa: float, n: int) -> float:
    """RMS tangential error of m over n iid uniform keys, sqrt(E[w^2 |P_e y|^2]/(E w)^2/n), w = e^{kappa u} (L5)."""
    d = integer(d, "d", least=2, most=LARGEST_DIMENSION)
    k = number(kappa, "kappa", least=0.0, most=LARGEST_KAPPA / 2)
    n = integer(n, "n", least=1)
    double = 2 * k
    spread = (d - 1) / d if k == 0 else (d - 1) / double * bessel_ratio(d, double)
    growth = log_partition_uniform(d, double) - 2 * log_partition_uniform(d, k)
    log_error = (math.log(spread) - math.log(n) + growth) / 2
    return math.exp(log_error) if log_error < 709 else math.inf


def effective_tokens(n: int, kappa: Any, d: int) -> Any:
    """n_eff = n (4 pi/kappa)^{(d-1)/2} Gamma(d/2)/(2 pi^{d/2}): tokens inside one attention window (T0.3).

    n tokens emulate the mean field only if n_eff >> 1; d = 2: n/sqrt(pi kappa), d = 3: n/kappa. Never above n.

    >>> effective_tokens(1000, 100.0, 3)
    10.0
    """
    n = integer(n, "n", least=1, most=LARGEST_COUNT)
    d, k = _checked(d, kappa)
    with np.errstate(divide="ignore"):
        log_share = (d - 1) / 2 * np.log(4 * np.pi / k) + special.gammaln(d / 2) - np.log(2) - d / 2 * np.log(np.pi)
    value = n * np.exp(np.minimum(log_share, 0.0))
    return round(float(value), 12) if np.ndim(kappa) == 0 else torch.from_numpy(np.asarray(value))


def attention_defect(w: AttentionWeights, rho: Any, beta: float, queries: int = 2000, seed: int = 0) -> float:
    """rms|m_beta[rho](x) - B^T x/|B^T x|| over the tokens: how far the start is from zero temperature (N10).

    At most `queries` tokens ask (a seeded choice by mass); all tokens answer.
    """
    measure = tokens(rho, check_weights(w).d)
    beta = number(beta, "beta", least=0.0)
    queries = integer(queries, "queries", least=1, most=LARGEST_COUNT)
    seed = integer(seed, "seed", least=0, most=2**63 - 1)
    x, mass = measure.points, measure.mass
    if measure.n > queries:
        chosen = torch.multinomial(mass, queries, replacement=True, generator=torch.Generator().manual_seed(seed))
        asking, weight = x[chosen], torch.full((queries,), 1.0 / queries, dtype=x.dtype)
    else:
        asking, weight = x, mass
    direction = w.B_transpose(asking)
    direction = direction / torch.linalg.vector_norm(direction, dim=1, keepdim=True)
    mean = attend(w.B_transpose(asking), x, mass, beta).mean
    return math.sqrt(float((weight * ((mean - direction) ** 2).sum(1)).sum()))


def _checked(d: Any, kappa: Any) -> tuple[int, np.ndarray]:
    d = integer(d, "d", least=2, most=LARGEST_DIMENSION)
    k = as_tensor(kappa, "kappa").cpu().numpy()
    if bool((~(k >= 0) | (k > LARGEST_KAPPA)).any()):
        raise InvalidInput(f"kappa must be >= 0 and <= {LARGEST_KAPPA:g}, got {shown(kappa)}")
    return d, k
