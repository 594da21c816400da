"""Tokens on the circle and queries for them, and how far a result is from the dense formula."""

from __future__ import annotations

import math

import numpy as np
import torch

from attention.attention_reference import exact

ARRANGEMENTS = ("uniform", "clustered", "antipodal", "duplicate", "gap", "point")
MATRICES = {
    "I": [[1.0, 0.0], [0.0, 1.0]],
    "turn": [[0.0, -1.0], [1.0, 0.0]],
    "B": [[1.0, 0.5], [-0.3, 0.8]],
    "-": [[-1.0, 0.0], [0.0, 2.0]],
}


def circle(n, arrangement, seed):
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * math.pi, n)
    if arrangement == "clustered":
        angle = rng.integers(3, size=n) * 1.3 + 1e-3 * rng.normal(size=n)
    if arrangement == "antipodal":
        angle[n // 2 :] = angle[: n - n // 2] + math.pi
    if arrangement == "duplicate":
        angle = angle[rng.integers(min(5, n), size=n)]
    if arrangement == "gap":
        angle = 0.05 * angle
    if arrangement == "point":
        angle[:] = angle[0]
    return torch.from_numpy(np.stack([np.cos(angle), np.sin(angle)], axis=1))


def off_by(result, queries, keys, mass, beta):
    mean, log_partition = exact(queries, keys, keys, mass, beta)
    apart = np.linalg.norm((np.asarray(result[0]) - mean).astype(float), axis=1).max()
    return max(float(apart), float(np.abs(np.asarray(result[1]) - log_partition).max()))
