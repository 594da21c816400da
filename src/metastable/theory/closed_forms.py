"""Closed forms of the zero-temperature flow: distances for uniform data, transport of densities, travel times."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor

from metastable.arguments import function, integer, number, numbers, shown
from metastable.errors import InvalidInput
from metastable.flows.orbit import orbit, orbit_clock
from metastable.measure import as_tensor
from metastable.theory.tokens import answer, check_weights, tokens
from metastable.weights import AttentionWeights

LARGEST_DIMENSION = 1_000_000
"""Largest dimension of a closed form: beyond it the Beta integral has lost half of its digits to the logarithms of
Gamma functions."""


def uniform_distance(d: int, k: int, gap_time: Any) -> Any:
    """W2 to the limit of uniform data for B = I and a two-level M (l1 on E, dim E = k, l2 elsewhere), chordal (Z6).

    With s = e^{-(l1-l2) t} and z = |P_E x|, z^2 ~ Beta(k/2, (d-k)/2):  W2^2 = E[2(1 - z/sqrt(z^2 + s^2 (1-z^2)))].
      d = 2, k = 1:  W2^2 = 2 - (4/pi) arccos(s)/sqrt(1-s^2)
      d = 3, k = 1:  W2^2 = 2s/(1+s)
      d = 3, k = 2:  W2^2 = 2 - 2[E(m) - (1-m)K(m)]/m,  m = 1-s^2
    Other (d, k) by quadrature. gap_time = (l1-l2) t, a number or an array; the same shape comes back.

    >>> round(uniform_distance(3, 1, 1.0), 10)
    0.733404965
    """
    d = integer(d, "d", least=2, most=LARGEST_DIMENSION)
    k = integer(k, "k", least=1)
    if k >= d:
        raise InvalidInput(f"the dominant space needs 1 <= k < d, got k = {shown(k)} and d = {d}")
    values = as_tensor(gap_time, "gap * t").cpu().numpy()
    if bool((~np.isfinite(values) | (values < 0)).any()):
        raise InvalidInput(f"gap * t must be finite and >= 0, got {shown(gap_time)}")
    distance = np.vectorize(lambda x: _distance(d, k, x), otypes=[float])(values)
    return float(distance) if values.ndim == 0 else torch.from_numpy(distance)


def _distance(d: int, k: int, gap_time: float) -> float:
    """sqrt(s^p W) with W2^2 = s^p W, p = min(k, 2): W keeps its digits where s or s^2 no longer have any."""
    s = math.exp(-gap_time)
    root = math.sqrt(1 - s * s)
    if (d, k) == (3, 1):
        scaled = 2 / (1 + s)
    elif (d, k) == (2, 1) and s < 0.9:
        # 2 - (4/pi) arccos(s)/root by arccos = pi/2 - arcsin, which leaves no difference of near numbers.
        scaled = 2 * ((2 / math.pi) * (math.asin(s) / s if s > 1e-8 else 1.0) - s / (1 + root)) / root
    elif (d, k) == (3, 2) and 0.05 < s < 0.9:
        m = 1 - s * s
        scaled = float(2 - 2 * (special.ellipe(m) - s * s * special.ellipkm1(s * s)) / m) / s**2
    else:
        scaled = _by_quadrature(d, k, gap_time)
    return math.exp(-min(k, 2) * gap_time / 2) * math.sqrt(scaled)


def _by_quadrature(d: int, k: int, gap_time: float) -> float:
    """W2^2/s^p by the Beta integral with tan(angle to E^perp) = s sinh(u), which turns z/sqrt(...) into tanh(u).

    2(1 - tanh u) cosh u = 2 e^{-u}, hence the integrand 2 e^{-u} (1 + tan^2)^{-d/2} for k = 1, and for k >= 2, with
    e^{-u} tan = s (1 - e^{-2u})/2 taken out, (1 - e^{-2u}) tan^{k-2} (1 + tan^2)^{-d/2}.
    """
    from scipy import integrate

    norm = math.log(2) - float(special.betaln(k / 2, (d - k) / 2))

    def integrand(u: float) -> float:
        rise = -math.expm1(-2 * u)
        tangent = 0.5 * math.exp(u - gap_time) * rise
        log_weight = norm - d / 2 * math.log1p(tangent**2)
        if k == 1:
            return 2 * math.exp(log_weight - u)
        if k > 2:
            log_weight += (k - 2) * math.log(tangent) if tangent > 0 else -math.inf
        return rise * math.exp(log_weight)

    turn = gap_time + math.log(2)
    marks = sorted({0.0, min(40.0, turn), max(0.0, turn - 40.0), turn, turn + 10.0, turn + 60.0})
    return sum(
        integrate.quad(integrand, a, b, epsabs=0, epsrel=1e-13, limit=200)[0] for a, b in itertools.pairwise(marks)
    )


def log_jacobian(w: AttentionWeights, points: Any, t: float) -> Float[Tensor, "n"]:
    """log det of the flow map x_0 -> x(t): tau tr M - d log|e^{tau M}x_0| - log(|B^T x(t)|/|B^T x_0|).

    For B = I this is det e^{tM}/|e^{tM}x_0|^d (Z8); the last term is the change of time of a general B, since
    div v_0 = (tr M - d<x, Mx>)/r - d(log r)/dt along an orbit with r = |B^T x|.
    """
    x = tokens(points, check_weights(w).d).points
    t = number(t, "t", least=0.0)
    tau = orbit_clock(w.M, w.B, x, [t])[0]
    end = orbit(w.M, w.B, x, [t])[0]
    shift = float(torch.linalg.eigvals(w.M).real.max())
    M = (w.M - shift * torch.eye(w.d, dtype=torch.float64)).to(x)
    moved = torch.empty_like(x)
    for rows in torch.arange(len(x)).split(max(1, 2**20 // w.d**2)):
        moved[rows] = (torch.linalg.matrix_exp(tau[rows, None, None] * M) @ x[rows, :, None])[..., 0]
    growth = torch.log(torch.linalg.vector_norm(moved, dim=1)) + shift * tau
    speed = torch.log(
        torch.linalg.vector_norm(end @ w.B.to(x), dim=1) / torch.linalg.vector_norm(x @ w.B.to(x), dim=1)
    )
    return tau * torch.trace(w.M).to(x) - w.d * growth - speed


def transported_density(
    w: AttentionWeights, density: Callable[[Tensor], Tensor], t: float
) -> Callable[[Any], Float[Tensor, "n"]]:
    """f_t with f_t(x(t)) = f_0(x_0)/det(Jacobian): the density, relative to any fixed measure on S, at time t (Z8).

    `density` maps points (n, d) to values (n,); so does the result. The flow is run backwards by M -> -M.
    """
    check_weights(w)
    t = number(t, "t", least=0.0)
    function(density, "density")

    def at(points: Any) -> Tensor:
        x = tokens(points, w.d).points
        start = orbit(-w.M, w.B, x, [t])[0]
        values = answer(density, start, "the density")
        if values.shape != (len(x),):
            raise InvalidInput(f"the density must give {len(x)} values for {len(x)} points, got {shown(values)}")
        return values * torch.exp(-log_jacobian(w, start, t))

    return at


def planar_travel_time(b: tuple[float, float], eigenvalues: tuple[float, float], start: float, end: float) -> float:
    """Time to go from angle `start` to angle `end` in d = 2 with B = diag(b1, b2), M = diag(l1, l2) (Z9).

    t = [F(R_start) - F(R_end)]/(l1-l2), R^2 = b1^2 cos^2 + b2^2 sin^2 of the angle,
    F(R) = (b1/2) ln|(R-b1)/(R+b1)| + (b2/2) ln|(b2+R)/(b2-R)|. Angles in (0, pi/2); negative if the flow runs the
    other way. For |b1| = |b2| = b the formula degenerates to t = b ln(tan start/tan end)/(l1-l2).
    """
    b1, b2 = map(abs, numbers(b, "b", length=2))
    if not (b1 > 0 and b2 > 0):
        raise InvalidInput(f"B = diag(b) is singular; both entries must be non-zero, got b = {shown(b)}")
    start = number(start, "the start", above=0.0, below=math.pi / 2)
    end = number(end, "the end", above=0.0, below=math.pi / 2)
    high, low = numbers(eigenvalues, "eigenvalues", length=2)
    gap = high - low
    if gap == 0:
        raise InvalidInput("the flow of a multiple of the identity does not travel: l1 equals l2")
    if abs(b1 - b2) < 1e-12 * b1:
        return b1 * (math.log(math.tan(start)) - math.log(math.tan(end))) / gap

    def F(angle: float) -> float:
        c, s = math.cos(angle), math.sin(angle)
        r = math.hypot(b1 * c, b2 * s)
        # R^2 - b1^2 = (b2^2 - b1^2) sin^2 and b2^2 - R^2 = (b2^2 - b1^2) cos^2: no cancellation near the poles.
        spread = math.log(abs(b2 - b1)) + math.log(b1 + b2)
        near = spread + 2 * math.log(s) - 2 * math.log(r + b1)
        far = 2 * math.log(b2 + r) - spread - 2 * math.log(c)
        return b1 / 2 * near + b2 / 2 * far

    return (F(start) - F(end)) / gap
