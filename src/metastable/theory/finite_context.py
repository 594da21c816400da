"""What n iid tokens add to the distance of the main theorem: E W2(rho_t^n, Pi#rho_0)^2.

dim E = 1. At zero temperature a share of n tokens falls to either side of the separatrix E^perp: a binomial number,
and W2^2 = 4|p_n - p| once they are there. At inverse temperature beta the noise of the attended mean shifts the
separatrix, and with it the share by the mean of an influence psi(x_i) over the tokens: to first order in the noise
    p_n = (1/n) sum_i phi(x_i),   phi(x) = 1[<x, e> > 0] + psi(x)                                             (X7)
so that p_n is normal around E phi with variance Var phi/n. Its mean gives the floor of the mean field (E2).
dim E = 2. W2^2 of n iid points on the circle is pi^2/(3n), and grows with the modes of the density (X8).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from metastable import arguments
from metastable.errors import NotDefined
from metastable.flows.orbit import orbit
from metastable.measure import Measure
from metastable.theory.chaos import sampled_circle_distance
from metastable.theory.laplace import effective_tokens
from metastable.theory.modes import clustering_time
from metastable.theory.spectrum import Spectrum
from metastable.theory.tokens import tokens
from metastable.theory.zero_temperature import nearest_point_distance

SATURATION = 4.0
"""Tokens per attention window at which the influence is half of what infinitely many give: n_eff/(n_eff + 4). A
token alone in its window attends itself and shifts nothing. Measured (`tests/theory/test_finite_context.py`)."""
LEAST_EFFECTIVE_TOKENS = 4.0
"""Tokens per window below which what attention adds is not claimed: the saturation was fitted from there on."""
SCALAR = 1e-9
"""Defects of B and V below SCALAR times their norms count as zero: far above rounding."""
STEPS = 240
"""Steps of the quadrature of the influence along an orbit, over about ln(10^6) e-folds: an error below 1e-4."""
WINDOWS = 9.0
"""Windows kappa^{-1/2} from the separatrix beyond which a token has no influence, e^{-9^2/2}."""
NORMAL = np.linspace(-8.0, 8.0, 4001)
DENSITY = np.exp(-(NORMAL**2) / 2) / np.exp(-(NORMAL**2) / 2).sum()
"""A normal variable on a grid: the trapezoidal rule, with an error of 1e-5 at the kink of |.|."""
WIDTH_ORDER, A_TENTH = 0.65, 0.1
"""The zero-temperature width is off by about 0.65 (V_1 b/g)(d-1)/kappa of itself on the way (measured for d = 2, 3
and 4, kappa = 16 and 32): tokens that follow their cluster narrow it faster. Beyond a tenth of W2^2 nothing is
claimed."""
UNEVEN = 4.0
"""Standard errors of the first four Fourier modes within which a law on the circle counts as uniform."""
EARLY = 0.25
"""Share of the clustering time up to which modes on a circle grow as if they were small, within a tenth of W2^2."""


@dataclass(frozen=True)
class FiniteContext:
    """E W2(rho_t^n, Pi#rho_0)^2 of n iid tokens at time t, in parts.

    width: the zero-temperature D0(t)^2. sampling: what n draws of the law add. context: what their noise adds
    through attention at this beta. why: why the sum is not claimed to hold, empty where it is.
    """

    n: int
    t: float
    width: float
    sampling: float
    context: float
    why: str

    def __post_init__(self) -> None:
        arguments.integer(self.n, "n", least=1)
        for name in ("t", "width", "sampling", "context"):
            arguments.number(getattr(self, name), name)
        arguments.instance(self.why, "why", str, "a sentence")

    @property
    def squared(self) -> float:
        """The expected square of W2."""
        return self.width + self.sampling + self.context

    @property
    def rms(self) -> float:
        """The root of it."""
        return math.sqrt(self.squared)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings for JSON."""
        return asdict(self) | {"squared": self.squared, "rms": self.rms, "in_range": self.in_range}

    @property
    def in_range(self) -> bool:
        """Whether the sum is claimed to be the mean over samples, to about a tenth."""
        return not self.why


def finite_context(s: Spectrum, beta: float, rho0: Measure, n: int, t: float) -> FiniteContext:
    """E W2(rho_t^n, Pi#rho_0)^2 for n iid tokens of the law that rho_0 stands for, at time t before the exit.

    Defined for M symmetric and dim E = 1 or 2; beyond that only rates are known, n^{-2/(k-1)}.

    >>> from metastable import sphere
    >>> from metastable.theory.spectrum import spectrum
    >>> from metastable.weights import AttentionWeights
    >>> s = spectrum(AttentionWeights(V=[[2.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]]))
    >>> found = finite_context(s, 16.0, Measure(sphere.equispaced(500)), n=128, t=8.0)
    >>> round(found.sampling, 3), round(found.context, 3), found.in_range
    (0.141, 0.04, True)
    """
    arguments.instance(s, "s", Spectrum, "a Spectrum such as spectrum(w)")
    beta = arguments.number(beta, "beta", above=0)
    n = arguments.integer(n, "n", least=2, most=2**53)
    t = arguments.number(t, "t", least=0)
    rho = tokens(rho0, s.weights.d)
    if not s.M.symmetric or s.kind in ("rotation", "jordan") or s.dimension > 2:
        shape = f"of kind '{s.kind}'" if s.M.symmetric else "not symmetric"
        raise NotDefined(
            f"finite context: known for symmetric M = V B^T and dim E = 1 or 2 only; it is {shape}, dim E = "
            f"{s.dimension}"
        )
    orbits = orbit(s.weights.M, s.weights.B, rho.points, np.array([t]))
    width = float(nearest_point_distance(s.projector, orbits, rho.mass)[0]) ** 2
    if s.dimension == 1:
        return _two_sides(s, beta, rho, n, t, width, orbits[0] @ s.M.space[:, 0])
    return _circle(s, beta, rho, n, t, width)


def side_influence(s: Spectrum, beta: float, points: Measure | torch.Tensor) -> torch.Tensor:
    """psi(x) = sgn V_1 int_0^inf eps(t) N(eps(t); 0, 1/kappa) dt, (n,), dim E = 1, B scalar on E^perp (X7).

    eps(t) is the tangent of the latitude over E^perp along the zero-temperature orbit from x, kappa = beta b with
    B = b on E^perp, V_1 the value of V on E. For M two-level sgn (V_1 b/g) Q(sqrt(kappa) eps(0)), Q normal tail.
    """
    arguments.instance(s, "s", Spectrum, "a Spectrum such as spectrum(w)")
    beta = arguments.number(beta, "beta", above=0)
    x = tokens(points, s.weights.d).points
    if s.dimension != 1 or not s.M.symmetric or not _scalar_beside(s):
        raise NotDefined("the influence is known for symmetric M, dim E = 1 and B scalar beside E only")
    values, vectors = np.linalg.eigh((s.M.matrix + s.M.matrix.T).numpy() / 2)
    l1, rest = values[-1], values[:-1] - values[-1]
    coordinates = x.numpy() @ vectors
    height, beside = coordinates[:, -1], coordinates[:, :-1] ** 2
    b = _beside(s)
    root = math.sqrt(beta * b)
    # eps(tau) = |height|/|e^{tau(M - l1)} beside|; it grows at least like e^{g tau}.
    with np.errstate(divide="ignore"):
        last = np.log(WINDOWS * np.sqrt(beside.sum(1)) / (root * np.abs(height))) / -rest.max()
    last = np.where(np.isfinite(last), np.maximum(last, 0.0), 0.0)
    total = np.zeros(len(height))
    for step in range(STEPS + 1):
        tau = last * step / STEPS
        shrunk = np.sqrt((beside * np.exp(2 * rest * tau[:, None])).sum(1))
        near = np.divide(root * np.abs(height), shrunk, out=np.full_like(shrunk, math.inf), where=shrunk > 0)
        share = (0.5 if step in (0, STEPS) else 1.0) * last / STEPS
        total += share * np.where(np.isfinite(near), near * np.exp(-(np.minimum(near, 40.0) ** 2) / 2), 0.0)
    pull = l1 / float(s.M.space[:, 0] @ s.weights.B @ s.M.space[:, 0])
    return torch.from_numpy(np.sign(height) * pull * b / math.sqrt(2 * math.pi) * total)


def _two_sides(
    s: Spectrum, beta: float, rho: Measure, n: int, t: float, width: float, height: torch.Tensor
) -> FiniteContext:
    """dim E = 1: the cost of the mass that is on the wrong side."""
    mass = rho.mass
    upper = ((rho.points @ s.M.space[:, 0]) > 0).to(mass)
    p = min(float(mass @ upper), 1.0)  # all of the masses add up to more than one, by rounding
    order = torch.argsort(height.abs())
    below = np.concatenate([[0.0], torch.cumsum(mass[order], 0).numpy()])
    paid = np.concatenate([[0.0], torch.cumsum((mass * height.abs())[order], 0).numpy()])

    def cost(mean: float, variance: float) -> float:
        """E of 4 int |x_1| over a mass |N(mean, variance)| of one side, that next to the separatrix."""
        wrong = np.abs(mean + math.sqrt(variance) * NORMAL)
        return float(2 * np.interp(np.minimum(2 * wrong, 1.0), below, paid) @ DENSITY)

    sampling = cost(0.0, p * (1 - p) / n)
    if not _scalar_beside(s):
        why = "B is no positive multiple of the identity on the complement of E: what attention adds is not known"
        return FiniteContext(n, t, width, sampling, 0.0, why)
    psi = side_influence(s, beta, rho)
    bias = float(mass @ psi)
    extra = float(mass @ ((upper - p + psi - bias) ** 2)) - p * (1 - p)
    window = float(effective_tokens(n, beta * _beside(s), rho.d))
    share = window / (window + SATURATION)
    context = cost(share * bias, max(p * (1 - p) + share * extra, 0.0) / n) - sampling
    why = ""
    if s.attends != "itself" or not s.clusters_stay:
        why = "tokens alone in their window follow V, on top of which E is not"
    elif not s.clusters_narrow:
        why = "V is negative on E, and clusters keep a width"
    elif window < LEAST_EFFECTIVE_TOKENS:
        why = f"{window:.2g} tokens per attention window are below {LEAST_EFFECTIVE_TOKENS:g}"
    elif _width_error(s, beta) * width > A_TENTH * (width + sampling + context):
        why = "tokens are on their way, where the width at this beta is not yet that of zero temperature"
    return FiniteContext(n, t, width, sampling, context, why)


def _circle(s: Spectrum, beta: float, rho: Measure, n: int, t: float, width: float) -> FiniteContext:
    """dim E = 2: points on a circle, whose density modes grow."""
    E, w = s.M.space, s.weights
    image = (rho.points @ E).numpy()
    phase = (image[:, 0] + 1j * image[:, 1]) / np.maximum(np.hypot(image[:, 0], image[:, 1]), 1e-300)
    modes = [abs(np.sum(rho.mass.numpy() * phase**k)) for k in range(1, 5)]
    noise = math.sqrt(float((rho.mass**2).sum()))
    B_on, V_on = (E.T @ matrix @ E for matrix in (w.B, w.V))
    scalar = _multiple(B_on, w.B_norm) and _multiple(V_on, w.V_norm)
    b, v = float(B_on[0, 0]), float(V_on[0, 0])
    sampling = math.pi**2 / (3 * n)
    if not scalar or b <= 0:
        return FiniteContext(n, t, width, sampling, 0.0, "V and B are no multiples of the identity on E")
    context = sampled_circle_distance(t, beta * b, n, v) - sampling
    late = clustering_time(n, beta * b, 2, v) if v > 0 else math.inf
    why = ""
    if max(modes) > UNEVEN * noise:
        why = "Pi#rho_0 is not uniform on the circle"
    elif t > EARLY * late:
        why = f"tokens on E gather in clusters from {EARLY * late:.3g} on"
    return FiniteContext(n, t, width, sampling, context, why)


def _width_error(s: Spectrum, beta: float) -> float:
    """Relative error of the width on the way: that of 1/kappa."""
    V_1 = s.M.value / float(s.M.space[:, 0] @ s.weights.B @ s.M.space[:, 0])
    return WIDTH_ORDER * V_1 * (s.weights.d - 1) / (s.gap * beta)


def _beside(s: Spectrum) -> float:
    """b of B = b on E^perp: the mean of its diagonal there."""
    e = s.M.space[:, 0]
    return float((torch.trace(s.weights.B) - e @ s.weights.B @ e) / (s.weights.d - 1))


def _scalar_beside(s: Spectrum) -> bool:
    """Whether B = b > 0 on E^perp, and B^T maps E^perp into itself."""
    e, B = s.M.space[:, 0], s.weights.B
    off = torch.eye(s.weights.d, dtype=torch.float64) - torch.outer(e, e)
    defect = B.T @ off - _beside(s) * off
    return _beside(s) > 0 and float(torch.linalg.matrix_norm(defect, 2)) <= SCALAR * s.weights.B_norm


def _multiple(matrix: torch.Tensor, size: float) -> bool:
    """Whether a square matrix is a multiple of the identity, to SCALAR of a size."""
    scalar = torch.trace(matrix) / len(matrix) * torch.eye(len(matrix), dtype=torch.float64)
    return float(torch.linalg.matrix_norm(matrix - scalar, 2)) <= SCALAR * size
