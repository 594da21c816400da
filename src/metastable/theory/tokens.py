"""Tokens as the theory reads them: a measure in double precision, of the dimension of the weights."""

from __future__ import annotations

from typing import Any

import torch

from metastable.errors import InvalidInput
from metastable.measure import Measure, as_measure


def tokens(points: Any, d: int) -> Measure:
    """A Measure or points as a float64 Measure on S^{d-1}; refused when their dimension is not d.

    Formulas are evaluated in double precision whatever the tokens come in: eigenvectors and clocks are in float64.

    >>> tokens([[3.0, 4.0]], 2).points.tolist()
    [[0.6, 0.8]]
    """
    rho = as_measure(points, dtype=torch.float64)
    check_dimension(rho.d, d)
    return rho


def check_dimension(got: int, d: int) -> None:
    """Refuse points of another dimension than the weights."""
    if got != d:
        raise InvalidInput(f"points have dimension {got} but the weights have dimension {d}")
