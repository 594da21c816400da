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
