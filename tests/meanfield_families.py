"""The weights of the reference cases."""

import numpy as np

from metastable import AttentionWeights


def tilted(b: float) -> AttentionWeights:
    """Family G(b): M = diag(2, 1), B = [[1, b], [0, 1]], V = M B^{-T}."""
    B = np.array([[1.0, b], [0.0, 1.0]])
    return AttentionWeights(V=np.diag([2.0, 1.0]) @ np.linalg.inv(B.T), B=B)


def diagonal(*values: float) -> AttentionWeights:
    """V = diag(values), B = I: family I for (2, 1), family N for (-1, -2)."""
    return AttentionWeights(V=np.diag(values), B=np.eye(len(values)))


def crossed() -> AttentionWeights:
    """Family C: V = diag(1, 2), B = diag(3, 1): M = diag(3, 2) concentrates on e1, V then pulls to e2."""
    return AttentionWeights(V=np.diag([1.0, 2.0]), B=np.diag([3.0, 1.0]))
