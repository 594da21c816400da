"""Tokens on S^2 of several shapes, masses of all sizes, and how far a result is from the dense kernel."""

from __future__ import annotations

import torch

from metastable import sphere
from metastable.attention import KERNELS, Operands

KINDS = ("uniform", "clustered", "antipodal", "duplicate", "tight", "great circle", "disc")


def tokens(kind: str, n: int, seed: int) -> torch.Tensor:
    """Unit vectors (n, 3) of several shapes."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    pick = torch.randint(0, 5, (n,), generator=generator)
    centres = sphere.uniform(5, 3, seed=seed + 1)
    if kind == "clustered":
        x = centres[pick] + 0.05 * x
    elif kind == "tight":
        x = centres[pick] + 1e-7 * x
    elif kind == "antipodal":
        x = torch.where(pick[:, None] > 2, centres[0], -centres[0]) + 0.01 * x
    elif kind == "duplicate":
        x = centres[pick]
    elif kind == "great circle":
        x[:, 2] *= 1e-9
    elif kind == "disc":  # a sharp rim, where attention sits when B turns the queries away
        x = centres[0] + 0.2 * x / x.norm(dim=1, keepdim=True)
    return x / x.norm(dim=1, keepdim=True)


def masses(n: int, seed: int) -> torch.Tensor:
    """Masses over nine orders of magnitude, some of them zero."""
    generator = torch.Generator().manual_seed(seed)
    m = 10.0 ** (-9.0 * torch.rand(n, generator=generator, dtype=torch.float64))
    m[torch.rand(n, generator=generator) < 0.1] = 0.0
    m[0] = 1e-3
    return m / m.sum()


def equal(n: int) -> torch.Tensor:
    """Masses 1/n."""
    return torch.full((n,), 1.0 / n, dtype=torch.float64)


def gap(asked: Operands, answer, rows=200) -> float:
    """Largest error of mean and log Z on sampled rows against the dense kernel."""
    sample = torch.arange(0, len(asked.queries), max(len(asked.queries) // rows, 1))
    exact = KERNELS["dense"](asked.of_queries(sample))
    return max(
        float((answer[0][sample] - exact.mean).norm(dim=1).max()),
        float((answer[1][sample] - exact.log_partition).abs().max()),
    )
