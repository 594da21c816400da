"""The worst window of every text, among numbers that all of its tokens have, chosen for the trace or not."""

from __future__ import annotations

import numba
import numpy as np
from jaxtyping import Float, Integer

from metastable.monitor.trace import Trace


@numba.njit(nogil=True, cache=True)
def worst_windows(told, weight, sizes, width):  # type: ignore[no-untyped-def]
    """Largest sum of `told` over sum of `weight` in a window of tokens, and where it begins, for every text.

    told, weight: of the tokens of all texts in a row; sizes: tokens of every text. A text that is shorter than a
    window is one window; one without tokens has zero.
    """
    values, begins = np.zeros(len(sizes)), np.zeros(len(sizes), np.int64)
    start = 0
    for text in range(len(sizes)):
        stop, held = start + sizes[text], min(width, sizes[text])
        above, below, best = 0.0, 0.0, -np.inf
        for i in range(start, stop):
            above += told[i]
            below += weight[i]
            if i - start >= held:
                above -= told[i - held]
                below -= weight[i - held]
            if i - start >= held - 1 and above > best * max(below, 1.0):
                best = above / max(below, 1.0)
                begins[text] = i - held + 1 - start
        values[text] = best if held else 0.0
        start = stop
    return values, begins


def inside(
    trace: Trace, told: Float[np.ndarray, "n"], begins: Integer[np.ndarray, "b"], width: int
) -> Float[np.ndarray, "b k"]:
    """Numbers of the tokens of a trace that are in the window of their text; zero for the others."""
    sizes = trace.lengths
    numbers, mask = trace.numbers.numpy(), trace.mask.numpy()
    within = mask & (numbers >= begins[:, None]) & (numbers < begins[:, None] + width)
    at = (np.cumsum(sizes) - sizes)[:, None] + numbers
    return np.where(within, np.append(told, 0.0)[np.minimum(at, len(told))], 0.0)
