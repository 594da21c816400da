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

from metastable.errors import InvalidInput
from metastable.flows import SelfAttention
from metastable.measure import Measure
from metastable.sphere import geodesic_distance, normalize, project_tangent, uniform
from metastable.theory.laplace import cap_bound
from metastable.theory.tokens import tokens
from metastable.weights import AttentionWeights

CEILING = 1e12
"""Bounds stop growing here, so that they cannot overflow; W2 is at most 2, so that they have said their last
word."""
LARGEST_EXPONENT = 700.0
"""Exponents are cut here, just below the 709.78 at which e^x overflows."""


def jacobian(w: AttentionWeights, points: Any) -> Float[Tensor, "n d d"]:
    """J(x) = P(M - <x,Mx> I)P/r - v_0(x)(P BB^T x)^T/r^2, the derivative of v_0(x) = P_x Mx/r, r = |B^T x| (S2)."""
    return _jacobian(w, tokens(points, w.d).points)


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


def velocity_defect(w: AttentionWeights, beta: float, points: Tensor, mass: Tensor) -> float:
    """eps = rms|v_beta - v_0| over the tokens, v_beta the softmax field of the tokens themselves."""
    x, mass = normalize(points.to(torch.float64)), mass.to(torch.float64)
    direction = w.B_transpose(x)
    v0 = project_tangent(x, w.apply_V(direction / torch.linalg.vector_norm(direction, dim=1, keepdim=True)))
    v = SelfAttention(w, beta=beta).velocity(0.0, x, mass)
    return math.sqrt(float((mass * ((v - v0) ** 2).sum(1)).sum()))


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


def posteriori_bound(w: AttentionWeights, beta: float, path: Any, L0: float | None = None) -> PosterioriBound:
    """S3 from a run of the softmax flow: `path` has times (m,), points (m, n, d), mass (n,), starting at time 0.

    Between two saved times the larger of their two defects counts. What the defect does in between is not seen, so
    that a run saved too rarely can give too small a bound: halve the distance of the times until it stops growing.
    """
    times = torch.as_tensor(np.asarray(path.times, dtype=np.float64))
    if float(times[0]) != 0.0:
        raise InvalidInput(f"the bound accumulates from time 0, but the path starts at t = {float(times[0])}")
    if path.points.shape[2] != w.d:
        raise InvalidInput(f"the path has dimension {path.points.shape[2]} but the weights have dimension {w.d}")
    constant = growth_constant(w) if L0 is None else L0
    defects = [velocity_defect(w, beta, x, path.mass) for x in path.points]
    return PosterioriBound(
        times,
        torch.tensor(defects, dtype=torch.float64),
        constant,
        accumulated_bound(times, defects, constant, upper=True),
    )


@dataclass(frozen=True, eq=False)
class PrioriBound:
    """Theorem-type bound S4: W2(rho_t^beta, rho_t^0) <= min(2, ||V|| int_0^t e^{L_0(t-s)} laplace(s) ds).

    laplace(s) bounds |m_beta - e| by L4 with cap masses of rho_0 carried by the zero-temperature flow, of Lipschitz
    constant e^{L_0 s}: a cap of angle theta around any point holds at least the smallest rho_0-mass of a cap of
    angle theta e^{-L_0 s}. Explicit and pessimistic; finite-beta transport of the masses is not accounted for.
    """

    L0: float
    kappa: float
    V_norm: float
    angles: np.ndarray
    smallest_mass: np.ndarray

    def laplace(self, s: float) -> float:
        """Bound of |m_beta - e| at time s."""
        shrink = math.exp(-min(self.L0 * s, LARGEST_EXPONENT))

        def cap_mass(height: np.ndarray) -> np.ndarray:
            angle = np.arccos(np.clip(1 - height, -1.0, 1.0)) * shrink
            index = np.searchsorted(self.angles, angle, side="right") - 1
            return np.where(index >= 0, self.smallest_mass[np.maximum(index, 0)], 0.0)

        return cap_bound(self.kappa, cap_mass)

    def __call__(self, t: Any) -> Any:
        """The bound at time(s) t; a float for a number, a tensor for a sequence."""
        wanted = np.asarray(t, dtype=np.float64)
        end = float(np.max(wanted, initial=0.0))
        grid = np.unique(np.concatenate([np.linspace(0, end, 129), np.atleast_1d(wanted), [0.0]]))
        # The Laplace error grows with s, so the larger end of a panel keeps the sum an upper bound.
        errors = np.array([self.V_norm * self.laplace(float(s)) for s in grid])
        total = accumulated_bound(grid, errors, self.L0, upper=True).numpy()
        value = np.minimum(2.0, np.interp(wanted, grid, total))
        return float(value) if wanted.ndim == 0 else torch.from_numpy(value)


def priori_bound(
    w: AttentionWeights, beta: float, rho0: Any, L0: float | None = None, seed: int = 0
) -> PrioriBound:
    """S4 for tokens: the smallest cap masses of rho_0 over a sample of directions (the tokens and uniform ones)."""
    rho = tokens(rho0, w.d)
    d = rho.d
    count = int(max(16, min(512, 2e7 // rho.n)))
    generator = torch.Generator().manual_seed(seed)
    chosen = rho.points[torch.randint(rho.n, (count // 2,), generator=generator)]
    directions = torch.cat([chosen, -chosen, uniform(count, d, generator)])
    angles = np.concatenate([[0.0], np.geomspace(1e-6, math.pi, 400)])
    smallest = np.full(len(angles), np.inf)
    for block in directions.split(32):
        angle = torch.acos(torch.clamp(block @ rho.points.T, -1.0, 1.0))
        order = torch.argsort(angle, dim=1)
        total = torch.cumsum(rho.mass[order], dim=1)
        index = torch.searchsorted(
            torch.gather(angle, 1, order), torch.from_numpy(angles).expand(len(block), -1).contiguous(), right=True
        )
        mass = torch.where(index > 0, torch.gather(total, 1, (index - 1).clamp(min=0)), 0.0)
        smallest = np.minimum(smallest, mass.min(dim=0).values.numpy())
    constant = growth_constant(w) if L0 is None else L0
    floor = beta * float(torch.linalg.svdvals(w.B)[-1])
    return PrioriBound(constant, floor, w.V_norm, angles, smallest)


def optimal_time(beta: float, C: float, c: float) -> tuple[float, float]:
    """(T*, error): T* = log(beta/log(beta+1))/(2(C+c)) balances sqrt(log(beta+1)/beta) e^{Ct} with e^{-ct} (S5).

    The error is (log(beta+1)/beta)^{c/(2(C+c))} up to a constant. c = infinity, data that are at their limit from
    the start: T* = 0.
    """
    if not (beta > 0 and C + c > 0):
        raise InvalidInput(f"the optimal time needs beta > 0 and C + c > 0, got beta = {beta}, C + c = {C + c}")
    ratio = math.log1p(beta) / beta
    if c == math.inf:
        return 0.0, math.sqrt(ratio)
    return max(0.0, -math.log(ratio) / (2 * (C + c))), ratio ** (c / (2 * (C + c)))


def synchronous_distance(a: Measure, b: Measure) -> float:
    """RMS geodesic distance of paired tokens, an upper bound of the geodesic W2 and of the chordal one."""
    if a.points.shape != b.points.shape:
        raise InvalidInput(
            f"tokens can be paired only with as many of the same dimension, got shapes {tuple(a.points.shape)} and "
            f"{tuple(b.points.shape)}"
        )
    return math.sqrt(float((a.mass * geodesic_distance(a.points, b.points) ** 2).sum()))
