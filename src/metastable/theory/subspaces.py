"""What one matrix does on one space: quadratic forms, images, and the angle between two spaces.

Spaces are given by orthonormal bases (d, k).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import linalg
from torch import Tensor

SCAN = 4096
"""Directions of E among which the smallest defect is looked for before the best ones are refined."""
REFINED = 4
"""How many of them are refined, so that one basin that the scan ranks wrongly does not decide."""


def form_range(matrix: np.ndarray, space: Float[Tensor, "d k"]) -> tuple[float, float]:
    """Least and largest <c, A c> over the unit vectors c of a space."""
    basis = space.numpy()
    inner = basis.T @ matrix @ basis
    values = np.linalg.eigvalsh((inner + inner.T) / 2)
    return float(values[0]), float(values[-1])


def largest_image(matrix: np.ndarray, space: Float[Tensor, "d k"]) -> float:
    """max |A c| over the unit vectors c of a space; 0 for the empty space."""
    images = matrix @ space.numpy()
    return float(np.linalg.norm(images, 2)) if images.size else 0.0


def largest_angle(a: Float[Tensor, "d k"], b: Float[Tensor, "d m"]) -> float:
    """Largest principal angle between two spaces (radians)."""
    return float(np.max(linalg.subspace_angles(a.numpy(), b.numpy())))


def least_turn(matrix: np.ndarray, space: Float[Tensor, "d k"]) -> float:
    """min over unit c of a space of |A c| - |<A c, c>|: 0 exactly where A takes a c of the space to a multiple of
    it.

    A scan of the space and a local search from its best directions; in closed form when the space is a line.
    """
    basis, image = space.numpy(), matrix @ space.numpy()
    k = basis.shape[1]

    def value(coordinates: np.ndarray) -> Any:
        c = coordinates / np.linalg.norm(coordinates, axis=-1, keepdims=True)
        return np.linalg.norm(c @ image.T, axis=-1) - np.abs(((c @ image.T) * (c @ basis.T)).sum(-1))

    if k == 1:
        return max(0.0, float(value(np.ones(1))))
    from scipy import optimize

    starts = np.random.default_rng(0).normal(size=(SCAN, k))
    best = starts[np.argsort(value(starts))[:REFINED]]
    refined = [optimize.minimize(value, start, method="Nelder-Mead", options={"xatol": 1e-9}) for start in best]
    return max(0.0, min(float(result.fun) for result in refined))
