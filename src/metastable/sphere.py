"""The sphere S^{d-1} = {x in R^d : |x| = 1}: geometry, random samples and deterministic nodes.

Points are rows of a tensor (n, d). Samples draw from an explicit seed; nodes are deterministic, and those that
come with unequal masses return a pair (points, mass) with masses that sum to one. Attention is unknown here.
"""

from __future__ import annotations

import math
import operator
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor

from metastable import arguments, rowwise
from metastable.errors import InvalidInput

MOST_NUMBERS = 1 << 40
"""Most coordinates of a sample: eight terabytes, more than any machine that this runs on holds."""
MOST_DEGREE = 1 << 14
"""Largest degree of a product rule: its nodes in d = 3 are a quarter of a billion."""

Points: TypeAlias = Float[Tensor, "n d"]
"""Points on the sphere, one per row."""


def normalize(points: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
    """Retraction x -> x/|x| of every row."""
    return rowwise.normalize(_rows(points, "points"))


def project_tangent(points: Float[Tensor, "*n d"], vectors: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
    """Tangent projection P_x v = v - <x, v> x of every row."""
    return rowwise.project_tangent(*_paired(points, "points", vectors, "vectors"))


def exp(points: Float[Tensor, "*n d"], tangents: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
    """Exponential map exp_x(v) = cos|v| x + sin|v| v/|v| for tangent v."""
    points, tangents = _paired(points, "points", tangents, "tangents")
    length = torch.linalg.vector_norm(tangents, dim=-1, keepdim=True)
    return torch.cos(length) * points + torch.sinc(length / math.pi) * tangents


def log(points: Float[Tensor, "*n d"], targets: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
    """Logarithm: the tangent v at x of length angle(x, y) with exp_x(v) = y (undefined at antipodes)."""
    points, targets = _paired(points, "points", targets, "targets")
    tangent = project_tangent(points, targets)
    sine = torch.linalg.vector_norm(tangent, dim=-1, keepdim=True)
    angle = torch.atan2(sine, (points * targets).sum(-1, keepdim=True))
    return torch.where(sine > 0, angle / torch.where(sine > 0, sine, 1.0), 1.0) * tangent


def chordal_distance(a: Float[Tensor, "*n d"], b: Float[Tensor, "*n d"]) -> Float[Tensor, "*n"]:
    """Chordal distance |x - y| of paired rows."""
    a, b = _paired(a, "a", b, "b")
    return torch.linalg.vector_norm(a - b, dim=-1)


def geodesic_distance(a: Float[Tensor, "*n d"], b: Float[Tensor, "*n d"]) -> Float[Tensor, "*n"]:
    """Geodesic distance 2 atan2(|x - y|, |x + y|) of paired rows, exact for near and for antipodal points."""
    a, b = _paired(a, "a", b, "b")
    return 2 * torch.atan2(torch.linalg.vector_norm(a - b, dim=-1), torch.linalg.vector_norm(a + b, dim=-1))


def from_angles(angles: Any) -> Float[Tensor, "n 2"]:
    """Points (cos theta, sin theta) on the circle."""
    theta = _real(angles, "angles")
    return torch.stack([torch.cos(theta), torch.sin(theta)], dim=-1)


def angles(points: Float[Tensor, "n 2"]) -> Float[Tensor, "n"]:
    """Angles in (-pi, pi] of points on the circle, the inverse of `from_angles`."""
    points = _rows(points, "points")
    if points.shape[-1] != 2:
        raise InvalidInput(
            f"angles are those of points on the circle, of shape (n, 2), got {arguments.shown(points)}"
        )
    return torch.atan2(points[..., 1], points[..., 0])


def uniform(n: int, d: int, seed: int | torch.Generator = 0) -> Points:
    """n iid uniform points on S^{d-1} (normalised Gaussians).

    >>> uniform(4, 3, seed=1).shape
    torch.Size([4, 3])
    """
    n, d = _check_count(n, d)
    return normalize(torch.randn(n, d, dtype=torch.float64, generator=_generator(seed)))


def von_mises_fisher(n: int, mean: Any, kappa: float, seed: int | torch.Generator = 0) -> Points:
    """n iid points with density proportional to exp(kappa <mean, x>) on S^{d-1}.

    The overlap u = <mean, x> has density (1 - u^2)^{(d-3)/2} e^{kappa u}; it is drawn with Wood's rejection
    sampler (Comm. Statist. Simulation Comput. 23, 1994) and the tangent direction uniformly.
    """
    direction = _real(mean, "mean")
    if direction.ndim != 1:
        raise InvalidInput(f"mean must be one vector of shape (d,), got shape {tuple(direction.shape)}")
    n, d = _check_count(n, direction.shape[0])
    length = float(torch.linalg.vector_norm(direction))
    if not (math.isfinite(length) and length > 0):
        raise InvalidInput(f"mean must be a finite non-zero vector, got {arguments.shown(direction.tolist())}")
    kappa = arguments.number(kappa, "kappa", least=0, most=1e300)
    generator = _generator(seed)
    direction = direction / length
    overlap = _wood_overlaps(n, d, kappa, generator)
    tangent = project_tangent(direction.expand(n, d), torch.randn(n, d, dtype=torch.float64, generator=generator))
    side = torch.sqrt(torch.clamp(1 - overlap**2, min=0.0))
    return normalize(overlap[:, None] * direction + side[:, None] * normalize(tangent))


def equispaced(n: int) -> Float[Tensor, "n 2"]:
    """Equispaced nodes on the circle at the angles 2 pi (i + 1/2)/n."""
    n, _ = _check_count(n, 2)
    return from_angles(2 * math.pi * (np.arange(n) + 0.5) / n)


def fibonacci(n: int) -> Float[Tensor, "n 3"]:
    """Fibonacci nodes on S^2: z_i = 1 - (2i+1)/n, phi_i = 2 pi i (sqrt(5)-1)/2, equal masses."""
    n, _ = _check_count(n, 3)
    i = np.arange(n, dtype=np.float64)
    z = 1 - (2 * i + 1) / n
    phi = 2 * math.pi * i * (math.sqrt(5) - 1) / 2
    side = np.sqrt(1 - z * z)
    return normalize(torch.as_tensor(np.stack([side * np.cos(phi), side * np.sin(phi), z], axis=-1)))


def product_gauss(degree: int, d: int = 3) -> tuple[Points, Float[Tensor, "n"]]:
    """Nodes and masses that integrate every polynomial of the stated degree exactly over S^{d-1}, d = 2 or 3.

    d = 2: degree+1 equispaced nodes. d = 3: Gauss-Legendre in z times the trapezoidal rule in the longitude.

    >>> points, mass = product_gauss(8)
    >>> round(float((mass * points[:, 0] ** 8).sum()), 12) == round(1 / 9, 12)
    True
    """
    degree, d = arguments.integer(degree, "degree", least=0, most=MOST_DEGREE), arguments.integer(d, "d")
    if d == 2:
        points = equispaced(degree + 1)
        return points, torch.full((degree + 1,), 1.0 / (degree + 1), dtype=torch.float64)
    if d != 3:
        raise InvalidInput(f"product_gauss knows d = 2 and d = 3, got d = {arguments.shown(d)}")
    z, weight = special.roots_legendre(degree // 2 + 1)
    phi = 2 * math.pi * (np.arange(degree + 1) + 0.5) / (degree + 1)
    side = np.sqrt(1 - z * z)
    grid = np.stack(
        [
            side[:, None] * np.cos(phi),
            side[:, None] * np.sin(phi),
            np.broadcast_to(z[:, None], (len(z), len(phi))),
        ],
        axis=-1,
    )
    mass = np.repeat(weight / 2 / len(phi), len(phi))
    return normalize(torch.as_tensor(grid.reshape(-1, 3))), torch.as_tensor(mass)


def _wood_overlaps(n: int, d: int, kappa: float, generator: torch.Generator) -> Float[Tensor, "n"]:
    """Draw n overlaps u with density (1-u^2)^{(d-3)/2} e^{kappa u} on [-1, 1].

    Written with the defects 1 - u and 1 - peak, which keep their digits when kappa is large.
    """
    m = d - 1
    b = m / (math.hypot(2 * kappa, m) + 2 * kappa)
    peak_defect = 2 * b / (1 + b)
    drawn: list[Tensor] = []
    missing = n
    while missing > 0:
        size = 2 * missing + 16
        # Beta(m/2, m/2) from two chi-squares of m degrees of freedom, so that the torch generator suffices.
        left, right = (
            torch.randn(size, m, dtype=torch.float64, generator=generator).square().sum(-1) for _ in range(2)
        )
        beta = left / (left + right)
        defect = 2 * b * beta / (1 - (1 - b) * beta)
        # 1 - peak u = (1 - peak) + peak (1 - u), relative to its value (1 - peak)(1 + peak) at the peak.
        ratio = (peak_defect + (1 - peak_defect) * defect) / (peak_defect * (2 - peak_defect))
        bar = torch.log(torch.rand(size, dtype=torch.float64, generator=generator))
        accepted = defect[kappa * (peak_defect - defect) + m * torch.log(ratio) >= bar]
        if len(accepted):
            drawn.append(accepted[:missing])
            missing -= len(drawn[-1])
    return 1 - torch.cat(drawn)


def _generator(seed: int | torch.Generator) -> torch.Generator:
    if isinstance(seed, torch.Generator):
        return seed
    try:
        return torch.Generator().manual_seed(operator.index(seed))
    except Exception:  # whatever a stranger's object raises on its way into an integer
        raise InvalidInput(
            f"seed must be an integer below 2^63 or a torch.Generator, got {arguments.shown(seed)}"
        ) from None


def _check_count(n: Any, d: Any) -> tuple[int, int]:
    count, dimension = arguments.integer(n, "the number of points", least=1), arguments.integer(d, "d")
    if dimension < 2:
        raise InvalidInput(f"the sphere S^(d-1) needs d >= 2, got d = {arguments.shown(dimension)}")
    if count * dimension > MOST_NUMBERS:
        raise InvalidInput(
            f"{arguments.shown(count)} points in dimension {arguments.shown(dimension)} do not fit into memory"
        )
    return count, dimension


def _real(values: Any, name: str) -> Tensor:
    """Anything that numpy understands as real numbers, in float64."""
    try:
        array = values.detach().cpu().numpy() if isinstance(values, Tensor) else arguments.array(values)
        if array.dtype.kind not in "iufb":
            raise TypeError
    except Exception:  # whatever a stranger's object raises on its way into an array
        raise InvalidInput(f"{name} must be an array of real numbers, got {arguments.shown(values)}") from None
    return torch.from_numpy(array.astype(np.float64))


def _rows(values: Any, name: str) -> Tensor:
    """A floating tensor as it is, anything else that is an array of real numbers in float64; at least one row."""
    if rowwise.dense(values) and values.dtype in (torch.float32, torch.float64):
        read: Tensor = values
    else:
        read = _real(values, name)
    if read.ndim < 1:
        raise InvalidInput(f"{name} must be rows of shape (n, d), got one number")
    return read


def _paired(a: Any, name_a: str, b: Any, name_b: str) -> tuple[Tensor, Tensor]:
    """Two arrays of rows that go together: of one precision, and one shape or one that spreads over the other."""
    left, right = _rows(a, name_a), _rows(b, name_b)
    if left.dtype != right.dtype:
        left, right = left.double(), right.double()
    fit = left.shape[-1] == right.shape[-1] and left.device == right.device
    try:
        shape = torch.broadcast_shapes(left.shape, right.shape) if fit else None
    except RuntimeError:
        shape = None
    if shape is None:
        raise InvalidInput(
            f"{name_a} and {name_b} must have one shape, got {arguments.shown(left)} and {arguments.shown(right)}"
        )
    return left, right
