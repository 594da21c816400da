"""The limits of exponents keep weights and their sums inside each precision."""

from __future__ import annotations

import numpy as np
import pytest

from metastable.attention.direct.exponents import exponents


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_weight_underflows_and_no_sum_overflows(dtype):
    limits, real = exponents(dtype == np.float32), np.finfo(dtype)
    assert 2.0 ** (-2 * limits.bound) > real.tiny
    assert np.log2(real.max) > limits.headroom + 30
    assert 2.0**limits.floor > real.tiny
    assert limits.floor + 30 < np.log2(real.eps)
    assert -limits.floor <= (120 if dtype == np.float32 else 1000)  # the range of exp2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_raised_to_the_floor_never_shows(dtype):
    """2^30 keys at the floor beside the least share, or the heaviest key at the bound, are below rounding."""
    limits, eps = exponents(dtype == np.float32), np.log2(np.finfo(dtype).eps)
    assert limits.floor + 30 - limits.share < eps
    assert limits.floor + 30 + 2 * limits.bound_with_mass < eps
    assert limits.bound_with_mass <= limits.bound
