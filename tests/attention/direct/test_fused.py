"""The fused kernel across blocks of keys, and the private function of numba it is made of."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numba import njit

from attention.attention_reference import LAYOUTS, check, check_many_blocks, check_rising_scores, masses, tokens
from metastable.attention import Operands
from metastable.attention.direct import BLOCKS, FUSED
from metastable.attention.direct.fused import (
    MAX_COLUMNS,
    aligned_zeros,
    attend_fused,
    fused_cost,
    key_blocks,
    with_item,
)
from metastable.errors import InvalidInput
from metastable.sphere import uniform


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("beta", [0.0, 1.0, 64.0, 3e3, 1e6])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_blocks_of_keys(dtype, beta, layout):
    check_many_blocks(FUSED, 3, dtype, beta, layout)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_scores_that_rise_from_block_to_block(dtype):
    check_rising_scores(FUSED, dtype)


def test_more_columns_than_registers_are_refused():
    x = torch.ones(2, MAX_COLUMNS + 1, dtype=torch.float64)
    with pytest.raises(InvalidInput, match='d and d_v up to 8, got 9 and 9; use kernel="blocks"'):
        FUSED(Operands(x, x, x, torch.ones(2, dtype=torch.float64), 1.0))


def test_keys_of_mass_zero_leave_no_place():
    x, m = tokens(50, 2, "uniform", 0).numpy(), masses(50, 1).numpy()
    keys, weighted = aligned_zeros(np.dtype(np.float64), (4, 2, 16), (4, 3, 16))
    count, longest, largest, in_exponent = key_blocks(x, x, m, keys, weighted, -500.0)
    assert not in_exponent
    seen = m > 0
    assert count == seen.sum() and longest == pytest.approx(1.0, abs=1e-15) and largest == m.max()
    np.testing.assert_array_equal(keys.transpose(0, 2, 1).reshape(-1, 2)[:count], x[seen])
    np.testing.assert_allclose(weighted[:, 2].ravel()[:count], m[seen] / m.max(), rtol=1e-15)


def test_masses_too_different_for_products_are_logarithms():
    x, m = tokens(6, 2, "uniform", 0).numpy(), np.array([1e-200, 5e-324, 1e300, 0.0, 1.0, 1e300])
    keys, weighted = aligned_zeros(np.dtype(np.float64), (1, 2, 16), (1, 3, 16))
    count, _, largest, in_exponent = key_blocks(x, x, m, keys, weighted, -500.0)
    assert in_exponent and count == 5 and largest == 1e300
    seen = m > 0
    np.testing.assert_allclose(weighted[0, 2, :5], np.log2(m[seen]) - np.log2(1e300), rtol=1e-15)
    np.testing.assert_array_equal(weighted[0, :2, :5].T, x[seen])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("beta", [0.0, 1.0, 64.0, 3e3, 1e5])
@pytest.mark.parametrize("kernel", [FUSED, BLOCKS])
def test_masses_over_many_decades_across_blocks(dtype, beta, kernel):
    keys = tokens(4500, 3, "uniform", 3).to(dtype)
    decades = 300 if dtype == torch.float64 else 36
    mass = (10.0 ** -torch.linspace(0, decades, 4500, dtype=torch.float64)[torch.randperm(4500)]).to(dtype)
    found = kernel(Operands(keys[:40], keys, keys, mass, beta), 1e-3)
    check(found, keys[:40], keys, keys, mass, beta)


def test_zeros_begin_at_a_line_of_the_cache():
    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        shapes = ((3, 5), (1, 2, 208), (7,))
        found = aligned_zeros(dtype, *shapes)
        assert tuple(array.shape for array in found) == shapes
        for number, array in enumerate(found):
            assert array.ctypes.data % 64 == 0 and array.dtype == dtype and not array.any()
            array[...] = number + 1.0
        assert [array.mean() for array in found] == [1.0, 2.0, 3.0]  # none reaches into another


def test_the_forecast_is_proportional_to_the_pairs():
    x = tokens(30, 2, "uniform", 0)
    one, two = (Operands(x, k, k, torch.ones(len(k)), 1.0) for k in (x, torch.cat([x, x])))
    assert 2 * fused_cost(one, 1e-6) == fused_cost(two, 1e-6)


def test_private_interface_of_numba_still_replaces_an_entry_of_a_tuple():
    """numba.cpython.unsafe.tuple.tuple_setitem is private: an upgrade that drops or changes it must fail here."""

    @njit
    def replaced(entries, i, x):
        return with_item(entries, i, x)

    assert replaced((1.0, 2.0, 3.0), 1, 7.0) == (1.0, 7.0, 3.0)


@pytest.mark.parametrize("n", [20, 40])
def test_rows_that_see_what_is_no_number_are_no_numbers(n):
    keys = uniform(n, 3, seed=0)
    keys[n // 2, 1] = math.nan
    mass = torch.full((n,), 1.0 / n, dtype=torch.float64)
    mean, log_partition = attend_fused(Operands.checked_before(keys, keys, keys, mass, 2.0))
    assert bool(mean.isnan().all()) and bool(log_partition.isnan().all())
