"""The diamond angle of a vector in the plane: y / (|x| + |y|) instead of an arctangent, for compiled loops."""

from __future__ import annotations

from numba import njit


@njit(nogil=True, cache=True, inline="always")
def diamond(x: float, y: float) -> float:
    """Diamond angle in [0, 4] of a non-zero vector: monotone in the angle, without trigonometry."""
    a = y / (abs(x) + abs(y) + 1e-300)
    right = a if a >= 0.0 else 4.0 + a
    return right if x >= 0.0 else 2.0 - a
