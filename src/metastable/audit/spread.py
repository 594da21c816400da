"""Means over texts and their standard errors."""

from __future__ import annotations

import math
from collections.abc import Sequence


def mean(values: Sequence[float]) -> float:
    """The mean."""
    return sum(values) / len(values)


def standard_error(values: Sequence[float]) -> float:
    """sqrt(sum (v - mean)^2 / (n - 1) / n); 0 for a single value, of which nothing is known."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.sqrt(sum((v - centre) ** 2 for v in values) / (len(values) - 1) / len(values))
