"""Special functions, wide loads, and 2^x in float64."""

from __future__ import annotations

import math

import pytest
import torch

from attention.gpu.triton_on_torch import Block, Pointer
from metastable.attention.gpu.instructions import exp2_fused64, exp2_special, exp2_weight, load_numbers, special


def test_exp2_in_float64_is_good_to_the_last_bits(emulated: None) -> None:
    x = torch.linspace(-1021.9, 1000.0, 40_001, dtype=torch.float64)
    found = exp2_fused64(Block(x)).data
    assert float((found / torch.exp2(x) - 1).abs().max()) <= 7e-16
    assert exp2_fused64(Block(torch.tensor([0.0, 1.0, -3.0]).double())).data.tolist() == [1.0, 2.0, 0.125]


def test_exp2_in_float64_knows_no_zero(emulated: None) -> None:
    """What lies below the least normal number, -infinity included, is that number."""
    found = exp2_fused64(Block(torch.tensor([-1022.0, -5000.0, -math.inf], dtype=torch.float64))).data
    assert found.tolist() == [2.0**-1022] * 3


def test_weights_are_powers_of_two_in_either_precision(emulated: None) -> None:
    for double, kind in ((True, torch.float64), (False, torch.float32)):
        x = Block(torch.tensor([-2.0, 0.5], dtype=kind))
        found = exp2_weight(x, double).data
        assert found.dtype == kind
        assert found.tolist() == pytest.approx([0.25, math.sqrt(2)], rel=1e-7)
        assert torch.equal(found, (exp2_fused64 if double else exp2_special)(x).data)


def test_special_functions(emulated: None) -> None:
    x = Block(torch.tensor([4.0]))
    assert special("rcp.approx.ftz.f32 $0, $1;", x).data.item() == 0.25
    assert special("lg2.approx.ftz.f32 $0, $1;", x).data.item() == 2.0


@pytest.mark.parametrize(
    ("kind", "count"),
    [(torch.float64, 2), (torch.float64, 6), (torch.float32, 2), (torch.float32, 12), (torch.int32, 8)],
)
def test_numbers_are_loaded_in_their_order(emulated: None, kind: torch.dtype, count: int) -> None:
    memory = torch.arange(20).to(kind)
    numbers = load_numbers(Pointer(memory, 4), count)
    assert [int(x) for x in numbers] == list(range(4, 4 + count))
    assert all(x.data.dtype == kind for x in numbers)
