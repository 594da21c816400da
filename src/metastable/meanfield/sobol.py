"""Low-discrepancy points on spheres of any dimension."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy import special

from metastable import sphere
from metastable.errors import InvalidInput

SCRAMBLE = 20240817
"""Seed that scrambles the Sobol sequence: any number, but always the same, so that nodes are deterministic."""


def sobol(n: int, d: int) -> torch.Tensor:
    """n low-discrepancy points on S^{d-1}: a scrambled Sobol sequence (fixed seed) through the normal quantile."""
    from scipy.stats import qmc

    if d > qmc.Sobol.MAXDIM:
        raise InvalidInput(f"Sobol points need d <= {qmc.Sobol.MAXDIM}, got d = {d}")
    cube = qmc.Sobol(d, scramble=True, seed=SCRAMBLE).random_base2(math.ceil(math.log2(max(n, 2))))[:n]
    return sphere.normalize(torch.from_numpy(special.ndtri(np.clip(cube, 1e-15, 1 - 1e-15))))
