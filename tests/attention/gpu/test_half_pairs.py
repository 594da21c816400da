"""Numbers as sums of two float16 numbers."""

from __future__ import annotations

import pytest
import torch

from attention.gpu.problems import cuda
from metastable.attention.gpu.half_pairs import TOP, split


@cuda
def test_half_pairs_hold_22_bits() -> None:
    """hi + lo reproduces every entry to 2^-22 of its size, down to 2^-33 of the largest."""
    g = torch.Generator().manual_seed(1)
    x = torch.randn(500, 30, generator=g).double().cuda()
    x[:, :5] *= 1e-6
    centre = x.mean(dim=0)
    size = float((x - centre).norm(dim=1).max())
    hi, lo, unit = split(x, centre, size, 48)
    assert hi.shape == lo.shape == (500, 48) and hi.dtype == torch.float16
    back = (hi.double() + lo.double()) * unit
    wrong = (back[:, :30] - (x - centre)).abs()
    assert bool((wrong <= 2.0**-22 * (x - centre).abs() + 2.0**-33 * size).all())
    assert not bool(back[:, 30:].any())


@pytest.mark.parametrize("scale", [1e-30, 1.0, 3e7])
def test_half_pairs_hold_22_bits_without_a_card(emulated: None, scale: float) -> None:
    g = torch.Generator().manual_seed(1)
    x = scale * torch.randn(40, 30, generator=g).double()
    x[:, :5] *= 1e-6
    centre = x.mean(dim=0)
    size = float((x - centre).norm(dim=1).max())
    hi, lo, unit = split(x, centre, size, 48)
    assert hi.shape == lo.shape == (40, 48) and hi.dtype == torch.float16
    assert size / 2**TOP <= unit <= 2 * size / 2**TOP
    back = (hi.double() + lo.double()) * unit
    wrong = (back[:, :30] - (x - centre)).abs()
    assert bool((wrong <= 2.0**-22 * (x - centre).abs() + 2.0**-33 * size).all())
    assert not bool(back[:, 30:].any())
