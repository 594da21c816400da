"""Vectors as tuples of registers."""

from __future__ import annotations

import torch

from attention.gpu.triton_on_torch import Block
from metastable.attention.gpu.coordinates import add_multiple, add_products, repeated


def vector(*coordinates: float) -> tuple[Block, ...]:
    return tuple(Block(torch.tensor([c, -c], dtype=torch.float64)) for c in coordinates)


def test_repeated(emulated: None) -> None:
    assert repeated(3.0, 4) == (3.0, 3.0, 3.0, 3.0)
    assert repeated(repeated(0.0, 2), 3) == ((0.0, 0.0),) * 3


def test_products_add_up_to_the_inner_product(emulated: None) -> None:
    """<(1, 2, 3), (5, 7, 11)> = 52, the second vector from place 2 on."""
    a, b = vector(1.0, 2.0, 3.0), vector(0.0, 0.0, 5.0, 7.0, 11.0)
    assert add_products(a[0] * b[2], a, b, 2, 3).data.tolist() == [52.0, 52.0]
    assert add_products(a[0] * b[2], a, b, 2, 1).data.tolist() == [5.0, 5.0]


def test_multiples_are_added_coordinate_by_coordinate(emulated: None) -> None:
    """(1, 2) + 10 (5, 7), and what follows the first D sums is left to the caller."""
    weight = Block(torch.tensor([10.0, 10.0], dtype=torch.float64))
    sums = add_multiple(weight, vector(0.0, 5.0, 7.0), 1, vector(1.0, 2.0, 99.0), 2)
    assert [c.data.tolist() for c in sums] == [[51.0, -51.0], [72.0, -72.0]]
