"""What experiments of several papers run: equiangular tokens, flows kept at given times, times of quadratures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.flows import Flow
from metastable.solve import Path, solve


def equiangular(n: int, g: float) -> Float[Tensor, "n n"]:
    """n tokens in R^n with all overlaps g, -1/(n-1) < g < 1."""
    return torch.linalg.cholesky((1 - g) * torch.eye(n, dtype=torch.float64) + g)


def kept(flow: Flow, rho0: Any, times: Sequence[float] | np.ndarray, rtol: float) -> Path:
    """The flow from rho0, kept at the given times, to rtol and a tenth of it as the absolute tolerance."""
    grid = np.asarray(times, dtype=float)
    return solve(flow, rho0, t=float(grid[-1]), times=grid, rtol=rtol, atol=rtol / 10)


def gauss(t: float, panels: int = 8, order: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Times 0, Gauss points, t, and the weights (0 at both ends) with which values there integrate over [0, t].

    >>> times, weights = gauss(2.0)
    >>> bool(abs((weights * np.exp(times)).sum() - np.expm1(2.0)) < 1e-12)
    True
    """
    nodes, weights = np.polynomial.legendre.leggauss(order)
    width = t / panels
    inner = (np.arange(panels)[:, None] + (nodes + 1) / 2).ravel() * width
    return np.concatenate([[0.0], inner, [t]]), np.concatenate([[0.0], np.tile(weights * width / 2, panels), [0.0]])
