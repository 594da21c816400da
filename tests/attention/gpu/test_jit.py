"""Triton where it is installed, and kernels that stay importable elsewhere."""

from __future__ import annotations

import importlib.util

import pytest

from metastable.attention.gpu.jit import HAS_TRITON, jit, tl


def test_triton_is_found_where_it_is_installed() -> None:
    assert (importlib.util.find_spec("triton") is not None) == HAS_TRITON


@pytest.mark.skipif(HAS_TRITON, reason="about machines without Triton")
def test_without_triton_a_kernel_stays_a_function() -> None:
    def kernel(x: int) -> int:
        return x + 1

    assert jit(kernel) is kernel and tl is None
