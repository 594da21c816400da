"""How the experiments of this paper run: many small systems with weights Q^T K = V = V^T, and where they end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable import sphere
from metastable.flows import SelfAttention
from metastable.measure import Ensemble
from metastable.papers.claim import Setting
from metastable.solve import solve
from metastable.theory import equilibrium_residual, selection_weights

PAPER = "arXiv:2604.26085"
"""The paper's own statements; everything sharper is metastable's estimate and says so."""


def starts(setting: Setting, systems: int, n: int, d: int, *stream: int) -> Float[Tensor, "b n d"]:
    """Independent uniform tokens; no two streams of numbers share any."""
    (seed,) = setting.seeds(1, *stream)
    return sphere.uniform(systems * n, d, seed=seed).reshape(systems, n, d)


def ends(
    spectrum: tuple[float, ...],
    betas: Sequence[float],
    points: Float[Tensor, "b n d"],
    t: float,
    rtol: float = 1e-6,
) -> Float[Tensor, "k b n d"]:
    """Where systems with V = diag(spectrum) are at time t, from the same starts for every beta."""
    flow = SelfAttention(
        selection_weights(np.diag(spectrum)),
        torch.tensor(betas, dtype=torch.float64).repeat_interleave(len(points)),
    )
    many = Ensemble(points.repeat(len(betas), 1, 1))
    last = solve(flow, many, t=t, rtol=rtol, atol=rtol / 100).end.points
    return last.reshape(len(betas), *points.shape)


def rests(
    spectrum: tuple[float, ...],
    betas: Sequence[float],
    points: Float[Tensor, "b n d"],
    t: float,
    speed: float,
    rtol: float = 1e-6,
) -> tuple[Float[Tensor, "k b n d"], Float[Tensor, "k b"]]:
    """Where systems are at rest, residual of P2 below `speed`, and that residual; as of `ends`.

    They are looked at at time t, and those that still move at 2 t, 4 t and 8 t.
    """
    V = np.diag(spectrum)
    inverse = torch.tensor(betas, dtype=torch.float64).repeat_interleave(len(points))
    x = points.repeat(len(betas), 1, 1)
    left = torch.full((len(x),), torch.inf, dtype=torch.float64)
    for length in (t, t, 2 * t, 4 * t):
        moving = torch.nonzero(left >= speed)[:, 0]
        if not len(moving):
            break
        flow = SelfAttention(selection_weights(V), inverse[moving])
        x[moving] = solve(flow, Ensemble(x[moving]), t=length, rtol=rtol, atol=rtol / 100).end.points
        found = [equilibrium_residual(V, float(inverse[s]), x[s]) for s in moving.tolist()]
        left[moving] = torch.tensor(found, dtype=torch.float64)
    return x.reshape(len(betas), *points.shape), left.reshape(len(betas), -1)


def words(spectrum: tuple[float, ...]) -> str:
    """Eigenvalues as a table and a legend name them.

    >>> words((2.0, -0.5))
    '2, -0.5'
    """
    return ", ".join(f"{value:g}" for value in spectrum)
