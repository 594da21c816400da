"""`spectrum`: M = V B^T and V of one head, and what they say about the theorem's assumptions.

M rules the flow while clusters are wide (its dominant space E attracts the tokens), V once they are narrow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor

from metastable import arguments
from metastable.errors import InvalidInput
from metastable.measure import as_tensor
from metastable.spectral import TOLERANCE, Dominant, dominant
from metastable.theory.assumptions import Assumption, phase_sentence
from metastable.theory.subspaces import form_range, largest_angle, largest_image, least_turn
from metastable.weights import AttentionWeights

VANISHES = 1e-9
"""Delta and <e, Be> below VANISHES * ||B|| count as zero: far above the rounding of either."""
ALIGNED = TOLERANCE
"""Principal angles below this count as zero: spaces are known no better."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Spectral data of one head; `M` and `V` hold the two matrices, the plain names below are those of M.

    With E the dominant space of M, k = dim E, g its gap, e in E and e' in the next space, all of unit length:
    g_in = g / max|B^T e|, g_out = g / max|B^T e'|, delta = min(|B^T e| - |<B^T e, e>|) (section N4: how far the key
    that a cluster looks for is from the cluster or from its antipode). `attends` says which of the two: clusters at
    e with <e, Be> < 0 attend -e, and V acts on an antipodal pair as -V (C4). `angle` is the largest principal angle
    between the dominant spaces of M and V.
    """

    weights: AttentionWeights
    M: Dominant
    V: Dominant
    B_singular_values: Float[Tensor, "d"]

    def __post_init__(self) -> None:
        arguments.instance(self.weights, "weights", AttentionWeights, "AttentionWeights")
        for name in ("M", "V"):
            arguments.instance(getattr(self, name), name, Dominant, "a Dominant such as dominant(matrix)")
        arguments.instance(self.B_singular_values, "B_singular_values", Tensor, "a tensor")

    def __repr__(self) -> str:
        return f"Spectrum({self.kind!r}, d={self.M.d}, dim E={self.dimension}, gap={self.gap:.4g})"

    @property
    def eigenvalues(self) -> Complex[Tensor, "d"]:
        """Eigenvalues of M by descending real part."""
        return self.M.eigenvalues

    @property
    def kind(self) -> str:
        """What the limit of the zero-temperature flow looks like; see `Dominant`."""
        return self.M.kind

    @property
    def gap(self) -> float:
        """Gap of M between its leading group and the rest."""
        return self.M.gap

    @property
    def dimension(self) -> int:
        """k = dim E."""
        return self.M.dimension

    @property
    def dominant_space(self) -> Float[Tensor, "d k"]:
        """Orthonormal basis of E, the dominant space of M."""
        return self.M.space

    @property
    def projector(self) -> Float[Tensor, "d d"]:
        """Spectral projector of M onto E."""
        return self.M.projector

    @property
    def symmetry_defect(self) -> float:
        """||M - M^T||_F / (2 ||M||_F)."""
        return self.M.symmetry_defect

    @property
    def normality_defect(self) -> float:
        """||M M^T - M^T M||_F / ||M||_F^2."""
        return self.M.normality_defect

    @property
    def B_condition(self) -> float:
        """Condition number of B (infinite when B is singular to rounding)."""
        largest, smallest = float(self.B_singular_values[0]), float(self.B_singular_values[-1])
        return math.inf if self.singular else largest / smallest

    @property
    def singular(self) -> bool:
        """Whether B is singular to rounding, so that the zero-temperature flow is undefined on ker B^T."""
        largest, smallest = float(self.B_singular_values[0]), float(self.B_singular_values[-1])
        return smallest <= len(self.B_singular_values) * float(np.finfo(float).eps) * largest

    @cached_property
    def angle(self) -> float:
        """Largest principal angle between the dominant spaces of M and V (radians)."""
        return largest_angle(self.M.space, self.V.space)

    @cached_property
    def bottom_of_V(self) -> Dominant:
        """The dominant part of -V: the smallest eigenvalues of V, where mutually attending pairs go."""
        return dominant(-self.weights.V, self.V.tolerance)

    @cached_property
    def attends(self) -> str:
        """What a narrow cluster anywhere on E attends: "itself", its "antipode", or "neither" all over E (C4)."""
        return self.attention_on(self.M.space)

    def attention_on(self, space: Float[Tensor, "d k"]) -> str:
        """Sign of <c, Bc> over the unit vectors c of a space (orthonormal basis), in the words of `attends`."""
        space = as_tensor(space, "space").cpu().to(torch.float64)
        if space.ndim != 2 or space.shape[0] != self.M.d or space.shape[1] == 0:
            raise InvalidInput(f"space must be a basis of shape ({self.M.d}, k), got {arguments.shown(space)}")
        least, most = form_range(self._B_transpose, space)
        slack = VANISHES * self.weights.B_norm
        return "itself" if least > slack else "antipode" if most < -slack else "neither"

    @property
    def delta_vanishes(self) -> bool:
        """Delta = 0 to rounding: a cluster somewhere on E looks exactly for itself or for its antipode."""
        return self.delta <= VANISHES * self.weights.B_norm

    @cached_property
    def pairs_stay_antipodal(self) -> bool | None:
        """Whether -V outgrows V, so that mutually attending clusters stay antipodal; None when the two tie.

        Two such clusters obey c_+' = P V c_-, c_-' = P V c_+: their difference grows like e^{-tV}, their sum like
        e^{tV}. The larger real part wins: an antipodal pair on the bottom of V, or both clusters on its top.
        """
        lead = self.bottom_of_V.value - self.V.value
        return None if abs(lead) <= self.V.tolerance * self.weights.V_norm else lead > 0

    @cached_property
    def clusters_stay(self) -> bool:
        """Whether narrow clusters on E rest there: E on top of V, or on the bottom if clusters attend antipodes."""
        if self.weights.V_norm == 0:
            return True
        if not self.delta_vanishes or self.attends == "neither":
            return False
        if self.attends == "itself":
            return self.angle < ALIGNED
        return bool(self.pairs_stay_antipodal) and largest_angle(self.M.space, self.bottom_of_V.space) < ALIGNED

    @cached_property
    def clusters_narrow(self) -> bool:
        """Whether what clusters on E attend pulls them together: V > 0 on E, V < 0 where they attend antipodes."""
        least, most = form_range(self.weights.V.detach().cpu().numpy(), self.M.space)
        return least > 0 if self.attends == "itself" else most < 0

    @cached_property
    def g_in(self) -> float:
        """g / max_{e in E}|B^T e|: the rate at which tokens near E approach it."""
        return _rate(self.gap, largest_image(self._B_transpose, self.M.space))

    @cached_property
    def g_out(self) -> float:
        """g / max|B^T e'| over the next space: the rate at which tokens near the separatrix leave it."""
        return _rate(self.gap, largest_image(self._B_transpose, self.M.next_space))

    @cached_property
    def delta(self) -> float:
        """min over unit e in E of |B^T e| - |<B^T e, e>|."""
        return least_turn(self._B_transpose, self.M.space)

    @cached_property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Which assumptions of the concentration theorem these weights meet, one sentence each."""
        m = self.M
        yes_no = {
            "B invertible": (
                not self.singular,
                f"B is invertible with condition number {self.B_condition:.3g}."
                if not self.singular
                else "B is singular: the zero-temperature flow is undefined on the kernel of B^T.",
            ),
            "M symmetric": (
                m.symmetric,
                "M = V B^T is symmetric: Pi is the nearest-point map onto E and W2 to the limit is exact."
                if m.symmetric
                else f"M = V B^T is not symmetric (defect {m.symmetry_defect:.3g}): Pi uses the oblique spectral "
                f"projector of norm {m.projector_norm:.3g}.",
            ),
            "dominant space isolated": (
                m.isolated,
                "M = V B^T is a multiple of the identity: its dominant space is the whole space."
                if m.gap == math.inf
                else f"The leading {m.dimension} eigenvalue(s) of M are separated by the gap {m.gap:.4g}."
                if m.isolated
                else f"The gap {m.gap:.3g} of M is within rounding tolerance: the dominant space is not isolated.",
            ),
            "limit exists": (
                m.kind not in ("rotation", "jordan"),
                {
                    "rotation": f"A complex pair leads M (frequency {m.frequency:.4g} in tau): orbits turn for "
                    "ever and the limit map is replaced by the asymptotic phase.",
                    "jordan": "The leading eigenvalue of M is defective: tokens approach its eigenvector "
                    "algebraically, not exponentially.",
                    "identity": "At zero temperature nothing moves: every token is its own limit.",
                }.get(m.kind, f"The zero-temperature flow converges to a limit of kind '{m.kind}'."),
            ),
            "metastable": (
                not self.delta_vanishes or self.clusters_stay,
                "V is zero: nothing moves and no phase ends."
                if self.weights.V_norm == 0
                else phase_sentence(
                    self.attends,
                    delta=None if self.delta_vanishes else self.delta,
                    stay=self.clusters_stay,
                    narrow=self.clusters_narrow,
                    angle=self.angle,
                ),
            ),
        }
        return tuple(Assumption(name, holds, sentence) for name, (holds, sentence) in yes_no.items())

    @property
    def _B_transpose(self) -> np.ndarray:
        return self.weights.B.detach().cpu().numpy().T

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for JSON."""
        return {
            "M": self.M.to_dict(),
            "V": self.V.to_dict(),
            "B_condition": self.B_condition if math.isfinite(self.B_condition) else None,
            "angle": self.angle,
            "g_in": self.g_in if math.isfinite(self.g_in) else None,
            "g_out": self.g_out if math.isfinite(self.g_out) else None,
            "delta": self.delta,
            "attends": self.attends,
            "assumptions": [vars(a) for a in self.assumptions],
        }


def spectrum(w: AttentionWeights, tolerance: float = TOLERANCE) -> Spectrum:
    """Eigenvalues, dominant spaces, gaps, projectors and defects of M = V B^T and of V.

    Eigenvalues are ordered by descending real part ("dominant" for a flow e^{tau M} is the largest real part, not
    the largest modulus); real parts within `tolerance` * ||M|| count as equal.

    >>> w = AttentionWeights(V=[[1.0, 0.0], [0.0, 2.0]], B=[[3.0, 0.0], [0.0, 1.0]])
    >>> s = spectrum(w)
    >>> s.kind, s.gap, round(s.g_in, 12), s.g_out, s.delta
    ('point pair', 1.0, 0.333333333333, 1.0, 0.0)
    """
    w = arguments.instance(w, "w", AttentionWeights, "AttentionWeights")
    return Spectrum(
        weights=w,
        M=dominant(w.M, tolerance),
        V=dominant(w.V, tolerance),
        B_singular_values=torch.linalg.svdvals(w.B.detach().cpu().to(torch.float64)),
    )


def _rate(gap: float, largest: float) -> float:
    """gap / (largest length of an image of a unit vector); infinite where there is no such vector or image."""
    return gap / largest if largest > 0 else math.inf
