"""What attention is computed of: queries, keys, values, masses and the inverse temperature."""

from __future__ import annotations

from torch import Tensor


def same_tensor(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are views of the same numbers in the same order."""
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
