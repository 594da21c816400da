"""Kernels without a card."""

import pytest

from attention.gpu import triton_on_torch
from metastable.attention.gpu.jit import HAS_TRITON


@pytest.fixture
def emulated(monkeypatch):
    """The kernels run on CPU tensors, by their own Python text."""
    if HAS_TRITON:
        pytest.skip("with Triton installed the kernels are compiled, and run on the card only")
    triton_on_torch.emulate(monkeypatch)
