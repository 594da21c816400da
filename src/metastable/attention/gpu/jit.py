"""Triton's `jit` and language where Triton is installed, and stand-ins that keep the kernels importable elsewhere.

Triton comes with the CUDA builds of torch on Linux only. Modules that hold kernels import `jit` and `tl` from
here; without Triton a kernel stays an ordinary function that nobody calls, because `require_cuda` in
`metastable.attention.gpu.kernels` refuses first, with a sentence.
"""

from __future__ import annotations

from typing import Any

try:
    import triton
    import triton.language as tl

    jit: Any = triton.jit
    HAS_TRITON = True
except ImportError:
    tl: Any = None  # type: ignore[no-redef]
    HAS_TRITON = False

    def jit(kernel: Any) -> Any:
        """The kernel as it is: without Triton it is never launched."""
        return kernel


__all__ = ["HAS_TRITON", "jit", "tl"]
