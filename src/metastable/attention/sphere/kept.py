"""Memory that a thread keeps from call to call.

What a grid for some thousand tokens takes is a few megabytes, and to have them made ready by the system, page by
page at every call, a fifth of all its time.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

MOST_KEPT = 1 << 22
"""Bytes above which memory is taken anew: what is done in it takes much longer then."""
_kept = threading.local()


def kept_array(use: str, shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """An array of any content, in the memory that this thread keeps for one use.

    Whoever asks has done with it before the same thread asks for the same use again.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size > MOST_KEPT:
        return np.empty(shape, dtype=dtype)
    memory: np.ndarray | None = getattr(_kept, use, None)
    if memory is None or memory.nbytes < size:
        memory = np.empty(max(size, 1), dtype=np.uint8)
        setattr(_kept, use, memory)
    return memory[:size].view(dtype).reshape(shape)
