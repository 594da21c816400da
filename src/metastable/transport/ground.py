"""The ground cost d(x, y)^p with the chordal distance |x - y| or the geodesic distance angle(x, y)."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist

from metastable.arguments import choice, number, shown
from metastable.errors import InvalidInput
from metastable.measure import as_tensor

METRICS = ("chordal", "geodesic")
MOST_P = 10
"""Largest exponent: W_p^p is known to 1e-13 of the largest d^p, so W_10 below 5% of the largest d is rounding."""


def check_metric(metric: Any, p: Any) -> float:
    """The exponent as a float; a metric or an exponent that is not known is refused in one sentence."""
    choice(metric, "metric", METRICS)
    return number(p, "p", least=1, most=MOST_P)


def ground_cost(x: Any, y: Any, metric: str = "chordal", p: float = 2) -> Float[np.ndarray, "n m"]:
    """Cost matrix c_ij = d(x_i, y_j)^p, d = |x - y| (chordal) or 2 atan2(|x-y|, |x+y|) (geodesic).

    x: (n, d), y: (m, d). Both distances are computed from differences, not from inner products, so that near points
    keep their relative accuracy and antipodes theirs.

    >>> ground_cost(np.eye(2), np.eye(2), "chordal", 2).round(12).tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    p = check_metric(metric, p)
    x, y = _rows(x, "x"), _rows(y, "y")
    if x.shape[1] != y.shape[1]:
        raise InvalidInput(f"x and y must have rows of one length, got {x.shape[1]} and {y.shape[1]}")
    return cost_matrix(x, y, metric, p)


def _rows(points: Any, name: str) -> np.ndarray:
    rows = as_tensor(points, name).cpu().numpy()
    if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all():
        raise InvalidInput(f"{name} must be finite rows (n, d), got {shown(points)}")
    return rows


def cost_matrix(
    x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "m d"], metric: str, p: float
) -> Float[np.ndarray, "n m"]:
    """`ground_cost` of arrays that are known to fit."""
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
    square = np.square(x - y).sum(-1)
    if metric == "chordal":
        return square if p == 2 else square ** (p / 2)
    return (2 * np.arctan2(np.sqrt(square), np.sqrt(np.square(x + y).sum(-1)))) ** p
