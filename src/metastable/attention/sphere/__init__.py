"""Tokens on S^2: cells of keys, or a Fourier grid, for the keys or for other values; the error is stated."""

from typing import Any

import torch

from metastable.attention.direct import MAX_COLUMNS
from metastable.attention.kernel import CPU, LEAST_RTOL, MOST_MASS_RATIO, Kernel
from metastable.attention.sphere.adjoint import laid_cost, lay_out, sphere_adjoint
from metastable.attention.sphere.cells import attend_sphere_cells, cells_cost
from metastable.attention.sphere.grid import SEARCH, attend_sphere_grid, grid_cost, is_laid_out

__all__ = [
    "SPHERE",
    "SPHERE_GRID",
    "attend_sphere_grid",
    "is_laid_out",
    "laid_cost",
    "lay_out",
    "sphere_adjoint",
]

_ON_S2: dict[str, Any] = {
    "least_rtol": LEAST_RTOL,
    "devices": CPU,
    "dtypes": frozenset({torch.float64}),
    "dimension": 3,
    "most_mass_ratio": MOST_MASS_RATIO,
    "most_columns": MAX_COLUMNS,
    "other_lengths": False,
}

SPHERE = Kernel("sphere", attend_sphere_cells, cost=cells_cost, **_ON_S2)
SPHERE_GRID = Kernel("sphere_grid", attend_sphere_grid, cost=grid_cost, search=SEARCH, **_ON_S2)
