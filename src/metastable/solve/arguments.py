"""What may be passed to `solve`, checked: every mistake is one sentence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from metastable.arguments import instance, integer, number, numbers, shape, shown
from metastable.errors import InvalidInput
from metastable.flows.flow import ANY_DIMENSION, Flow
from metastable.measure import Ensemble, Measure, as_measure, check_dtype

MOST_TIMES = 2**24
"""Most frames that a number of them may ask for: every save time is a file of its own in a stored path."""


def initial_measure(flow: Any, rho0: Any, dtype: torch.dtype | None) -> Measure:
    """The tokens as a `Measure` of the run's own, on which the flow is defined.

    It is a copy: whoever sees the tokens of a run, and changes them, does not change what the caller gave.
    """
    flow = instance(flow, "flow", Flow, "a Flow such as SelfAttention")
    check_dtype(dtype)
    if flow.systems is not None:
        raise InvalidInput(
            f"this flow has a beta for each of {flow.systems} systems: solve takes an Ensemble of so many, got "
            f"{shown(rho0)}"
        )
    given = as_measure(rho0, sphere=flow.spherical, dtype=dtype)
    rho = given.to() if given is rho0 else given
    if flow.d not in (rho.d, ANY_DIMENSION):
        raise InvalidInput(f"the tokens have dimension {rho.d} but the flow's weights have dimension {flow.d}")
    if flow.spherical and not rho.sphere:
        raise InvalidInput("this flow lives on the sphere but the measure was built with sphere=False")
    return rho


def initial_ensemble(flow: Any, many: Ensemble, dtype: torch.dtype | None) -> Ensemble:
    """The systems of a run, a copy, on which the flow is defined."""
    flow = instance(flow, "flow", Flow, "a Flow such as SelfAttention")
    check_dtype(dtype)
    own = many.to(dtype=dtype)
    if flow.d not in (own.d, ANY_DIMENSION):
        raise InvalidInput(f"the tokens have dimension {own.d} but the flow's weights have dimension {flow.d}")
    if flow.spherical and not own.sphere:
        raise InvalidInput("this flow lives on the sphere but the ensemble was built with sphere=False")
    if flow.systems not in (None, own.b):
        raise InvalidInput(
            f"beta has {flow.systems} numbers, one for each system, but the Ensemble has {own.b} systems"
        )
    return own


def interval(t0: Any, t: Any) -> tuple[float, float]:
    """The first and the last time of a run, finite, in this order."""
    start, end = number(t0, "t0"), number(t, "t")
    if end < start:
        least = "0" if start == 0 else f"t0 = {start:g}"
        raise InvalidInput(f"t must be finite and >= {least}, got {shown(end)}")
    if not math.isfinite(end - start):
        raise InvalidInput(f"t - t0 must fit into a float, got {shown(end)} and {shown(start)}")
    return start, end


def save_times(times: Any, t: float, t0: float = 0.0) -> list[float]:
    """Increasing times in [t0, t]: those given, that many equidistant ones, or the first and the last."""
    if times is None:
        return [t0, t] if t > t0 else [t0]
    if isinstance(times, int | np.integer) and not isinstance(times, bool):
        count = integer(times, "times as a number of frames", least=2, most=MOST_TIMES)
        return [float(x) for x in np.linspace(t0, t, count)] if t > t0 else [t0]
    if isinstance(times, float | complex | bool | np.generic) or shape(times) == ():
        raise InvalidInput(f"times must be one row of numbers or a number of frames, got {shown(times)}")
    grid = numbers(times, "times", increasing=True)
    if not grid:
        raise InvalidInput("times must hold at least one time, got none")
    slack = 1e-12 * max(abs(t), abs(t0))
    if grid[0] < t0 or grid[-1] > t + slack:
        raise InvalidInput(f"times must lie in [{t0:g}, t] = [{t0:g}, {t:g}], got {grid[0]:g} .. {grid[-1]:g}")
    return [min(x, t) for x in grid]


def tolerances(rtol: Any, atol: Any) -> tuple[float, float]:
    """Finite, >= 0, not both 0."""
    rtol, atol = number(rtol, "rtol", least=0), number(atol, "atol", least=0)
    if rtol + atol <= 0:
        raise InvalidInput("rtol and atol must not both be 0")
    return rtol, atol


def positive(value: Any, name: str) -> float | None:
    """A number > 0, or None."""
    return None if value is None else number(value, name, above=0)


def jump_times(flow: Flow) -> list[float]:
    """The flow's breakpoints, in order."""
    return sorted(numbers(flow.breakpoints, f"breakpoints of {type(flow).__name__}"))


def time_scale(flow: Flow) -> float:
    """The time in which the field itself changes, which no step may exceed; infinite where the flow states none."""
    stated = getattr(flow, "time_scale", math.inf)
    return number(stated, f"time_scale of {type(flow).__name__}", above=0, finite=False)
