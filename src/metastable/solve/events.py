"""Events: a scalar observable crosses a level; record the time, or stop there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from metastable.errors import InvalidInput
from metastable.solve.problem import Step

LOCATED = 1e-12
"""Part of a step to which the time of a crossing is found: far below the error of the interpolant."""

Observable = Callable[[Tensor, Tensor], Any]
"""(points (n, d), mass (n,)) -> a number."""


@dataclass(frozen=True)
class Event:
    """observable(points, mass) crosses `level`.

    direction: +1 upwards only, -1 downwards only, 0 both. stop: end the run at the crossing. The time is found
    on the integrator's interpolant to 1e-12 of the step; two crossings inside one step are not seen.

    >>> Event(lambda points, mass: (mass @ points).norm(), level=0.99, stop=True, name="consensus").name
    'consensus'
    """

    observable: Observable
    level: float = 0.0
    direction: int = 0
    stop: bool = False
    name: str = "event"

    def __post_init__(self) -> None:
        if self.direction not in (-1, 0, 1):
            raise InvalidInput(f"direction must be -1, 0 or 1, got {self.direction}")
        try:
            object.__setattr__(self, "level", float(self.level))
        except (TypeError, ValueError):
            raise InvalidInput(f"level must be a number, got {self.level!r}") from None

    def gap(self, points: Tensor, mass: Tensor) -> float:
        """Observable minus level."""
        return float(self.observable(points, mass)) - self.level


@dataclass(frozen=True)
class Crossing:
    """An event that happened: its name, the time, and the direction of the crossing."""

    name: str
    time: float
    direction: int


def crossing(event: Event, step: Step, before: float, after: float, mass: Tensor) -> Crossing | None:
    """The crossing inside a step whose gaps at both ends are `before` and `after`, if there is one."""
    direction = 1 if before < 0 <= after else -1 if before > 0 >= after else 0
    if direction == 0 or event.direction not in (0, direction):
        return None
    from scipy.optimize import brentq

    width = step.end.t - step.start.t

    def gap(s: float) -> float:
        if s in (0.0, 1.0):
            value = after if s else before
        else:
            value = event.gap(step.interpolate([step.start.t + s * width])[0], mass)
        # Touching the level counts as past it: an observable with steps (a number of clusters) is caught, too.
        return value if value != 0 else direction * 1e-300

    return Crossing(event.name, step.start.t + width * float(brentq(gap, 0.0, 1.0, xtol=LOCATED)), direction)
