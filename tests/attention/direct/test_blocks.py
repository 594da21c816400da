"""The tiled kernel across blocks of keys, and its weights in place."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from attention.attention_reference import LAYOUTS, check_many_blocks, check_rising_scores
from metastable.attention.direct import BLOCKS
from metastable.attention.direct.blocks import weights_in_place
from metastable.attention.direct.exponents import DOUBLE


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("beta", [0.0, 1.0, 64.0, 3e3, 1e6])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_blocks_of_keys(dtype, beta, layout):
    check_many_blocks(BLOCKS, 20, dtype, beta, layout)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_scores_that_rise_from_block_to_block(dtype):
    check_rising_scores(BLOCKS, dtype)


def test_weights_are_relative_to_the_shift_and_sums_follow_it():
    """A row near its bound keeps its shift; one far below takes the maximum of the tile and rescales its sums."""
    tile = np.array([[1.0, 3.0, -2.0], [5.0, 9.0, 8.0]])
    shift, bound, total = np.array([4.0, 5.0]), np.array([4.0, 2000.0]), np.array([[1.0], [1.0]])
    weights_in_place(tile, shift, bound, total, DOUBLE.headroom, DOUBLE.floor)
    np.testing.assert_allclose(tile, np.exp2([[-3.0, -1.0, -6.0], [-4.0, 0.0, -1.0]]), rtol=1e-15)
    assert shift.tolist() == [4.0, 9.0]
    assert total[:, 0].tolist() == [1.0, math.exp2(-4.0)]
