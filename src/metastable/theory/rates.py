"""Rates of the zero-temperature flow, local, global and guaranteed; Lyapunov functions; period of a rotation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import OneLine, instance, number
from metastable.errors import InvalidInput, NotDefined
from metastable.spectral import Dominant
from metastable.theory.phases import terminal
from metastable.theory.spectrum import Spectrum, spectrum
from metastable.theory.tokens import check_weights, tokens
from metastable.weights import AttentionWeights


@dataclass(frozen=True, repr=False)
class Rates(OneLine):
    """Exponents of the approach to the limit, W2 ~ e^{-rate t}.

    c:          min(g_in, k g_out/2), of W2 for data with mass near the separatrix (Z7, N1); half the gap for
                k = dim E = 1 and B = I.
    local:      g_in = g/max|B^T e|, the slowest exponent near E; that of W2 for data off the separatrix (Z4).
    guaranteed: g/||B||, of tan(angle to E) along every orbit when M is symmetric (Z3).
    terminal:   exponent of the terminal phase (N5), V's gap where clusters attend themselves; NaN if unknown.
    """

    c: float
    local: float
    guaranteed: float
    terminal: float


def rates(w: AttentionWeights | Spectrum) -> Rates:
    """All exponents of one head; infinite where nothing decays because nothing is outside E.

    >>> r = rates(AttentionWeights(V=[[2.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]]))
    >>> r.c, r.local
    (0.5, 1.0)
    """
    s = w if isinstance(w, Spectrum) else spectrum(check_weights(w))
    return Rates(
        c=min(s.g_in, s.dimension * s.g_out / 2),
        local=s.g_in,
        guaranteed=s.gap / s.weights.B_norm if s.weights.B_norm > 0 else math.inf,
        terminal=s.V.gap if s.V.kind == "identity" else terminal(s).rate,
    )


def local_rate(w: AttentionWeights, u: Any) -> Float[Tensor, "n"]:
    """(l1 - l2)/|B^T u|: the sharp exponent at limit points u in E, one per row (Z4)."""
    x = tokens(u, check_weights(w).d).points
    return spectrum(w).gap / torch.linalg.vector_norm(x @ w.B.to(x), dim=1)


def rayleigh(w: AttentionWeights, points: Any) -> Float[Tensor, "n"]:
    """R(x) = <x, Mx>, non-decreasing along orbits when M is symmetric: dR/dt = 2|P_x Mx|^2/|B^T x| (Z3)."""
    x = tokens(points, check_weights(w).d).points
    return ((x @ w.M.to(x).T) * x).sum(1)


def squared_tangent(m: Dominant, points: Any) -> Float[Tensor, "n"]:
    """L(x) = tan^2(angle(x, E)) = |x - P_E x|^2/|P_E x|^2 with the orthogonal projector onto E (Z3)."""
    instance(m, "m", Dominant, "a Dominant such as spectrum(w).M")
    x = tokens(points, m.d).points
    onto = (x @ m.space.to(x)) @ m.space.to(x).T
    return ((x - onto) ** 2).sum(1) / (onto**2).sum(1)


def guaranteed_tangent(w: AttentionWeights, points: Any, t: float) -> Float[Tensor, "n"]:
    """tan(angle(x_0, E)) e^{-(l1-l2) t/||B||}: an upper bound of tan(angle(x(t), E)) for symmetric M (Z3)."""
    s = spectrum(check_weights(w))
    t = number(t, "t", least=0.0)
    if not s.M.symmetric:
        raise NotDefined("the Lyapunov bound of the angle to E needs a symmetric M = V B^T, and this M is not")
    return torch.sqrt(squared_tangent(s.M, points)) * math.exp(-rates(s).guaranteed * t)


def guaranteed_distance(w: AttentionWeights, rho0: Any, t: float) -> float:
    """Upper bound of W2(rho_t, Pi#rho_0) from the guaranteed angles: W2^2 <= E[2(1 - cos angle)], M symmetric."""
    rho = tokens(rho0, check_weights(w).d)
    tangent = guaranteed_tangent(w, rho, t)
    cosine = 1 / torch.sqrt(1 + tangent**2)
    return math.sqrt(float((rho.mass * 2 * (1 - cosine)).sum()))


def rotation_period(w: AttentionWeights) -> float:
    """T = int_0^{2 pi/omega} |B^T x(tau)| dtau: period of the limit orbit of a leading pair a +- i omega (Z10).

    Half a period takes x to -x. The integrand is periodic and analytic: the trapezoidal rule is exact to rounding.
    """
    s = spectrum(check_weights(w))
    if s.kind != "rotation" or s.dimension != 2:
        raise NotDefined(
            f"a period needs one complex pair that leads M = V B^T, got kind '{s.kind}', dimension {s.dimension}"
        )
    basis, B = s.M.space.numpy(), w.B.numpy()
    inner = basis.T @ s.M.matrix.numpy() @ basis
    inner = inner - np.trace(inner) / 2 * np.eye(2)
    omega = s.M.frequency
    previous = math.inf
    for points in 2 ** np.arange(6, 18):
        # inner^2 = -omega^2 I, hence e^{tau inner} = cos(omega tau) + sin(omega tau) inner/omega.
        phase = 2 * math.pi * np.arange(points) / points
        y = basis @ (np.cos(phase) * np.array([[1.0], [0.0]]) + np.sin(phase) / omega * inner[:, :1])
        speed = np.linalg.norm(B.T @ y, axis=0) / np.linalg.norm(y, axis=0)
        period = float(2 * math.pi / omega * speed.mean())
        if abs(period - previous) <= 1e-14 * period:
            return period
        previous = period
    raise InvalidInput(
        f"the rotation of M is too eccentric to integrate: its period converged only to {previous:g}"
    )
