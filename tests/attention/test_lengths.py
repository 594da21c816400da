"""Lengths of rows in one pass: compiled and by torch, in every layout."""

from __future__ import annotations

import math

import pytest
import torch

from metastable.attention.lengths import all_finite, finite_lengths, mass_extremes, mass_range, squared_lengths


@pytest.mark.parametrize("d", [1, 2, 3, 8, 9, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extremes_of_the_squared_lengths(d, dtype):
    x = torch.randn(700, d, generator=torch.Generator().manual_seed(d), dtype=torch.float64).to(dtype)
    square = (x.double() ** 2).sum(dim=1)
    relative = 1e-14 if dtype == torch.float64 or d <= 8 else 1e-6
    for rows in (x, x.T.contiguous().T):
        least, most = squared_lengths(rows)
        assert least == pytest.approx(
            float(square.min()), rel=max(relative, 1e-6 if dtype == torch.float32 else 0.0)
        )
        assert most == pytest.approx(
            float(square.max()), rel=max(relative, 1e-6 if dtype == torch.float32 else 0.0)
        )


def test_without_rows_nothing_is_short_or_long():
    assert squared_lengths(torch.empty(0, 3)) == (math.inf, 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_entry_that_is_not_finite_is_found_anywhere(bad):
    for place in (0, 1234, 4999):
        x = torch.ones(1000, 5, dtype=torch.float64)
        assert all_finite(x) and all_finite(x.T)
        x.view(-1)[place] = bad
        assert not all_finite(x) and not all_finite(x.T) and not all_finite(x.float())


def test_the_largest_numbers_are_finite():
    assert all_finite(torch.full((100, 2), torch.finfo(torch.float64).max, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 1), (40, 3), (7, 20), (40_000, 3), (0, 3)])
def test_lengths_of_finite_rows_or_none(dtype, shape):
    x = torch.randn(shape, dtype=torch.float64).to(dtype)
    assert finite_lengths(x) == pytest.approx(squared_lengths(x), rel=1e-6)
    for wrong in (torch.nan, torch.inf, -torch.inf):
        if len(x):
            x[-1, -1] = wrong
            assert finite_lengths(x) is None
            assert finite_lengths(x.T) is None


def test_masses_that_are_zero_are_not_the_least():
    assert mass_extremes(torch.tensor([0.0, 3.0, 1e-320, 0.0], dtype=torch.float64).numpy()) == (1e-320, 3.0, 3.0)
    assert mass_extremes(torch.ones(4).numpy()) == (1.0, 1.0, 4.0)
    many = torch.ones(200_000)
    many[7] = 3.0
    assert mass_extremes(many.numpy()) == (1.0, 3.0, 200_002.0)
    many[9] = 0.0
    assert mass_extremes(many.numpy()) == (1.0, 3.0, 200_001.0)


def test_the_range_of_masses_sees_zeros_and_what_is_not_finite():
    assert mass_range(torch.tensor([2.0, 0.0, 3.0], dtype=torch.float64).numpy()) == (0.0, 3.0, True)
    assert mass_range(torch.tensor([2.0, -1.0]).numpy()) == (-1.0, 2.0, True)
    for bad in (math.nan, math.inf, -math.inf):
        for n in (30, 200_000):
            mass = torch.ones(n, dtype=torch.float64)
            mass[9] = 0.0
            assert mass_range(mass.numpy()) == (0.0, 1.0, True)
            mass[-2] = bad
            assert not mass_range(mass.numpy())[2]
