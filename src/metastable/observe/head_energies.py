"""The energy of every head, what pulls at the tokens, and how each head fares along the common flow.

[arXiv:2605.04279]: E = sum_h E_h grows along x_i' = P_{x_i} sum_h F_i^h, but a single E_h need not, because of the
radial shadows <x_i, F_i^h>.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import instance, number, shape, shown
from metastable.errors import InvalidInput, NoEnergy
from metastable.flows import MultiHead, UnnormalizedAttention
from metastable.flows.energy import require_gradient_structure
from metastable.measure import as_measure, as_tensor

PARTS = ("points", "mass", "energy", "pull")
"""Fields of `HeadEnergies`, whose shapes have to agree."""


@dataclass(frozen=True, eq=False, repr=False)
class HeadEnergies:
    """E_h = (c_h/2 beta_h) sum_ij m_i m_j e^{beta_h <x_i, M_h x_j>} of heads V_h = c_h M_h, M_h symmetric.

    pull: F_i^h = c_h sum_j m_j e^{beta_h <x_i, M_h x_j>} M_h x_j, the gradient of E_h by x_i over m_i; tokens of
    equal mass have F_i^h = f_i^h/n in the paper's notation. The mean of H heads divides both by H.
    """

    points: Float[Tensor, "n d"]
    mass: Float[Tensor, "n"]
    energy: Float[Tensor, "h"]
    pull: Float[Tensor, "h n d"]

    def __post_init__(self) -> None:
        sizes = [shape(instance(getattr(self, part), part, Tensor, "a tensor")) or () for part in PARTS]
        fitting = len(sizes[3]) == 3 and sizes == [sizes[3][1:], sizes[3][1:2], sizes[3][:1], sizes[3]]
        if not fitting:
            raise InvalidInput(
                f"{', '.join(PARTS)} must have shapes (n, d), (n,), (h,), (h, n, d), got {shown(sizes)}"
            )

    @property
    def total(self) -> float:
        """E = sum_h E_h."""
        return float(self.energy.sum())

    @cached_property
    def shadow(self) -> Float[Tensor, "h n"]:
        """<x_i, F_i^h>, what a head pulls along the token itself: it moves nothing, and is felt by other heads."""
        return (self.pull * self.points).sum(2)

    @cached_property
    def tangential(self) -> Float[Tensor, "h n d"]:
        """P_{x_i} F_i^h."""
        return self.pull - self.shadow[:, :, None] * self.points

    @property
    def velocity(self) -> Float[Tensor, "n d"]:
        """x_i' = P_{x_i} sum_h F_i^h."""
        return self.tangential.sum(0)

    @property
    def production(self) -> Float[Tensor, "h"]:
        """dE_h/dt = sum_i m_i [|P F_i^h|^2 + sum_{h' != h} (<F_i^h, F_i^h'> - <x_i, F_i^h><x_i, F_i^h'>)] (V2)."""
        # The brackets are <P F_i^h, P F_i^h'>: without a difference of near numbers when tokens have gathered.
        return torch.einsum("hid,id,i->h", self.tangential, self.velocity, self.mass)

    @property
    def dissipation(self) -> float:
        """dE/dt = sum_i m_i |P sum_h F_i^h|^2 >= 0 (V1)."""
        return float(self.mass @ self.velocity.square().sum(1))

    @property
    def dominance(self) -> Float[Tensor, "h n"]:
        """|P F_i^h|^2 - |<x_i, F_i^h>| sum_{h' != h} |<x_i, F_i^h'>|: >= 0 everywhere is radial dominance.

        For heads with M_h M_h' = 0 it is sufficient for every E_h to grow (V4).
        """
        size = self.shadow.abs()
        return self.tangential.square().sum(2) - size * (size.sum(0) - size)

    def along(self, velocity: Any) -> Float[Tensor, "h"]:
        """dE_h/dt = sum_i m_i <F_i^h, x_i'> for tokens that move with any velocity (n, d)."""
        moved = as_tensor(velocity, "velocity", self.points.dtype).to(self.points.device)
        if moved.shape != self.points.shape or not bool(torch.isfinite(moved).all()):
            raise InvalidInput(
                f"velocity must be finite and of shape {tuple(self.points.shape)}, got {shown(velocity)}"
            )
        return torch.einsum("hid,id,i->h", self.pull, moved, self.mass)

    def __repr__(self) -> str:
        heads, n = self.shadow.shape
        return f"HeadEnergies({heads} heads, {n} tokens, total {self.total:.6g})"


def head_energies(rho: Any, flow: MultiHead | UnnormalizedAttention, t: float = 0.0) -> HeadEnergies:
    """The energies of all heads of an unnormalised flow at the tokens rho, and the pulls that are their gradients.

    Every head needs a symmetric M_h and values V_h = c_h M_h (Score Symmetry and Value Alignment). t: the time at
    which weights that depend on time are taken.

    >>> from metastable.weights import AttentionWeights
    >>> head = UnnormalizedAttention(AttentionWeights(V=torch.eye(2), B=torch.eye(2)), beta=1.0)
    >>> head_energies([[1.0, 0.0], [0.0, 1.0]], MultiHead([head, head])).production
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    instance(flow, "flow", (MultiHead, UnnormalizedAttention), "a MultiHead of UnnormalizedAttention")
    t = number(t, "t")
    heads = flow.heads if isinstance(flow, MultiHead) else (flow,)
    factor = flow.factor if isinstance(flow, MultiHead) else 1.0
    measure = as_measure(rho)
    if not measure.sphere or measure.d != flow.d:
        raise InvalidInput(f"energies of these heads need tokens on S^{flow.d - 1}, got {measure!r}")
    energies, pulls = [], []
    for place, head in enumerate(heads):
        if not isinstance(head, UnnormalizedAttention) or head.log_scale != 0:
            raise NoEnergy(f"only unnormalised heads without a change of time have energies, got {shown(head)}")
        try:
            c = require_gradient_structure(head.weights_at(t))
        except NoEnergy as error:
            raise NoEnergy(f"{error} (head {place})") from None
        energies.append(c * head.energy(measure.points, measure.mass, t))
        pulls.append(head.ambient_drift(t, measure.points, measure.mass).vector)
    energy = torch.tensor(energies, dtype=measure.points.dtype, device=measure.points.device)
    return HeadEnergies(measure.points, measure.mass, factor * energy, factor * torch.stack(pulls))
