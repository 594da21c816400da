"""Tokens on the circle: keys gathered into cells, queries into patches; the error is stated."""

from metastable.attention.circle.adjoint import (
    circle_adjoint,
    circle_adjoint_cost,
    circle_sums,
    modes,
    modes_of_extremes,
)
from metastable.attention.circle.cells import MOST_SHARP, SEARCH, attend_circle, circle_cost
from metastable.attention.kernel import CPU, LEAST_RTOL, MOST_MASS_RATIO, Kernel

__all__ = ["CIRCLE", "circle_adjoint", "circle_adjoint_cost", "circle_sums", "modes", "modes_of_extremes"]

CIRCLE = Kernel(
    "circle",
    attend_circle,
    least_rtol=LEAST_RTOL,
    devices=CPU,
    dimension=2,
    most_sharp=MOST_SHARP,
    most_mass_ratio=MOST_MASS_RATIO,
    other_values=False,
    other_lengths=False,
    cost=circle_cost,
    search=SEARCH,
)
