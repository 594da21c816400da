"""The dominant part of one real matrix: eigenvalues of largest real part, their space and spectral projector.

Every room that asks which space a matrix prefers asks here, so that nearly equal eigenvalues get one answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Complex, Float
from scipy import linalg
from torch import Tensor

from metastable import arguments
from metastable.errors import InvalidInput
from metastable.measure import as_tensor

TOLERANCE = 1e-6
"""Eigenvalues whose real parts differ by less than TOLERANCE * ||A|| count as one, and so do eigenvalues that a
change of A by TOLERANCE^2 ||A|| makes equal. For a Jordan block of size 2 the two say the same; one of size m is
split by rounding eps to eps^(1/m), 1e-5 for m = 3 and 1e-4 for m = 4, which only the second sees."""
SPLIT = 8.0
"""How many times its own sensitivity an eigenvalue may stand from one that rounding has split from it: they lie on
a circle, two radii apart at most, and d radii make one sensitivity; the rest is room for its constants. A filter
only: the singular value half-way decides."""
ISOLATION = 10.0
"""The dominant group counts as isolated when its gap is at least ISOLATION tolerances: eigenvalues that stand
between one tolerance and this many belong to neither side beyond doubt."""
SYMMETRIC = 64 * float(np.finfo(float).eps)
"""A counts as symmetric when ||A - A^T||_F / (2 ||A||_F) is below SYMMETRIC * d: what the rounding of a product of
d x d matrices leaves of a symmetric one, with room to spare."""
INSIDE = 1e-10
"""Relative size below which a singular value of I - Q counts as zero: those of an idempotent matrix are 0 or at
least 1, so that anything well above rounding and below 1 over the norm of Q tells them apart."""


@dataclass(frozen=True, eq=False)
class Dominant:
    """The eigenvalues of A of largest real part, their invariant space E and the spectral projector Q onto E.

    kind: "point pair" (dim E = 1), "subsphere" (1 < dim E < d), "identity" (A a multiple of I), "rotation" (a
          complex pair leads), "jordan" (the leading eigenvalue is defective).
    projector Q: Q^2 = Q, QA = AQ, range E; orthogonal when A is symmetric, oblique when not (Z10).
    gap: distance of real parts between the leading group and the rest (infinite when there is no rest).
    """

    matrix: Float[Tensor, "d d"]
    eigenvalues: Complex[Tensor, "d"]
    tolerance: float
    dimension: int
    value: float
    frequency: float
    gap: float
    kind: str
    isolated: bool
    space: Float[Tensor, "d k"]
    projector: Float[Tensor, "d d"]
    next_space: Float[Tensor, "d l"]
    symmetric: bool
    symmetry_defect: float
    normality_defect: float

    @property
    def d(self) -> int:
        """Dimension of the matrix."""
        return int(self.matrix.shape[0])

    def __repr__(self) -> str:
        part = f"dimension {self.dimension} of {self.d}"
        return f"Dominant({self.kind}, {part}, value {self.value:.4g}, gap {self.gap:.4g})"

    @property
    def projector_norm(self) -> float:
        """||Q||: 1 for an orthogonal projector, large when E and the complementary space are nearly parallel."""
        return float(torch.linalg.matrix_norm(self.projector, ord=2))

    def require_isolated(self) -> None:
        """Refuse a matrix M = V B^T whose dominant space the tolerance cannot tell from the rest."""
        if not self.isolated:
            raise InvalidInput(
                f"the dominant space of M = V B^T is not isolated: its gap {self.gap:.3g} must be at least "
                f"{ISOLATION:g} times the tolerance {self.tolerance:g} relative to ||M||"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for JSON (None for an infinite gap)."""
        return {
            "eigenvalues": [[float(z.real), float(z.imag)] for z in self.eigenvalues.numpy()],
            "kind": self.kind,
            "dimension": self.dimension,
            "gap": self.gap if math.isfinite(self.gap) else None,
            "isolated": self.isolated,
            "frequency": self.frequency,
            "symmetry_defect": self.symmetry_defect,
            "normality_defect": self.normality_defect,
            "dominant_space": self.space.tolist(),
        }


