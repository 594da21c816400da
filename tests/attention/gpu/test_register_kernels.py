"""Kernels on ordinary registers, by the formulas that they state."""

from __future__ import annotations

import pytest
import torch

from attention.gpu.problems import problem
from metastable.attention.gpu.frame import frame_of
from metastable.attention.gpu.packing import Masses, Packing
from metastable.attention.gpu.register_keys import RegisterKeys

PRECISIONS = [torch.float32, torch.float64]


@pytest.mark.parametrize("masses", [Masses.IN_VALUES, Masses.AS_LOG])
def test_packed_rows(emulated: None, masses: Masses) -> None:
    """[ k - c | v - c_v | mass ], the mass relative to the largest, in the values or as a logarithm."""
    q, k, v, m = problem(0, 3, 300, 2, 3, "uniform", "zeros", "cpu")
    packed = RegisterKeys(Packing(k, v, m, frame_of(q, k, v, m, 1.0), masses, False, torch.float64)).packed
    share = m / m.max()
    torch.testing.assert_close(packed[:, :2], k - k.mean(dim=0), rtol=0, atol=1e-15)
    values = v - v.mean(dim=0)
    expected = values * share[:, None] if masses is Masses.IN_VALUES else values
    torch.testing.assert_close(packed[:, 2:5], expected, rtol=0, atol=1e-14)
    mass = share if masses is Masses.IN_VALUES else share.log2()
    torch.testing.assert_close(packed[:, 5], mass, rtol=1e-14, atol=0)


def test_keys_that_are_the_values_stand_once(emulated: None) -> None:
    q, k, _, m = problem(0, 3, 10, 2, None, "uniform", "equal", "cpu")
    packed = RegisterKeys(Packing(k, k, m, frame_of(q, k, k, m, 1.0), Masses.EQUAL, False, torch.float32)).packed
    assert packed.shape == (10, 2)
    torch.testing.assert_close(packed, (k - k.mean(dim=0)).float())


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("masses", list(Masses))
def test_sums_over_chunks(emulated: None, precision: torch.dtype, masses: Masses) -> None:
    """S and A by their definition; 600 keys are more than one chunk, whole flushes and a rest."""
    q, k, v, m = problem(1, 5, 603, 2, 3, "uniform", "equal" if masses is Masses.EQUAL else "zeros", "cpu")
    frame = frame_of(q, k, v, m, 3.0)
    sums, shift = RegisterKeys(Packing(k, v, m, frame, masses, True, precision)).sums(q)
    assert shift is not None and len(sums) > 1
    weights = torch.exp2(frame.scale * q @ (k - k.mean(dim=0)).T - shift.double()[:, None]) * (m / m.max())
    tolerance = 1e-5 if precision == torch.float32 else 1e-13
    total = sums.double().sum(dim=0)
    torch.testing.assert_close(total[3], weights.sum(dim=1), rtol=tolerance, atol=0)
    allowed = tolerance * float(total[3].max())
    torch.testing.assert_close(total[:3].T, weights @ (v - v.mean(dim=0)), rtol=0, atol=allowed)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_maximum_of_every_row(emulated: None, precision: torch.dtype) -> None:
    """max_j beta log2(e) <q, k_j - c> + log2 m_j, rounded up to whole bits; masses of zero never win."""
    q, k, _, m = problem(2, 20, 700, 3, None, "uniform", "zeros", "cpu")
    frame = frame_of(q, k, k, m, 50.0)
    found = RegisterKeys(Packing(k, k, m, frame, Masses.AS_LOG, True, precision)).maximum(q)
    scores = frame.scale * q @ (k - k.mean(dim=0)).T + (m / m.max()).log2()
    assert found.tolist() == scores.amax(dim=1).ceil().tolist()
