"""A few thousand tokens on the circle or on S^2: pairs that count, polynomials for others; the error is stated."""

import torch

from metastable.attention.kernel import CPU, LEAST_RTOL, MOST_MASS_RATIO, Kernel
from metastable.attention.lanes import LANES
from metastable.attention.nearby.adjoint import adjoint_sorted, forecast_adjoint, forecast_columns, nearby_adjoint
from metastable.attention.nearby.attend import attend_nearby, attend_sorted, nearby_cost, nearby_error
from metastable.attention.nearby.order import curve_order

__all__ = [
    "LANES",
    "NEARBY",
    "adjoint_sorted",
    "attend_sorted",
    "curve_order",
    "forecast_adjoint",
    "forecast_columns",
    "nearby_adjoint",
    "nearby_error",
]

NEARBY = Kernel(
    "nearby",
    attend_nearby,
    least_rtol=LEAST_RTOL,
    devices=CPU,
    dtypes=frozenset({torch.float64}),
    least_columns=2,
    most_columns=3,
    most_mass_ratio=MOST_MASS_RATIO,
    other_values=False,
    other_lengths=False,
    cost=nearby_cost,
)