def dominant(matrix: Any, tolerance: float = TOLERANCE) -> Dominant:
    """Leading eigenvalues of a real matrix through an ordered Schur form; no eigenvector is ever inverted.

    With A = Z [[T11, T12], [0, T22]] Z^T and T11 Y - Y T22 = -T12 the projector is Q = Z [[I, -Y], [0, 0]] Z^T,
    well conditioned whenever the leading group is isolated, Jordan blocks inside it included.

    >>> dominant(torch.tensor([[2.0, 0.5], [0.0, 1.0]], dtype=torch.float64)).projector.tolist()
    [[1.0, 0.5], [0.0, 0.0]]
    """
    tolerance = arguments.number(tolerance, "tolerance", above=0, below=0.1)
    a = as_tensor(matrix, "the matrix").cpu().numpy()
    if a.ndim != 2 or a.shape[0] != a.shape[1] or a.size == 0:
        raise InvalidInput(f"the spectrum needs a square matrix, got an array of shape {a.shape}")
    if not np.isfinite(a).all():
        raise InvalidInput(
            "the spectrum needs a matrix with finite entries, got an infinity or NaN; where M = V B^T is beyond "
            "the largest number, scale V or B down"
        )
    if 0 < np.abs(a).max() < np.finfo(float).tiny:
        raise InvalidInput("the spectrum needs entries of at least 2.2e-308, or only zeros: scale the matrix up")
    d = a.shape[0]
    size = float(np.linalg.norm(a, 2))
    scale = size if size > 0 else 1.0
    unit = a / scale  # squares of the entries may overflow
    weight = float(np.linalg.norm(unit)) if size else 1.0
    symmetry_defect = float(np.linalg.norm(unit - unit.T)) / (2 * weight)
    normality_defect = float(np.linalg.norm(unit @ unit.T - unit.T @ unit)) / weight**2
    symmetric = symmetry_defect <= SYMMETRIC * d
    if symmetric:
        real, z = np.linalg.eigh((a + a.T) / 2)
        values, z = real[::-1].astype(complex), z[:, ::-1]
        t = np.diag(values.real)
    else:
        values, raw = _joined(unit, tolerance)
        values = values * scale
    slack = tolerance * scale
    k, _ = leading(values, scale, tolerance)
    gap = float(values.real[:k].min() - values.real[k]) if k < d else np.inf
    if not symmetric:
        t, z, k = _ordered_schur(a, scale * raw, k)
        gap = float(values.real[:k].min() - values.real[k]) if k < d else np.inf
    projector = _projector(t, z, k)
    space, next_space = z[:, :k], _next_space(a, values, k, slack, t, z, projector)
    return Dominant(
        matrix=torch.from_numpy(a.copy()),
        eigenvalues=torch.from_numpy(values.copy()),
        tolerance=tolerance,
        dimension=k,
        value=float(values.real[:k].mean()),
        frequency=float(np.abs(values.imag[:k]).max()),
        gap=gap,
        kind=_kind(t[:k, :k], values[:k], d, scale, tolerance),
        isolated=gap >= ISOLATION * slack,
        space=torch.from_numpy(space.copy()),
        projector=torch.from_numpy(projector.copy()),
        next_space=torch.from_numpy(next_space.copy()),
        symmetric=bool(symmetric),
        symmetry_defect=symmetry_defect,
        normality_defect=normality_defect,
    )


def leading(values: Complex[np.ndarray, "d"], size: float, tolerance: float = TOLERANCE) -> tuple[int, bool]:
    """(k, rotates): how many eigenvalues share the largest real part, and whether one of them is not real.

    values: by falling real part. size: the norm of their matrix, of which `tolerance` is a share.

    >>> leading(np.array([2 + 1j, 2 - 1j, 1]), 3.0)
    (2, True)
    """
    try:
        values = arguments.array(values)
        read = values.ndim == 1 and values.size > 0 and values.dtype.kind in "iufc" and np.isfinite(values).all()
    except Exception:  # what a stranger's object raises on its way into an array
        read = False
    if not read:
        raise InvalidInput(f"values must be one row of finite eigenvalues, got {arguments.shown(values)}")
    size = arguments.number(size, "size", least=0)
    tolerance = arguments.number(tolerance, "tolerance", least=0)
    k = int((values.real >= values.real[0] - tolerance * size).sum())
    return k, bool(np.abs(values.imag[:k]).max() > tolerance * size)


