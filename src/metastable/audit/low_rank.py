"""Matrices of rank r through their factors: eigenvalues and norms of d x d matrices from r x r ones.

For M = L R with L (d, r), R (r, d) the non-zero eigenvalues of M are those of R L, |M|_F^2 = tr(G_L G_R) with the
Gram matrices G_L = L^T L, G_R = R R^T, and the defects of M from symmetry and normality are traces of r x r
products.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from metastable.spectral import leading


@dataclass(frozen=True, eq=False)
class LowRank:
    """A stack of matrices M_h = L_h R_h, one per head, never multiplied out."""

    left: Float[Tensor, "h d r"]
    right: Float[Tensor, "h r d"]

    @cached_property
    def small(self) -> Float[Tensor, "h r r"]:
        """R L, which has the non-zero eigenvalues of L R."""
        return self.right @ self.left

    @cached_property
    def _grams(self) -> tuple[Tensor, Tensor]:
        return self.left.transpose(1, 2) @ self.left, self.right @ self.right.transpose(1, 2)

    @cached_property
    def eigenvalues(self) -> Complex[Tensor, "h r"]:
        """The r eigenvalues that can differ from zero, largest real part first."""
        values = torch.linalg.eigvals(self.small)
        return torch.gather(values, 1, values.real.argsort(dim=1, descending=True, stable=True))

    @cached_property
    def trace(self) -> Float[Tensor, "h"]:
        """tr M."""
        return torch.einsum("hrr->h", self.small)

    @cached_property
    def frobenius(self) -> Float[Tensor, "h"]:
        """|M|_F."""
        g_left, g_right = self._grams
        return torch.einsum("hij,hji->h", g_left, g_right).clamp_min(0).sqrt()

    @cached_property
    def operator_norm(self) -> Float[Tensor, "h"]:
        """Largest singular value."""
        return torch.linalg.matrix_norm(_triangle(self.left) @ _triangle(self.right.mT).mT, ord=2)

    @property
    def stable_rank(self) -> Float[Tensor, "h"]:
        """|M|_F^2 / |M|^2: between 1 and the rank."""
        return (self.frobenius / self.operator_norm.clamp_min(1e-300)) ** 2

    @property
    def asymmetry(self) -> Float[Tensor, "h"]:
        """|M - M^T|_F / (2 |M|_F): 0 symmetric, 1 antisymmetric, 0.71 for a random matrix."""
        square = torch.einsum("hij,hji->h", self.small, self.small)
        ratio = (1 - square / self.frobenius.square().clamp_min(1e-300)) / 2
        return ratio.clamp_min(0).sqrt()

    @property
    def nonnormality(self) -> Float[Tensor, "h"]:
        """|M M^T - M^T M|_F / |M|_F^2: 0 for a normal matrix, at most sqrt(2)."""
        g_left, g_right = self._grams
        product = g_left @ g_right
        quartic = torch.einsum("hij,hji->h", product, product)
        mixed = torch.einsum("hij,hji->h", g_left @ self.small, g_right @ self.small.transpose(1, 2))
        return (2 * (quartic - mixed)).clamp_min(0).sqrt() / self.frobenius.square().clamp_min(1e-300)

    def top_space(self, h: int) -> Float[Tensor, "d k"]:
        """Orthonormal basis of the space of head h's leading eigenvalues: k = 1 as a rule, 2 for a complex pair."""
        values, vectors = torch.linalg.eig(self.small[h])
        order = values.real.argsort(descending=True, stable=True)
        k, _ = self.leading(h)
        columns = []
        for index in order[:k]:
            if values[index].imag < 0:  # its conjugate stands for both
                continue
            w = self.left[h].to(vectors.dtype) @ vectors[:, index]
            columns += [w.real] if values[index].imag == 0 else [w.real, w.imag]
        return torch.linalg.qr(torch.stack(columns, dim=1))[0]

    def leading(self, h: int) -> tuple[int, bool]:
        """(k, rotates) of head h's eigenvalues, as `spectral.leading` decides."""
        return leading(self.eigenvalues[h].numpy(), float(self.operator_norm[h]))


def _triangle(matrix: Tensor) -> Tensor:
    return torch.linalg.qr(matrix, mode="r")[1]
