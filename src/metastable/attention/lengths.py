"""Lengths of the rows of a matrix in one pass: what a call must know of its tokens before it chooses a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from metastable.attention.exp2 import REDUCTION
from metastable.threads import over_rows

_MOST_COLUMNS = 8
"""Largest d with a compiled loop, as in the fused kernel: beyond, torch's product is as fast."""

_FEW = 100_000
"""Entries that one thread looks at in less time than it takes to call others; beyond, numpy's vectors find least
and largest in a quarter of the time of a compiled loop."""


def squared_lengths(points: Tensor) -> tuple[float, float]:
    """(least, largest) |x_i|^2, in float64, of finite rows; (inf, 0) without rows."""
    if points.shape[0] == 0:
        return math.inf, 0.0
    if points.is_cpu and points.is_contiguous() and points.shape[1] > _MOST_COLUMNS and points.numel() <= _FEW:
        return _extremes(points.numpy().reshape(-1), points.shape[1])
    if points.device.type != "cpu" or points.shape[1] > _MOST_COLUMNS or not points.is_contiguous():
        square = torch.linalg.vecdot(points, points).double()
        return float(square.min()), float(square.max())
    array, kernel = points.numpy().reshape(-1), _kernel(points.shape[1])
    parts: list[tuple[float, float]] = []

    def part(start: int, stop: int) -> None:
        parts.append(kernel(array[start * points.shape[1] : stop * points.shape[1]]))

    over_rows(part, points.shape[0], cost=0.5 * array.size)
    return min(part[0] for part in parts), max(part[1] for part in parts)


def finite_lengths(points: Tensor) -> tuple[float, float] | None:
    """`squared_lengths`, or None where an entry is NaN or infinite, for few rows in one call."""
    if points.device.type == "cpu" and points.is_contiguous() and 0 < points.numel() <= _FEW and points.ndim == 2:
        flat, d = points.numpy().reshape(-1), points.shape[1]
        if _sum_of_zeros(flat) != 0.0:
            return None
        least, largest = _kernel(d)(flat) if d <= _MOST_COLUMNS else _extremes(flat, d)
        return least, largest
    return squared_lengths(points) if all_finite(points) else None


def all_finite(points: Tensor) -> bool:
    """Whether no entry is NaN or infinite."""
    if points.device.type == "cpu" and points.is_contiguous():
        array = points.numpy().reshape(-1)
        parts: list[float] = []
        over_rows(
            lambda start, stop: parts.append(_sum_of_zeros(array[start:stop])), array.size, cost=0.3 * array.size
        )
        return sum(parts) == 0.0
    return bool(torch.isfinite(points).all())


@njit(nogil=True, cache=True, fastmath={"reassoc", "nsz"}, error_model="numpy")
def _sum_of_zeros(flat: Any) -> float:
    """sum of 0 x: zero, or NaN as soon as one entry is not finite."""
    total = 0.0
    for i in range(flat.shape[0]):
        total += 0.0 * flat[i]
    return total


def mass_extremes(mass: np.ndarray) -> tuple[float, float, float]:
    """(least positive, largest, sum) of finite masses; the sum may overflow."""
    if mass.size > _FEW and (least := float(mass.min())) > 0.0:
        return least, float(mass.max()), float(mass.sum(dtype=np.float64))
    least, largest, total = _mass_extremes(mass)
    return least, largest, total


def mass_range(mass: np.ndarray) -> tuple[float, float, bool]:
    """(least, largest, whether all are finite) of any numbers, those of zero among them."""
    if mass.size > _FEW:  # a NaN among them is the least
        least, largest = float(mass.min()), float(mass.max())
        return least, largest, math.isfinite(least) and math.isfinite(largest)
    least, largest, finite = _mass_range(mass)
    return least, largest, finite


@njit(nogil=True, cache=True, fastmath={"reassoc", "nsz", "nnan"}, error_model="numpy")
def _mass_extremes(mass: Any) -> tuple[float, float, float]:
    least, largest, total = math.inf, 0.0, 0.0
    for j in range(mass.shape[0]):
        m = float(mass[j])
        least = m if 0.0 < m < least else least
        largest = m if m > largest else largest
        total += m
    return least, largest, total


@njit(nogil=True, cache=True, fastmath={"reassoc", "nsz"}, error_model="numpy")
def _mass_range(mass: Any) -> tuple[float, float, bool]:
    least, largest, zeros = math.inf, -math.inf, 0.0
    for j in range(mass.shape[0]):
        m = float(mass[j])
        least = m if m < least else least
        largest = m if m > largest else largest
        zeros += 0.0 * m
    return least, largest, zeros == 0.0


@njit(nogil=True, cache=True, fastmath=REDUCTION, error_model="numpy")
def _extremes(flat: Any, d: int) -> tuple[float, float]:
    """(least, largest) |x_i|^2 of rows of any length."""
    least, most = math.inf, 0.0
    for i in range(flat.shape[0] // d):
        square = 0.0
        for c in range(d):
            square += float(flat[i * d + c]) * float(flat[i * d + c])
        least = square if square < least else least
        most = square if square > most else most
    return least, most


@cache
def _kernel(d: int) -> Callable[[Any], tuple[float, float]]:
    @njit(nogil=True, cache=True, fastmath=REDUCTION, error_model="numpy")
    def extremes(flat: Any) -> tuple[float, float]:
        least, most = math.inf, 0.0
        for i in range(flat.shape[0] // d):
            square = 0.0
            for c in range(d):
                square += float(flat[i * d + c]) * float(flat[i * d + c])
            least = square if square < least else least
            most = square if square > most else most
        return least, most

    return extremes
