"""Weights that the experiments share.

The families of weights are small so that everything about them is known: M is diagonal with E = span(e1), and they
differ in what happens after concentration.
"""

from __future__ import annotations

import numpy as np

from metastable.weights import AttentionWeights


def sheared(b: float) -> AttentionWeights:
    """G(b): M = diag(2, 1), B = [[1, b], [0, 1]], V = M B^{-T}; V's top direction is (1, -b), not E (Delta > 0)."""
    B = np.array([[1.0, b], [0.0, 1.0]])
    return AttentionWeights(V=np.diag([2.0, 1.0]) @ np.linalg.inv(B.T), B=B)


def commuting() -> AttentionWeights:
    """C: V = diag(1, 2), B = diag(3, 1): M prefers e1, V prefers e2, and they commute (Delta = 0)."""
    return AttentionWeights(V=np.diag([1.0, 2.0]), B=np.diag([3.0, 1.0]))


def plain() -> AttentionWeights:
    """I: V = diag(2, 1), B = I: M and V share their dominant space, so that concentration is for ever."""
    return AttentionWeights(V=np.diag([2.0, 1.0]), B=np.eye(2))


def repelling() -> AttentionWeights:
    """N: V = diag(-1, -2), B = I: all eigenvalues negative, the least negative one wins."""
    return AttentionWeights(V=np.diag([-1.0, -2.0]), B=np.eye(2))


def competing(d: int = 2) -> AttentionWeights:
    """V = diag(1, 2), B = diag(4, 1), on S^2 V = diag(1, 2, 1/2), B = diag(4, 1, 1): M prefers e1, V prefers e2."""
    return AttentionWeights(V=np.diag([1.0, 2.0, 0.5][:d]), B=np.diag([4.0, 1.0, 1.0][:d]))
