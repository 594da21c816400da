"""`TopSpace`: the eigenvalues of a matrix and the space of the first few; how much of tokens lies in a space.

`metastable.spectral` asks which eigenvalues dominate, and finds a space whose dimension the gap decides. A trained
layer has hundreds of eigenvalues without a clear gap, and layers are compared by spaces of one fixed dimension:
that is this module. Which eigenvalues count as one, and which as real, is decided there all the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from metastable.spectral import leading

LARGEST_DIMENSION = 10
"""Largest dimension of the spaces that layers are compared by, that of encoders with d >= 320."""


def top_dimension(d: int) -> int:
    """10 for d >= 320 (the size of real encoders), d/32 below, at least 2: so that chance stays near 3%."""
    return max(2, min(LARGEST_DIMENSION, d // 32))


@dataclass(frozen=True, eq=False)
class TopSpace:
    """Eigenvalues of a d x d matrix by falling real part, and a basis of the space of the first few of them."""

    eigenvalues: Complex[Tensor, "d"]
    basis: Float[Tensor, "d k"]
    """Orthonormal; a complex pair is never split, so k can be one less than asked for."""
    size: float
    """Operator norm of the matrix."""

    @classmethod
    def of(cls, matrix: Float[Tensor, "d d"], k: int | None = None) -> TopSpace:
        """The eigenvalues of a dense matrix, and its top space of dimension k (by default `top_dimension`)."""
        k = top_dimension(len(matrix)) if k is None else k
        values, vectors = torch.linalg.eig(matrix)
        order = values.real.argsort(descending=True, stable=True)
        columns: list[Tensor] = []
        for index in order:
            pair = bool(values[index].imag != 0)  # of a real matrix LAPACK returns exact zeros, or pairs
            if pair and values[index].imag < 0:
                continue
            if len(columns) + 1 + pair > max(k, 1 + pair):
                break
            columns += [vectors[:, index].real, vectors[:, index].imag][: 1 + pair]
        basis = torch.linalg.qr(torch.stack(columns, dim=1))[0]
        return cls(values[order], basis, float(torch.linalg.matrix_norm(matrix, ord=2)))

    @property
    def top(self) -> complex:
        """The eigenvalue of largest real part."""
        return complex(self.eigenvalues[0])

    @property
    def is_complex(self) -> bool:
        """Whether the dominant eigenvalue is one of a complex pair: then there is no fixed axis, but a rotation."""
        return self._leading[1]

    @property
    def gap(self) -> float:
        """Distance of real parts between the dominant eigenvalues and the rest."""
        real, k = self.eigenvalues.real, self._leading[0]
        return float(real[k - 1] - real[k]) if k < len(real) else math.inf

    @cached_property
    def _leading(self) -> tuple[int, bool]:
        return leading(self.eigenvalues.numpy(), self.size)


def energy_in(space: Float[Tensor, "d k"], points: Float[Tensor, "*t n d"]) -> Float[Tensor, "*t"]:
    """Mean over tokens of |P_E s|^2, at every time: the share of the energy of unit vectors in the space."""
    return (points @ space).square().sum(dim=(-2, -1)) / points.shape[-2]


def angle_between(a: Float[Tensor, "d k"], b: Float[Tensor, "d j"]) -> float:
    """Smallest principal angle between two spaces, in degrees."""
    cosine = float(torch.linalg.svdvals(a.T @ b)[0])
    return math.degrees(math.acos(min(1.0, cosine)))
