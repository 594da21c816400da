"""The ellipse around the origin on which queries lie that are B^T x of tokens x on the circle."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from metastable.attention.operands import Operands, contiguous


class Ellipse(NamedTuple):
    """|to_circle q| = 1 for the queries, to_circle symmetric; from_circle is its inverse."""

    to_circle: np.ndarray
    from_circle: np.ndarray
    longest: float
    condition: float


def fit_ellipse(queries: np.ndarray) -> Ellipse | None:
    """The ellipse through a sample of the queries that is nearest to a circle; None where there is no such ellipse.

    How far the other queries are from it is for the caller to see.
    """
    some = queries[:: max(len(queries) // 64, 1)]
    square = float(np.einsum("ij,ij->", some, some)) / max(len(some), 1)
    if not square > 1e-200:
        return None
    some = some / math.sqrt(square)
    x, y = some[:, 0], some[:, 1]
    squares, off_circle = np.stack([x * x, 2 * x * y, y * y], axis=1), 1 - x * x - y * y
    entries = np.linalg.lstsq(squares, off_circle, rcond=1e-10)[0]
    values, vectors = np.linalg.eigh(np.array([[1 + entries[0], entries[1]], [entries[1], 1 + entries[2]]]))
    if np.abs(squares @ entries - off_circle).max() > 1e-9 or not values[0] > 1e-8 * values[1]:
        return None
    axes = np.sqrt(square / values)
    to_circle, from_circle = (vectors / axes) @ vectors.T, (vectors * axes) @ vectors.T
    return Ellipse(to_circle, from_circle, float(axes[0]), float(axes[0] / axes[1]))


def ellipse_of(operands: Operands) -> Ellipse | None:
    """`fit_ellipse` of the queries of a call."""
    return fit_ellipse(contiguous(operands.queries.double()))
