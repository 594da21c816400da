"""What the lanes of one warp hold: bits, roundings, and the two products of tensor cores."""

from __future__ import annotations

import torch

from attention.gpu.triton_on_torch import Block, Pointer
from metastable.attention.gpu.tensor_core_tiles import (
    add_values,
    finite_half_pair,
    half_bits,
    load_tile,
    multiply_scores,
    round_tf32,
    row_shift,
)

LANE = torch.arange(32)


def test_half_bits(emulated: None) -> None:
    """1 is 0x3C00 and -2 is 0xC000 in float16; the upper half of the word stays empty."""
    found = half_bits(Block(torch.tensor([1.0, -2.0], dtype=torch.float16))).data
    assert found.tolist() == [0x3C00, 0xC000] and found.dtype == torch.int32


def test_an_infinite_logarithm_has_no_lower_part(emulated: None) -> None:
    hi, lo = finite_half_pair(Block(torch.tensor([-torch.inf, 1 + 2.0**-15], dtype=torch.float64)))
    assert hi.data.tolist() == [-torch.inf, 1.0] and lo.data.tolist() == [0.0, 2.0**-15]


def test_tf32_is_the_nearest_number_of_11_bits(emulated: None) -> None:
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    found = round_tf32(Block(x)).data
    assert not bool((found.view(torch.int32) & 8191).any())
    assert bool(((found - x).abs() <= 2.0**-11 * x.abs()).all())
    assert torch.equal(round_tf32(Block(found)).data, found)


def test_scores_of_a_tile(emulated: None) -> None:
    """16 queries, 8 keys: lane 4 g + t has <q, k> of rows g and g + 8 and keys 2 t and 2 t + 1, to 18 bits."""
    g = torch.Generator().manual_seed(1)
    for d, depth in ((3, 1), (4, 1), (7, 2)):
        q = torch.randn(16, d, dtype=torch.float64, generator=g)
        k = torch.randn(8, d, dtype=torch.float64, generator=g)
        one = Block(torch.tensor(1.0, dtype=torch.float64))
        g_lane, t_lane, rows = Block(LANE // 4), Block(LANE % 4), Block(torch.tensor(16))
        a = load_tile(Pointer(q.reshape(-1), 0), g_lane, t_lane, (), one, rows, d, depth, False, False)
        b = []
        for step in range(2 * depth):
            c = LANE % 4 // 2 + 2 * step
            hi, lo = finite_half_pair(Block(torch.where(c < d, k[LANE // 4, c.clamp(max=d - 1)], 0.0)))
            b.append(half_bits(hi) | (half_bits(lo) << 16))
        x = multiply_scores(a, tuple(b), depth)
        exact = q @ k.T
        for e in range(4):
            there = exact[LANE // 4 + 8 * (e // 2), 2 * (LANE % 4) + e % 2]
            torch.testing.assert_close(x[e].data.double(), there, rtol=0, atol=2.0**-18)


def test_values_meet_the_weights_where_the_scores_left_them(emulated: None) -> None:
    """sum_j w_ij v_j for 16 rows and 8 keys; lane 4 g + t reads the values of keys 2 t and 2 t + 1 in column g."""
    g = torch.Generator().manual_seed(2)
    w, v = torch.rand(16, 8, generator=g), torch.randn(8, 8, generator=g)
    weights = tuple(
        Block((w[LANE // 4 + 8 * (e // 2), 2 * (LANE % 4) + e % 2].view(torch.int32)) & -8192) for e in range(4)
    )
    values = tuple(Block(v[2 * (LANE % 4) + e, LANE // 4].view(torch.int32) & -8192) for e in range(2))
    zero = Block(torch.zeros(32))
    found = add_values(weights, values, 0, (zero, zero, zero, zero))
    exact = w @ v
    for e in range(4):
        there = exact[LANE // 4 + 8 * (e // 2), 2 * (LANE % 4) + e % 2]
        torch.testing.assert_close(found[e].data, there, rtol=0, atol=2e-2)


def test_the_shift_is_a_whole_bound_in_its_unit(emulated: None) -> None:
    """|q| beta log2(e) max|k - c| rounded up, over the unit, as a float16 pair holds it."""
    q = torch.tensor([[3.0, 4.0], [0.1, 0.0]], dtype=torch.float64)
    frame = torch.tensor([2.0, 1.7], dtype=torch.float64)
    rows = Block(torch.arange(2))
    given = (Pointer(q.reshape(-1), 0), Pointer(frame, 0), Pointer(torch.tensor([5.0, 6.0]), 0), rows, rows < 2)
    unit = Block(torch.tensor(4.0))
    assert row_shift(*given, unit, 2, False).data.tolist() == [17.0 / 4, 1.0 / 4]
    assert row_shift(*given, unit, 2, True).data.tolist() == [5.0 / 4, 6.0 / 4]
