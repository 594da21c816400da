"""APART: do the windows of a text say the same as the whole of it, at the end of the network?

For windows w of m tokens, half overlapping, z_w = sqrt(m) (mean of s over w - mean of s over the text) at the last
place; the score is the mean over the windows of |z_w|^2 in the metric of Mahalanobis, per direction. A stretch of
another text stands apart from the rest of its own, whatever the rest is about.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import torch
from jaxtyping import Float, Integer

from metastable.monitor.channels.channel import Evidence
from metastable.monitor.channels.pooled import DIRECTIONS
from metastable.monitor.channels.tokens import window_width
from metastable.monitor.gaussian import Gaussian, Moments
from metastable.monitor.trace import Trace


class ApartLearner:
    """Moments of the z_w of every text."""

    def __init__(self) -> None:
        self.moments: Moments | None = None

    def add(self, trace: Trace) -> None:
        """Learn from one more trace."""
        away = torch.from_numpy(_windows(trace)[0])
        if self.moments is None:
            self.moments = Moments(away.shape[1])
        self.moments.add(away)

    def finish(self) -> Apart:
        """The channel."""
        assert self.moments is not None
        return Apart(self.moments.gaussian().thinned(DIRECTIONS))


@dataclass(frozen=True, eq=False)
class Apart:
    """Mean over the windows of |z_w|^2, per direction."""

    law: Gaussian

    def evidence(self, trace: Trace) -> Evidence:
        """How far windows stand from the whole."""
        away, text, start = _windows(trace)
        distance = self.law.typical(torch.from_numpy(away)).numpy()
        values = np.bincount(text, distance, len(trace.counts)) / np.maximum(
            np.bincount(text, minlength=len(trace.counts)), 1
        )

        def tokens() -> Float[np.ndarray, "b k"]:
            found = np.zeros(trace.mask.shape)
            for w, b in enumerate(text):
                found[b, start[w] : start[w] + _width(trace.counts[b])] += distance[w]
            return found

        return Evidence(values, np.full(len(values), len(trace.points) - 1), tokens)


def _windows(
    trace: Trace,
) -> tuple[Float[np.ndarray, "w d"], Integer[np.ndarray, "w"], Integer[np.ndarray, "w"]]:
    """z_w of all windows of all texts, the text of every window, and the token that it begins with."""
    return _away(trace.points[-1].numpy(), trace.sums()[-1].numpy(), trace.counts)


@numba.njit(nogil=True, cache=True)
def _width(n):  # type: ignore[no-untyped-def]
    return max(min(window_width(n), n), 1)


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
def _away(points, sums, counts):  # type: ignore[no-untyped-def]
    total, last = 0, np.zeros(len(counts), np.int64)
    for b in range(len(counts)):
        width = _width(counts[b])
        step = max(width // 2, 1)
        last[b] = (counts[b] - width + step - 1) // step
        total += last[b] + 1 if counts[b] else 0
    away = np.zeros((total, points.shape[2]), np.float32)
    text, start = np.empty(total, np.int64), np.empty(total, np.int64)
    w = 0
    for b in range(len(counts)):
        width = _width(counts[b])
        inner, outer = np.float32(1 / np.sqrt(width)), np.float32(np.sqrt(width) / max(counts[b], 1))
        for k in range(last[b] + 1 if counts[b] else 0):
            text[w], start[w] = b, min(k * max(width // 2, 1), counts[b] - width)
            z = away[w]
            for i in range(start[w], start[w] + width):
                row = points[b, i]
                for a in range(len(z)):
                    z[a] += row[a]
            for a in range(len(z)):
                z[a] = z[a] * inner - outer * sums[b, a]
            w += 1
    return away, text, start
