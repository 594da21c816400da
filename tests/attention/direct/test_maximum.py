"""The largest number of a row, of any length and in both precisions."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from metastable.attention.direct.maximum import largest_of


@njit
def found(row, count):
    return largest_of(row, count)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 31, 64, 130])
def test_it_is_found_wherever_it_stands(dtype, count):
    rng = np.random.default_rng(count)
    for place in {0, count // 2, count - 1}:
        row = rng.standard_normal(count + 3).astype(dtype) - dtype(1e3)
        row[place] = -3.0
        row[count:] = 5.0
        assert found(row, count) == row[:count].max() == -3.0
