"""What one random ReLU layer leaves of a token, by quadrature (Y7): how random transformers approach their limits.

A layer is isotropic, so that L of them keep E<x_L, x_0> = q^L with
    q = E[(1 + sqrt(h s) xi)/sqrt((1 + sqrt(h s) xi)^2 + h s chi^2_{d-1})],   s = |relu(z)|^2/m,
xi, z standard normal; s = kappa(1) = 1/2 for infinite width.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

NODES = 24
"""Of the Gauss rules for each variable; twice as many change q by less than 2e-6 for h <= 1/2
(`tests/papers/common_noise/test_one_layer.py`)."""


@cache
def kept_by_layer(width: int | None, h: float, d: int, nodes: int = NODES) -> float:
    """q = E<x', x> of a ReLU layer of this width with the step h on S^{d-1}."""
    from scipy import special

    xi, at_xi = special.roots_hermitenorm(nodes)
    across, at_across = chi_squared(d - 1, nodes)
    square, at_square = strengths(width, nodes)
    size = np.sqrt(h * square)[:, None, None]
    ahead = 1 + size * xi[:, None]
    kept = ahead / np.sqrt(ahead**2 + size**2 * across)
    return float(np.einsum("sxa,s,x,a->", kept, at_square, at_xi / at_xi.sum(), at_across))


def chi_squared(freedom: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for the chi^2 law with so many degrees of freedom."""
    from scipy import special

    half, weights = special.roots_genlaguerre(nodes, freedom / 2 - 1)
    return 2 * half, weights / weights.sum()


def strengths(width: int | None, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Those for s = |relu(z)|^2/m: chi^2_k/m with k positive entries of z, a binomial number."""
    if width is None:
        return np.array([0.5]), np.array([1.0])
    places, weights = [np.zeros(1)], [np.array([0.5**width])]
    for k in range(1, width + 1):
        square, share = chi_squared(k, nodes)
        places.append(square / width)
        weights.append(share * math.comb(width, k) * 0.5**width)
    return np.concatenate(places), np.concatenate(weights)


def kept_by_layers(width: int | None, depth: int, t: float, d: int) -> float:
    """E<x_L, x_0> after L layers in the time t."""
    return kept_by_layer(width, t / depth, d) ** depth
