"""Spectra through the small factors: eigenvalues of d x d matrices of rank r from r x r ones.

For M = L R with L (d, r), R (r, d) the non-zero eigenvalues of M are those of R L, |M|_F^2 = tr(G_L G_R) with the
Gram matrices G_L = L^T L, G_R = R R^T, and the defects of M from symmetry and normality are traces of r x r
products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from metastable.encoders import Layer

DOMINANT = 10
"""Largest dimension of the dominant spaces that layers are compared by."""


def dominant_dimension(d: int) -> int:
    """10 for d >= 320 (the size of real encoders), d/32 below, at least 2: so that chance stays near 3%."""
    return max(2, min(DOMINANT, d // 32))


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

    def dominant(self, h: int) -> Float[Tensor, "d k"]:
        """Orthonormal basis of head h's dominant eigenspace: k = 1, or 2 for a complex pair."""
        values, vectors = torch.linalg.eig(self.small[h])
        top = int(values.real.argmax())
        w = self.left[h].to(vectors.dtype) @ vectors[:, top]
        columns = [w.real] if _is_real(values[top], values) else [w.real, w.imag]
        return torch.linalg.qr(torch.stack(columns, dim=1))[0]


@dataclass(frozen=True, eq=False)
class Factors:
    """The factors of all heads of a layer, in the gauge that its norm leaves free.

    Tokens behind a LayerNorm are centred and every later LayerNorm removes the mean of what attention adds, so
    B_h -> C B_h C and A_h -> C A_h C (C the centring) change nothing that a token feels; the audit uses these.
    """

    query: Float[Tensor, "h r d"]
    key: Float[Tensor, "h r d"]
    value: Float[Tensor, "h r d"]
    output: Float[Tensor, "h d r"]
    field: Float[Tensor, "h d"]

    @classmethod
    def of(cls, layer: Layer) -> Factors:
        """The centred factors of a layer."""
        q, k = layer.queries_keys
        v, o = layer.values_outputs
        centre = layer.norm.centre
        return cls(centre(q), centre(k), centre(v), centre(o.transpose(1, 2)).transpose(1, 2), centre(layer.fields))

    def rolled(self) -> Factors:
        """The control: every head's scores handed to the next head's values."""
        q, k, g = self.query.roll(1, 0), self.key.roll(1, 0), self.field.roll(1, 0)
        return Factors(q, k, self.value, self.output, g)

    @cached_property
    def stacked(self) -> tuple[Float[Tensor, "d c"], Float[Tensor, "a d"]]:
        """Queries, keys and values of all heads side by side, and all outputs below one another: two products."""
        d = self.query.shape[2]
        inward = torch.cat([f.reshape(-1, d) for f in (self.query, self.key, self.value)]).T
        return inward, self.output.transpose(1, 2).reshape(-1, d)

    @property
    def scores(self) -> LowRank:
        """B_h."""
        return LowRank(self.query.transpose(1, 2), self.key)

    @property
    def values(self) -> LowRank:
        """A_h."""
        return LowRank(self.output, self.value)

    @property
    def products(self) -> LowRank:
        """M_h = A_h B_h^T."""
        return LowRank(self.output, (self.value @ self.key.transpose(1, 2)) @ self.query)

    @cached_property
    def sum_values(self) -> Float[Tensor, "d d"]:
        """sum_h A_h."""
        return torch.einsum("hdr,hre->de", self.output, self.value)

    @cached_property
    def sum_products(self) -> Float[Tensor, "d d"]:
        """M0 = sum_h A_h B_h^T sqrt(d)/|B_h|_F: the zero-temperature field where |B_h^T s| has its rms value."""
        d = self.query.shape[2]
        inner = (self.value @ self.key.transpose(1, 2)) @ self.query
        scale = math.sqrt(d) / self.scores.frobenius.clamp_min(1e-300)
        return torch.einsum("h,hdr,hre->de", scale, self.output, inner)

    def mismatched_traces(self) -> Float[Tensor, "h h"]:
        """tr(A_h B_h'^T) / (|A_h|_F |B_h'|_F) for all pairs of heads; the diagonal is the heads' own."""
        inner = torch.einsum("hrd,gsd->hgrs", self.value, self.key)
        outer = torch.einsum("gsd,hdr->hgsr", self.query, self.output)
        traces = torch.einsum("hgrs,hgsr->hg", inner, outer)
        return traces / (self.values.frobenius[:, None] * self.scores.frobenius[None]).clamp_min(1e-300)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of a d x d matrix by falling real part, and the space of the first few of them."""

    eigenvalues: Complex[Tensor, "d"]
    space: Float[Tensor, "d k"]
    """Orthonormal; a complex pair is never split, so k can be one less than asked for."""

    @classmethod
    def of(cls, matrix: Float[Tensor, "d d"], k: int | None = None) -> Spectrum:
        """The spectrum of a dense matrix, and its dominant space of dimension k (by default from d)."""
        k = dominant_dimension(len(matrix)) if k is None else k
        values, vectors = torch.linalg.eig(matrix)
        order = values.real.argsort(descending=True, stable=True)
        columns: list[Tensor] = []
        for index in order:
            pair = not _is_real(values[index], values)
            if pair and values[index].imag < 0:
                continue
            if len(columns) + 1 + pair > max(k, 1 + pair):
                break
            columns += [vectors[:, index].real, vectors[:, index].imag][: 1 + pair]
        return cls(values[order], torch.linalg.qr(torch.stack(columns, dim=1))[0])

    @property
    def top(self) -> complex:
        """The eigenvalue of largest real part."""
        return complex(self.eigenvalues[0])

    @property
    def is_complex(self) -> bool:
        """Whether the dominant eigenvalue is one of a complex pair: then there is no fixed axis, but a rotation."""
        return not _is_real(self.eigenvalues[0], self.eigenvalues)

    @property
    def gap(self) -> float:
        """Real part of the dominant eigenvalue minus that of the next one that is not its conjugate."""
        rest = self.eigenvalues[2 if self.is_complex else 1 :]
        return float(self.eigenvalues[0].real - rest[0].real) if len(rest) else math.inf


def energy_in(space: Float[Tensor, "d k"], points: Float[Tensor, "n d"]) -> float:
    """Mean over tokens of |P_E s|^2: the share of the tokens' energy that lies in the space."""
    return float((points @ space).square().sum() / points.square().sum())


def angle_between(a: Float[Tensor, "d k"], b: Float[Tensor, "d j"]) -> float:
    """Smallest principal angle between two spaces, in degrees."""
    cosine = float(torch.linalg.svdvals(a.T @ b)[0])
    return math.degrees(math.acos(min(1.0, cosine)))


def _triangle(matrix: Tensor) -> Tensor:
    return torch.linalg.qr(matrix, mode="r")[1]


def _is_real(value: Tensor, values: Tensor) -> bool:
    return bool(value.imag.abs() <= 1e-10 * values.abs().max())
