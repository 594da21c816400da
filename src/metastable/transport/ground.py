"""The ground cost d(x, y)^p with the chordal distance |x - y| or the geodesic distance angle(x, y)."""

from __future__ import annotations

import math
from numbers import Real

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist

from metastable.errors import InvalidInput

METRICS = ("chordal", "geodesic")


def check_metric(metric: str, p: float) -> None:
    """Refuse a metric or an exponent that is not known, in one sentence."""
    if metric not in METRICS:
        raise InvalidInput(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")
    if not (isinstance(p, Real) and math.isfinite(p) and p >= 1):
        raise InvalidInput(f"p must be a finite number >= 1, got {p!r}")


def ground_cost(
    x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "m d"], metric: str = "chordal", p: float = 2
) -> Float[np.ndarray, "n m"]:
    """Cost matrix c_ij = d(x_i, y_j)^p, d = |x - y| (chordal) or 2 atan2(|x-y|, |x+y|) (geodesic).

    Both are computed from differences, not from inner products, so that near points keep their relative accuracy
    and antipodes theirs.

    >>> ground_cost(np.eye(2), np.eye(2), "chordal", 2).round(12).tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    check_metric(metric, p)
    if metric == "chordal":
        if p == 2:
            return cdist(x, y, "sqeuclidean")
        distance = cdist(x, y)
    else:
        distance = 2 * np.arctan2(cdist(x, y), cdist(x, -y))
    return distance if p == 1 else distance**p


def paired_cost(
    x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n d"], metric: str = "chordal", p: float = 2
) -> Float[np.ndarray, "n"]:
    """Costs c_i = d(x_i, y_i)^p of paired rows; y may be one row, paired with all."""
    check_metric(metric, p)
    square = np.square(x - y).sum(-1)
    if metric == "chordal":
        return square if p == 2 else square ** (p / 2)
    return (2 * np.arctan2(np.sqrt(square), np.sqrt(np.square(x + y).sum(-1)))) ** p
