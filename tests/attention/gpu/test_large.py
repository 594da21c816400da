"""Fused attention for 8 < d <= 256 against the dense reference, and its blocks."""

from __future__ import annotations

import pytest

from attention.gpu.problems import BETAS, CLOUDS, MASSES, check, cuda, problem
from metastable.attention.gpu.frame import frame_of
from metastable.attention.gpu.kernels import attend_gpu_float64, attend_triton
from metastable.attention.gpu.large import BLOCKS, LARGEST_SAME_D, additions_of_large, attend_large, fused_blocks
from metastable.attention.operands import Operands


@cuda
@pytest.mark.parametrize("d", [9, 40, 128, 200, 768])
@pytest.mark.parametrize("beta", BETAS)
def test_large_d(d: int, beta: float) -> None:
    for kind in CLOUDS:
        for weight in MASSES:
            case = problem(d, 300, 700, d, None, kind, weight)
            reach = beta * float(case[0].norm(dim=1).max() * (case[1] - case[1].mean(dim=0)).norm(dim=1).max())
            check(attend_triton(Operands(*case, beta)), case, beta, 5e-6 + 2.0**-20 * reach)
            check(attend_gpu_float64(Operands(*case, beta)), case, beta, 1e-13 + 2.0**-47 * reach)
    other = problem(d, 130, 300, d, 24, "uniform", "zeros")
    check(attend_triton(Operands(*other, 2.0)), other, 2.0, 1e-5)


@cuda
def test_large_d_error_over_many_keys() -> None:
    """The truncating accumulation of tensor cores must not show: positive values, 100 000 keys."""
    for d in (64, 192):
        case = problem(1, 64, 100_000, d, None, "uniform", "equal")
        values = case[2].abs() + 1.0
        shifted = (case[0], case[1], values, case[3])
        check(attend_triton(Operands(*shifted, 4.0)), shifted, 4.0, 1e-5)
        check(attend_triton(Operands(*case, 4.0)), case, 4.0, 1e-5)


@pytest.mark.parametrize(
    ("beta", "weight"), [(0.0, "zeros"), (3.0, "equal"), (3.0, "wide"), (1e4, "equal"), (1e4, "zeros")]
)
def test_large_d_without_a_card(emulated: None, beta: float, weight: str) -> None:
    for n_q, n_k, d, d_v in ((50, 145, 24, None), (129, 64, 9, 20), (3, 33, 200, None), (5, 70, 100, 128)):
        case = problem(d, n_q, n_k, d, d_v, "uniform", weight, "cpu")
        reach = beta * float(case[0].norm(dim=1).max() * (case[1] - case[1].mean(dim=0)).norm(dim=1).max())
        check(attend_large(*case, frame_of(*case, beta)), case, beta, 5e-6 + 2.0**-20 * reach)


def test_blocks_hold_every_dimension() -> None:
    for widest in range(9, LARGEST_SAME_D + 1):
        width, part, _, _, stages = fused_blocks(widest, same=True)
        assert width in BLOCKS and width >= widest and width % part == 0
        assert width < 2 * widest or width == 16
        assert stages == 3
    assert fused_blocks(128, same=False)[-1] == 2
    assert fused_blocks(64, same=False)[-1] == 3


def test_additions_grow_with_chunks_and_not_with_all_keys() -> None:
    """Many keys for few rows are many chunks, whose sums are added in float64."""
    assert additions_of_large(1, 10**6, 64, True, 132) < 200
    assert 64 + 10**6 / 64 / 2 < additions_of_large(10**6, 10**6, 64, True, 132) <= 64 + 10**6 / 64
