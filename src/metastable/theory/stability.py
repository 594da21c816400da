"""Stability of the zero-temperature flow, and how far a run at finite beta can drift from it.

RMS_geo(X_t^beta, X_t^0) <= int_0^t e^{L_0 (t-s)} eps(s) ds,   eps(s) = rms|v_beta - v_0| along the beta-run  (S3)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import instance, integer, number
from metastable.errors import InvalidInput
from metastable.flows import SelfAttention
from metastable.measure import Measure, as_measure
from metastable.solve.path import Path
from metastable.sphere import geodesic_distance, normalize, project_tangent, uniform
from metastable.theory.tokens import check_weights, tokens
from metastable.weights import AttentionWeights

CEILING = 1e12
"""Bounds stop growing here, so that they cannot overflow; W2 is at most 2, so that they have said their last
word."""
MOST_SAMPLES = 10_000_000
"""Most points of the scan for L_0, so that they fit into memory."""
LARGEST_EXPONENT = 700.0
"""Exponents are cut here, just below the 709.78 at which e^x overflows."""


def jacobian(w: AttentionWeights, points: Any) -> Float[Tensor, "n d d"]:
    """J(x) = P(M - <x,Mx> I)P/r - v_0(x)(P BB^T x)^T/r^2, the derivative of v_0(x) = P_x Mx/r, r = |B^T x| (S2)."""
    return _jacobian(w, tokens(points, check_weights(w).d).points)


def _jacobian(w: AttentionWeights, x: Tensor) -> Tensor:
    M, B = w.M.to(x), w.B.to(x)
    d = x.shape[1]
    eye = torch.eye(d, dtype=x.dtype, device=x.device)
    P = eye - x[:, :, None] * x[:, None, :]
    r = torch.linalg.vector_norm(x @ B, dim=1)
    image = x @ M.T
    height = (x * image).sum(1)
    v0 = project_tangent(x, image) / r[:, None]
    slope = project_tangent(x, x @ B @ B.T)
    return P @ (M - height[:, None, None] * eye) @ P / r[:, None, None] - (
        v0[:, :, None] * slope[:, None, :] / (r**2)[:, None, None]
    )


def growth_constant(w: AttentionWeights, samples: int = 4096, starts: int = 12, seed: int = 0) -> float:
    """L_0 = sup_x lambda_max of the symmetric part of J(x), at least 0: distances grow at most like e^{L_0 t} (S2).

    For B = I and symmetric M it is l_1 - l_d at most, and attained (S1). A scan of the sphere (all of it for d = 2)
    followed by a local ascent from the best `starts` points; the maximum found is the supremum unless a peak is
    narrower than the scan.

    >>> w = AttentionWeights(V=[[2.0, 0.0], [0.0, -1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
    >>> round(growth_constant(w), 6)
    3.0
    """

    check_weights(w)
    samples = integer(samples, "samples", least=2, most=MOST_SAMPLES)
    starts = integer(starts, "starts", least=1, most=MOST_SAMPLES)
    seed = integer(seed, "seed", least=0, most=2**62)
    if float(torch.linalg.svdvals(w.B.to(torch.float64))[-1]) == 0:
        raise InvalidInput("distances of zero-temperature orbits need an invertible B, got a singular one")
    from scipy import optimize

    def values(x: Tensor) -> Tensor:
        J = _jacobian(w, x)
        return torch.linalg.eigvalsh((J + J.mT) / 2)[:, -1]

    if w.d == 2:
        angle = torch.linspace(0, math.pi, samples, dtype=torch.float64)
        points = torch.stack([torch.cos(angle), torch.sin(angle)], dim=1)
    else:
        # B can have narrow valleys of |B^T x|, where the constant is largest: look there as well.
        valleys = torch.linalg.svd(w.B.to(torch.float64))[0].T
        near = normalize(valleys.repeat(32, 1) + 0.1 * uniform(32 * w.d, w.d, seed))
        points = torch.cat([uniform(samples, w.d, seed), valleys, near])
    scanned = values(points)
    best = points[torch.topk(scanned, min(starts, len(points))).indices]

    def negative(flat: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.tensor(flat, dtype=torch.float64, requires_grad=True)
        value = values(normalize(free[None]))[0]
        (gradient,) = torch.autograd.grad(value, free)
        return -float(value.detach()), -np.nan_to_num(gradient.numpy())

    found = [float(scanned.max())]
    for start in best:
        found.append(-float(optimize.minimize(negative, start.numpy(), jac=True, method="L-BFGS-B").fun))
    largest = max(0.0, *found)
    # Terms of size ||V|| cond(B) cancel in J, entirely so where M is a multiple of the identity.
    spread = torch.linalg.svdvals(w.B.to(torch.float64))
    noise = 64 * torch.finfo(torch.float64).eps * w.V_norm * float(spread[0] / spread[-1])
    return largest if largest > noise else 0.0


def defects(w: AttentionWeights, beta: float, points: Tensor, mass: Tensor) -> np.ndarray:
    """v_beta - v_0 of every token (n, d), v_beta the softmax field of the tokens themselves."""
    x, mass = normalize(points.to(torch.float64)), mass.to(torch.float64)
    direction = w.B_transpose(x)
    v0 = project_tangent(x, w.apply_V(direction / torch.linalg.vector_norm(direction, dim=1, keepdim=True)))
    difference: np.ndarray = (SelfAttention(w, beta=beta).velocity(0.0, x, mass) - v0).numpy()
    return difference


def velocity_defect(w: AttentionWeights, beta: float, points: Any, mass: Any = None) -> float:
    """eps = rms|v_beta - v_0| over the tokens, v_beta the softmax field of the tokens themselves."""
    check_weights(w)
    beta = number(beta, "beta", least=0.0)
    rho = tokens(points if mass is None else Measure(points, mass), w.d)
    return math.sqrt(float((rho.mass.numpy() * (defects(w, beta, rho.points, rho.mass) ** 2).sum(1)).sum()))


def highest(values: np.ndarray) -> np.ndarray:
    """Upper bounds (m-1, ...) on the intervals of what is known at m times: the larger end and a reserve.

    A smooth function exceeds both ends by at most an eighth of its second difference; the reserve is twice that,
    with the larger of the second differences at the two ends.
    """
    if len(values) < 2:
        return values[:0]
    bend = np.abs(np.diff(values, n=2, axis=0)) if len(values) > 2 else np.abs(np.diff(values, axis=0))
    bend = np.concatenate([bend[:1], bend, bend[-1:]]) if len(values) > 2 else np.concatenate([bend, bend])
    top: np.ndarray = np.maximum(values[:-1], values[1:]) + np.maximum(bend[:-1], bend[1:]) / 4
    return top


def propagated(value: Any, forcing: Any, L0: float, h: float) -> Any:
    """e^{L_0 h} value + forcing int_0^h e^{L_0 s} ds: y(h) of y' = L_0 y + forcing, y(0) = value."""
    z = L0 * h
    growth = math.expm1(min(z, LARGEST_EXPONENT))
    return (1 + growth) * value + forcing * h * (growth / z if z > 1e-8 else 1 + z / 2)


def accumulated_bound(times: Any, defects: Any, L0: float, upper: bool = False) -> Float[Tensor, "m"]:
    """int_0^t e^{L_0(t-s)} eps(s) ds at every time of the run, eps linear between them (S3).

    upper=True takes the larger of the two ends on every interval instead.
    """
    t = np.asarray(times, dtype=np.float64)
    eps = np.asarray(defects, dtype=np.float64)
    if t.shape != eps.shape or t.ndim != 1 or len(t) < 1 or (np.diff(t) <= 0).any():
        raise InvalidInput(f"times must increase and match the defects, got shapes {t.shape} and {eps.shape}")
    bound = np.zeros_like(t)
    for i in range(1, len(t)):
        h = t[i] - t[i - 1]
        z = L0 * h
        # Exact integrals of e^{L0 (h-s)} against 1 and s/h; their series where e^z - 1 would cancel.
        growth = math.expm1(min(z, LARGEST_EXPONENT))
        whole = h * (growth / z if z > 1e-8 else 1 + z / 2)
        late = h * ((growth - z) / z**2 if z > 1e-4 else 0.5 + z / 6)
        forcing = max(eps[i - 1], eps[i]) * whole if upper else eps[i - 1] * (whole - late) + eps[i] * late
        bound[i] = min(CEILING, math.exp(min(z, LARGEST_EXPONENT)) * bound[i - 1] + forcing)
    return torch.from_numpy(bound)


@dataclass(frozen=True, eq=False)
class PosterioriBound:
    """Bound S3 along a run: above the RMS geodesic distance of X_t^beta and X_t^0, hence above their W2."""

    times: Float[Tensor, "m"]
    defects: Float[Tensor, "m"]
    L0: float
    bound: Float[Tensor, "m"]

    def __repr__(self) -> str:
        return f"PosterioriBound({len(self.times)} times, L0 = {self.L0:.4g})"


def posteriori_bound(w: AttentionWeights, beta: float, path: Any, L0: float | None = None) -> PosterioriBound:
    """S3 from a run of the softmax flow: `path` has times (m,), points (m, n, d), mass (n,), starting at time 0.

    Between two saved times the larger of their two defects counts. What the defect does in between is not seen, so
    that a run saved too rarely can give too small a bound: halve the distance of the times until it stops growing.
    """
    check_weights(w)
    beta = number(beta, "beta", least=0.0)
    times = check_path(path, w.d)
    constant = growth_constant(w) if L0 is None else number(L0, "L0", least=0.0)
    mass = path.mass.to(torch.float64).numpy()
    squares = [(defects(w, beta, x, path.mass) ** 2).sum(1) for x in path.points]
    rms = np.sqrt(np.array([(mass * square).sum() for square in squares]))
    bound = accumulated_bound(times, rms, constant, upper=True)
    return PosterioriBound(torch.from_numpy(times), torch.from_numpy(rms), constant, bound)


def check_path(path: Any, d: int) -> np.ndarray:
    """The times of a path of tokens in dimension d that starts at time 0; anything else is refused."""
    instance(path, "path", Path, "a Path, see solve")
    if path.points.ndim != 3:
        raise InvalidInput(f"the bound is for one system of tokens, got a path of shape {tuple(path.points.shape)}")
    times = np.asarray(path.times, dtype=np.float64)
    if float(times[0]) != 0.0:
        raise InvalidInput(f"the bound accumulates from time 0, but the path starts at t = {float(times[0])}")
    if path.points.shape[2] != d:
        raise InvalidInput(f"the path has dimension {path.points.shape[2]} but the weights have dimension {d}")
    return times


def optimal_time(beta: float, C: float, c: float) -> tuple[float, float]:
    """(T*, error): T* = log(beta/log(beta+1))/(2(C+c)) balances sqrt(log(beta+1)/beta) e^{Ct} with e^{-ct} (S5).

    The error is (log(beta+1)/beta)^{c/(2(C+c))} up to a constant. c = infinity, data that are at their limit from
    the start: T* = 0.
    """
    beta = number(beta, "beta", above=0.0)
    C, c = number(C, "C", finite=False), number(c, "c", finite=False)
    if not C + c > 0:
        raise InvalidInput(f"the optimal time needs C + c > 0, got C = {C}, c = {c}")
    ratio = math.log1p(beta) / beta
    if c == math.inf:
        return 0.0, math.sqrt(ratio)
    return max(0.0, -math.log(ratio) / (2 * (C + c))), ratio ** (c / (2 * (C + c)))


def synchronous_distance(a: Measure, b: Measure) -> float:
    """RMS geodesic distance of paired tokens, an upper bound of the geodesic W2 and of the chordal one."""
    a, b = as_measure(a), as_measure(b)
    if a.points.shape != b.points.shape:
        raise InvalidInput(
            f"tokens can be paired only with as many of the same dimension, got shapes {tuple(a.points.shape)} and "
            f"{tuple(b.points.shape)}"
        )
    return math.sqrt(float((a.mass * geodesic_distance(a.points, b.points) ** 2).sum()))
