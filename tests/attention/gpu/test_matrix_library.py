"""Tiles of scores from the matrix library, at any d."""

from __future__ import annotations

import pytest
import torch

from attention.gpu.problems import MASSES, check, problem
from metastable.attention.gpu import matrix_library
from metastable.attention.gpu.frame import frame_of
from metastable.attention.gpu.matrix_library import additions_of_library, attend_by_library


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("weight", MASSES)
def test_against_the_dense_sum(emulated: None, precision: torch.dtype, weight: str) -> None:
    for beta in (0.0, 2.0, 1e4):
        for d, d_v in ((20, None), (40, 7)):
            case = problem(d, 9, 40, d, d_v, "uniform", weight, "cpu")
            reach = beta * float(case[0].norm(dim=1).max() * (case[1] - case[1].mean(dim=0)).norm(dim=1).max())
            tolerance = 5e-6 + 2.0**-20 * reach if precision == torch.float32 else 1e-13 + 2.0**-47 * reach
            check(attend_by_library(*case, frame_of(*case, beta), precision), case, beta, tolerance)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_tiles_do_not_show(emulated: None, monkeypatch: pytest.MonkeyPatch, precision: torch.dtype) -> None:
    """Tiles of 4 queries and 16 keys, filled and unfilled, instead of one for all."""
    case = problem(3, 10, 50, 20, None, "uniform", "zeros", "cpu")
    frame = frame_of(*case, 30.0)
    whole = attend_by_library(*case, frame, precision)
    monkeypatch.setattr(matrix_library, "TILE_KEYS", 16)
    monkeypatch.setattr(matrix_library, "TILE_ROWS", {precision: 4})
    tolerance = 1e-5 if precision == torch.float32 else 1e-13
    torch.testing.assert_close(attend_by_library(*case, frame, precision), whole, rtol=0, atol=tolerance)


def test_additions_grow_with_the_tiles() -> None:
    assert additions_of_library(100) <= 257
    assert additions_of_library(4096 * 1000) == 256 + 1000
