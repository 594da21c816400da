"""The limit map Pi(x) = Qx/|Qx| of the zero-temperature flow, the limit Pi#rho_0, and what replaces it.

Q is the spectral projector of M = V B^T onto its dominant space E; tokens in ker Q (E^perp when M is symmetric),
the exceptional set, have no limit in E. Where M has no limit map, `comoving_target` is the moving one.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from metastable.arguments import OneLine, instance, number
from metastable.errors import InvalidInput, NotDefined
from metastable.flows.flow import Flow
from metastable.flows.orbit import orbit_clock
from metastable.measure import Measure, as_measure
from metastable.spectral import TOLERANCE, Dominant
from metastable.theory.head_of_flow import head_of
from metastable.theory.spectrum import Spectrum, spectrum
from metastable.theory.tokens import check_dimension, check_weights, read_times, tokens
from metastable.weights import AttentionWeights


class ExceptionalTokens(UserWarning):
    """Tokens that lie, to rounding, in the exceptional set ker Q, where the limit map is undefined."""


@dataclass(frozen=True, eq=False, repr=False)
class LimitMap(OneLine):
    """Pi(x) = Qx/|Qx|, callable on points (n, d); see `limit_map`."""

    spectrum: Spectrum

    def __post_init__(self) -> None:
        instance(self.spectrum, "the spectrum of a limit map", Spectrum, "a Spectrum, see spectrum(w)")

    @property
    def projector(self) -> Float[Tensor, "d d"]:
        """The spectral projector Q."""
        return self.spectrum.projector

    def __call__(self, points: Any) -> Float[Tensor, "n d"]:
        """Pi of every row; a row in the exceptional set becomes NaN and an `ExceptionalTokens` warning names it."""
        x = _rows(points, self.spectrum.weights.d)
        if self.spectrum.kind == "identity":
            return x.clone()
        image = _project(self.spectrum.M, x)
        bad = self._exceptional(x, image)
        if bool(bad.any()):
            warnings.warn(_report(bad), ExceptionalTokens, stacklevel=2)
            image[bad] = torch.nan
        return image / torch.linalg.vector_norm(image, dim=1, keepdim=True)

    def exceptional(self, points: Any) -> Bool[Tensor, "n"]:
        """Rows for which |Qx| is zero up to rounding, 32 units of |Q||x| componentwise."""
        x = _rows(points, self.spectrum.weights.d)
        return self._exceptional(x, _project(self.spectrum.M, x))

    def _exceptional(self, x: Tensor, image: Tensor) -> Tensor:
        # Componentwise, so that a token at distance 1e-20 of an axis-aligned separatrix is not condemned.
        noise = torch.linalg.vector_norm(x.abs() @ self.projector.abs().T.to(x), dim=1)
        return torch.linalg.vector_norm(image, dim=1) <= 32 * torch.finfo(x.dtype).eps * noise


def limit_map(w: AttentionWeights | Flow, tolerance: float = TOLERANCE) -> LimitMap:
    """The map Pi with x(t) -> Pi(x_0) for the zero-temperature flow: Pi(x) = Qx/|Qx| (Z2, Z10).

    Orthogonal projection when M is symmetric, oblique when it is not. w: the head, or a flow that consists of one.
    A singular B, as every head of a trained layer has, leaves the map defined outside ker B^T if the leading
    eigenvalue of M is positive: then E does not meet ker B^T, and no token reaches it. Refuses weights without a
    limit map: a dominant space that is not isolated at `tolerance`, a leading complex pair or Jordan block.

    >>> w = AttentionWeights(V=[[2.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
    >>> limit_map(w)([[-0.6, 0.8]]).tolist()
    [[-1.0, 0.0]]
    """
    s = _spectrum(head_of(w)[0], tolerance)
    if not s.singular:
        check_isolated(s)
    elif s.M.value <= tolerance * s.weights.V_norm * s.weights.B_norm:
        raise NotDefined(
            f"there is no limit map: B is singular, and M = V B^T has no eigenvalue of positive real part (largest "
            f"{s.M.value:.3g}), so that tokens run into the kernel of B^T, where the flow ends"
        )
    else:
        s.M.require_isolated()
    if s.kind == "rotation":
        raise NotDefined(
            f"the zero-temperature flow has no limit: a complex pair {s.M.value:.4g} +- {s.M.frequency:.4g}i leads "
            "M = V B^T; use comoving_target(w, points, t), the asymptotic phase carried by the flow"
        )
    if s.kind == "jordan":
        raise NotDefined(
            "the limit map is not Qx/|Qx|: the leading eigenvalue of M = V B^T is defective and tokens approach "
            "its eigenvector algebraically; use comoving_target(w, points, t)"
        )
    return LimitMap(s)


def limit(w: AttentionWeights | Flow, rho0: Any, tolerance: float = TOLERANCE) -> Measure:
    """Pi#rho_0, the limit of the zero-temperature flow: row i is Pi(x_i) (`limit_map`) with the mass of token i.

    Tokens in the exceptional set to rounding have no place in it: they are left out, the other masses are scaled to
    sum to one, and an `ExceptionalTokens` warning says which tokens and how much mass.
    """
    pi = limit_map(w, tolerance)
    rho = as_measure(rho0)
    check_dimension(rho.d, pi.spectrum.weights.d)
    bad = pi.exceptional(rho.points) if pi.spectrum.kind != "identity" else torch.zeros(rho.n, dtype=torch.bool)
    if not bool(bad.any()):
        return Measure(pi(rho.points), rho.mass)
    lost = float(rho.mass[bad].sum())
    if bool(bad.all()):
        raise NotDefined("every token lies in the exceptional set of the limit map, so there is no limit measure")
    warnings.warn(
        f"{_report(bad)}; their mass {lost:.3g} is left out of the limit", ExceptionalTokens, stacklevel=2
    )
    return Measure(pi(rho.points[~bad]), rho.mass[~bad])


def comoving_target(
    w: AttentionWeights, points: Any, t: Any, tolerance: float = TOLERANCE
) -> Float[Tensor, "*m n d"]:
    """e^{tau_i(t) M} Q x_i/|.|: the point of E that token i follows, with its own clock tau_i (N6).

    Equals Pi(x_i) at all times when a limit map exists; for a leading complex pair it is the asymptotic phase on
    the periodic orbit, for a Jordan block the algebraic approach. t a number: (n, d); a sequence: (m, n, d).
    """
    s = _spectrum(w, tolerance)
    check_isolated(s)
    x = tokens(points, w.d).points
    times = read_times(t)
    tau = orbit_clock(w.M, w.B, x, np.atleast_1d(times))
    start = _project(s.M, x)
    start = start / torch.linalg.vector_norm(start, dim=1, keepdim=True)
    # Inside E the flow is e^{tau T11} in the orthonormal basis of E: small matrices, one per token and time.
    basis = s.M.space.to(x)
    inner = basis.T @ s.M.matrix.to(x) @ basis
    inner = inner - s.M.value * torch.eye(inner.shape[0], dtype=x.dtype, device=x.device)
    inside = torch.linalg.matrix_exp(tau[..., None, None] * inner) @ (start @ basis)[..., None]
    moved = inside[..., 0] @ basis.T
    moved = moved / torch.linalg.vector_norm(moved, dim=-1, keepdim=True)
    return moved[0] if times.ndim == 0 else moved


def _spectrum(w: Any, tolerance: Any) -> Spectrum:
    return spectrum(check_weights(w), number(tolerance, "tolerance", above=0.0, below=0.1))


def check_isolated(s: Spectrum) -> None:
    """Refuse a singular B and a dominant space that the tolerance cannot tell from the rest."""
    if s.singular:
        raise InvalidInput(
            "the zero-temperature flow needs an invertible B, got singular values from "
            f"{float(s.B_singular_values[-1]):.3g} to {float(s.B_singular_values[0]):.3g}: along its kernel "
            "attention stays warm; limit(w, tokens) may exist"
        )
    s.M.require_isolated()


def _project(m: Dominant, x: Tensor) -> Tensor:
    return x @ m.projector.to(x).T


def _rows(points: Any, d: int) -> Tensor:
    x = as_measure(points).points
    check_dimension(x.shape[1], d)
    return x


def _report(bad: Tensor) -> str:
    rows = torch.nonzero(bad)[:, 0].tolist()
    shown = ", ".join(map(str, rows[:8])) + (", ..." if len(rows) > 8 else "")
    return f"{len(rows)} token(s) lie in the exceptional set of the limit map to rounding (rows {shown})"
