"""Vectors of a few dimensions inside kernels: tuples of registers, one per coordinate, that loops unroll over.

A coordinate of the queries is a block over the rows of a program; one of a key is a number that all rows share, or
a block, too. Nothing here stores or loads.
"""

# mypy: disable-error-code="assignment, attr-defined"
from __future__ import annotations

from metastable.attention.gpu.jit import jit, tl


@jit
def repeated(x: tl.tensor, COUNT: tl.constexpr) -> tl.tuple:
    """(x, ..., x)."""
    copies = ()
    for _ in tl.static_range(COUNT):
        copies = copies + (x,)
    return copies


@jit
def add_products(x: tl.tensor, a: tl.tuple, b: tl.tuple, PLACE: tl.constexpr, D: tl.constexpr) -> tl.tensor:
    """x + sum_{c=1}^{D-1} a_c b_{PLACE + c}: the rest of <a, b> where x has its first product."""
    for c in tl.static_range(1, D):
        x = a[c] * b[PLACE + c] + x
    return x


@jit
def add_multiple(weight: tl.tensor, a: tl.tuple, PLACE: tl.constexpr, sums: tl.tuple, D: tl.constexpr) -> tl.tuple:
    """The first D sums with weight times a_{PLACE}, ..., a_{PLACE + D - 1} added."""
    new = ()
    for c in tl.static_range(D):
        new = new + (weight * a[PLACE + c] + sums[c],)
    return new
