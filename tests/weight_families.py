"""Weights that many tests share, beside the families of `metastable.papers.concentration.families`."""

import numpy as np

from metastable import AttentionWeights


def diagonal(*values: float) -> AttentionWeights:
    """V = diag(values), B = I."""
    return AttentionWeights(V=np.diag(values), B=np.eye(len(values)))
