"""Kernels on tensor cores against those on registers: two ways to the same sums."""

from __future__ import annotations

import pytest
import torch

from attention.gpu.problems import problem
from metastable.attention.gpu.frame import frame_of
from metastable.attention.gpu.packing import Masses, Packing
from metastable.attention.gpu.register_keys import RegisterKeys
from metastable.attention.gpu.tensor_core_keys import TensorCoreKeys

SHAPES = [(2, None), (3, None), (4, 3), (5, 7), (8, None), (7, 8)]
"""One to three blocks of columns, one and two products of scores."""


@pytest.mark.parametrize(("d", "d_v"), SHAPES)
@pytest.mark.parametrize("masses", list(Masses))
def test_sums_are_those_of_registers(emulated: None, d: int, d_v: int | None, masses: Masses) -> None:
    """Rows that fill no tile, keys that fill no group; with the same shifts, to the accuracy of 22 bits."""
    weight = "equal" if masses is Masses.EQUAL else "zeros"
    q, k, v, m = problem(d, 50, 75, d, d_v, "uniform", weight, "cpu")
    frame = frame_of(q, k, v, m, 10.0)
    packing = Packing(k, v, m, frame, masses, True, torch.float32)
    sums, shift = TensorCoreKeys(packing).sums(q)
    assert shift is not None
    other, _ = RegisterKeys(packing).sums(q, shift)
    found, expected = sums.sum(dim=0), other.sum(dim=0)
    scale = float(expected[-1].max()) * frame.value_radius
    assert found.shape == expected.shape
    torch.testing.assert_close(found[-1], expected[-1], rtol=2e-5, atol=0)
    torch.testing.assert_close(found[:-1], expected[:-1], rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("masses", [Masses.EQUAL, Masses.AS_LOG])
def test_maxima_are_those_of_registers(emulated: None, masses: Masses) -> None:
    q, k, v, m = problem(9, 40, 100, 3, None, "uniform", "equal" if masses is Masses.EQUAL else "zeros", "cpu")
    packing = Packing(k, v, m, frame_of(q, k, v, m, 100.0), masses, True, torch.float32)
    assert torch.equal(TensorCoreKeys(packing).maximum(q), RegisterKeys(packing).maximum(q))
