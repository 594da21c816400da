"""Tokens on the circle: keys gathered into cells, queries into patches; the error is stated."""

from metastable.attention.circle.cells import attend_circle, circle_cost
from metastable.attention.kernel import CPU, LEAST_RTOL, Kernel

__all__ = ["CIRCLE"]

CIRCLE = Kernel(
    "circle",
    attend_circle,
    least_rtol=LEAST_RTOL,
    devices=CPU,
    dimension=2,
    other_values=False,
    other_lengths=False,
    cost=circle_cost,
)
