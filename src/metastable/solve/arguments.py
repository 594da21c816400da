"""What may be passed to `solve`, checked: every mistake is one sentence."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from metastable.errors import InvalidInput
from metastable.flows.flow import Flow
from metastable.measure import Measure, as_measure


def initial_measure(flow: Any, rho0: Any, dtype: torch.dtype | None) -> Measure:
    """The tokens as a `Measure` on which the flow is defined."""
    if not isinstance(flow, Flow):
        raise InvalidInput(f"flow must be a Flow such as SelfAttention, got {type(flow).__name__}")
    if dtype not in (None, torch.float32, torch.float64):
        raise InvalidInput(f"dtype must be torch.float32 or torch.float64, got {dtype}")
    rho = as_measure(rho0, sphere=flow.spherical, dtype=dtype)
    if rho.d != flow.d:
        raise InvalidInput(f"the tokens have dimension {rho.d} but the flow's weights have dimension {flow.d}")
    if flow.spherical and not rho.sphere:
        raise InvalidInput("this flow lives on the sphere but the measure was built with sphere=False")
    return rho


def final_time(t: Any) -> float:
    """A finite time >= 0."""
    value = number(t, "t")
    if not (math.isfinite(value) and value >= 0):
        raise InvalidInput(f"t must be finite and >= 0, got {t}")
    return value


def save_times(times: Any, t: float) -> list[float]:
    """Increasing times in [0, t]: those given, that many equidistant ones, or the first and the last."""
    if times is None:
        return [0.0, t] if t > 0 else [0.0]
    if isinstance(times, int | np.integer) and not isinstance(times, bool):
        if times < 2:
            raise InvalidInput(f"times as a number of frames must be >= 2, got {times}")
        return [float(x) for x in np.linspace(0.0, t, int(times))] if t > 0 else [0.0]
    try:
        array = np.asarray(times, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"times must be numbers, got {times!r}") from None
    if array.ndim != 1 or isinstance(times, bool):
        raise InvalidInput(f"times must be one row of numbers or a number of frames, got {times!r}")
    grid = [float(x) for x in array]
    if not grid:
        raise InvalidInput("times must hold at least one time, got none")
    if not all(math.isfinite(x) for x in grid) or any(b <= a for a, b in itertools.pairwise(grid)):
        raise InvalidInput(f"times must be finite and strictly increasing, got {_short(grid)}")
    if grid[0] < 0 or grid[-1] > t * (1 + 1e-12):
        raise InvalidInput(f"times must lie in [0, t] = [0, {t:g}], got {grid[0]:g} .. {grid[-1]:g}")
    return [min(x, t) for x in grid]


def tolerances(rtol: Any, atol: Any) -> tuple[float, float]:
    """Finite, >= 0, not both 0."""
    rtol, atol = number(rtol, "rtol"), number(atol, "atol")
    for name, value in (("rtol", rtol), ("atol", atol)):
        if not (math.isfinite(value) and value >= 0):
            raise InvalidInput(f"{name} must be finite and >= 0, got {value}")
    if rtol + atol <= 0:
        raise InvalidInput("rtol and atol must not both be 0")
    return rtol, atol


def positive(value: Any, name: str) -> float | None:
    """A number > 0, or None."""
    return None if value is None else _above_zero(number(value, name), name)


def positive_integer(value: Any, name: str) -> int | None:
    """An integer > 0, or None."""
    return None if value is None else int(_above_zero(integer(value, name), name))


def number(value: Any, name: str) -> float:
    """Anything that Python takes for a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be a number, got {value!r}") from None


def integer(value: Any, name: str) -> int:
    """Anything that Python takes for an integer."""
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidInput(f"{name} must be an integer, got {value!r}") from None


def _above_zero(value: float, name: str) -> float:
    if not value > 0:
        raise InvalidInput(f"{name} must be > 0, got {value}")
    return value


def _short(values: Sequence[float]) -> str:
    shown = ", ".join(f"{v:g}" for v in values[:4])
    return f"[{shown}{', ...' if len(values) > 4 else ''}]"