def _joined(unit: np.ndarray, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """(values, raw): the eigenvalues of a matrix of norm 1 by falling real part, those that rounding has split
    joined to their mean, and as they were computed, in the same order.

    Two are joined when some matrix within tolerance^2 has them equal, seen half-way between them: there the least
    singular value of A - z is that small. The mean of a joined group is well conditioned where its members are not.
    """
    raw, left, right = linalg.eig(unit, left=True, right=True)
    raw = np.asarray(raw, dtype=complex)
    d, change = len(raw), tolerance**2
    # |y* x| of unit left and right eigenvectors: a change of size c moves the eigenvalue by c/|y* x|, and one of m
    # that stem from a Jordan block by a share 1/m of the way to the others.
    stiffness = np.maximum(np.abs((left.conj() * right).sum(0)), np.finfo(float).tiny)
    reach = SPLIT * d * change / stiffness
    group = np.arange(d)
    near = np.triu(np.abs(raw[:, None] - raw) <= np.minimum(reach[:, None], reach), 1)
    for i, j in zip(*np.nonzero(near), strict=True):
        half_way = unit - (raw[i] + raw[j]) / 2 * np.eye(d)
        if group[i] != group[j] and np.linalg.svd(half_way, compute_uv=False)[-1] <= change:
            group[group == group[j]] = group[i]
    values = np.array([raw[group == g].mean() for g in group])
    values.imag[np.abs(values.imag) <= np.finfo(float).eps] = 0.0
    order = np.lexsort((-values.imag, -values.real))
    return values[order], raw[order]


def _ordered_schur(a: np.ndarray, raw: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Real Schur form with the k leading eigenvalues first; k is what LAPACK agrees to have selected."""
    if k == len(raw):
        t, z = linalg.schur(a, output="real")
        return t, z, k

    def leads(re: float, im: float) -> bool:
        distance = np.abs(raw - complex(re, im))
        return bool(distance[:k].min() < distance[k:].min())

    t, z, selected = linalg.schur(a, output="real", sort=leads)
    return t, z, int(selected)


def _projector(t: np.ndarray, z: np.ndarray, k: int) -> np.ndarray:
    if k == len(t):
        return np.eye(len(t))
    y = linalg.solve_sylvester(t[:k, :k], -t[k:, k:], -t[:k, k:])
    return z[:, :k] @ np.hstack([np.eye(k), -y]) @ z.T


def _next_space(
    a: np.ndarray, values: np.ndarray, k: int, slack: float, t: np.ndarray, z: np.ndarray, projector: np.ndarray
) -> np.ndarray:
    """Orthonormal basis of the invariant space of the second group of eigenvalues, inside ker Q."""
    d = len(values)
    if k == d:
        return np.zeros((d, 0))
    second = int((values.real[k:] >= values.real[k] - slack).sum())
    # A restricted to its invariant space ker Q, in an orthonormal basis of that space.
    basis = linalg.orth((np.eye(d) - projector), rcond=INSIDE)[:, : d - k]
    inner = basis.T @ a @ basis
    if second == d - k:
        return basis
    ordered = values[k:]
    threshold = (ordered.real[second - 1] + ordered.real[second]) / 2
    _, inside, selected = linalg.schur(inner, output="real", sort=lambda re, im: re >= threshold)
    return basis @ inside[:, :selected]


def _kind(block: np.ndarray, values: np.ndarray, d: int, scale: float, tolerance: float) -> str:
    """What the leading block T11 does to directions inside E."""
    k = len(values)
    centres: list[complex] = []
    for value in values:
        if all(abs(value - centre) > ISOLATION * tolerance * scale for centre in centres):
            centres.append(complex(value))
    # A block is semisimple exactly when the product of (T11 - mu) over its distinct eigenvalues vanishes.
    product = np.eye(k, dtype=complex)
    for centre in centres:
        product = product @ (block - centre * np.eye(k)) / scale
    if np.linalg.norm(product, 2) > ISOLATION * tolerance * k:
        return "jordan"
    if leading(values, scale, tolerance)[1]:
        return "rotation"
    if k == d:
        return "identity"
    return "point pair" if k == 1 else "subsphere"
