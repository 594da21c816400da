"""Events: a scalar observable crosses a level; record the time, or stop there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import OneLine, flag, function, instance, integer, number, shown
from metastable.errors import InvalidInput
from metastable.flows.identity import identify
from metastable.measure import as_tensor
from metastable.solve.problem import Step

LOCATED = 1e-12
"""Part of a step to which the time of a crossing is found: far below the error of the interpolant."""

Observable = Callable[[Tensor, Tensor], Any]
"""(points (n, d), mass (n,)) -> a number."""


@dataclass(frozen=True, eq=False, repr=False)
class Event:
    """observable(points, mass) crosses `level`.

    direction: +1 upwards only, -1 downwards only, 0 both. stop: end the run at the crossing (of an `Ensemble`, the
    run of the system that it happens in). many: the observable takes many systems at once, points (b, n, d) and
    mass (b, n), and returns b numbers; else it is called for one system after the other. The time is found
    on the integrator's interpolant to 1e-12 of the step; two crossings inside one step are not seen. A stored run
    (`out=`) knows its events by the code of the observable and all that it reads, so the observable should be a
    function of its arguments and of nothing that changes.

    >>> Event(lambda points, mass: (mass @ points).norm(), level=0.99, stop=True, name="consensus")
    Event('consensus' crosses 0.99, stops the run)
    """

    observable: Observable
    level: float = 0.0
    direction: int = 0
    stop: bool = False
    name: str = "event"
    many: bool = False

    def __post_init__(self) -> None:
        function(self.observable, "observable")
        if isinstance(self.observable, type) or not _takes_two(self.observable):
            raise InvalidInput(f"observable must be a function of (points, mass), got {shown(self.observable)}")
        object.__setattr__(self, "level", number(self.level, "level"))
        direction = integer(self.direction, "direction")
        if direction not in (-1, 0, 1):
            raise InvalidInput(f"direction must be -1, 0 or 1, got {shown(direction)}")
        object.__setattr__(self, "direction", direction)
        object.__setattr__(self, "stop", flag(self.stop, "stop"))
        instance(self.name, "name", str, "a text")
        object.__setattr__(self, "many", flag(self.many, "many"))

    def gap(self, points: Tensor, mass: Tensor) -> float:
        """Observable minus level."""
        if self.many:
            return float(self.gaps(points[None], mass[None])[0])
        value = self._value(points, mass)
        try:
            return float(value) - self.level
        except Exception as error:
            raise InvalidInput(
                f"the observable of event {shown(self.name)} must return a number, got {shown(value)}"
            ) from error

    def gaps(self, points: Tensor, mass: Tensor) -> Float[np.ndarray, "b"]:
        """Observable minus level, of every system."""
        if not self.many:
            return np.array([self.gap(x, m) for x, m in zip(points, mass, strict=True)])
        value = self._value(points, mass)
        try:
            row = as_tensor(value, "observable")
            if row.shape != points.shape[:1]:
                raise TypeError
        except Exception as error:
            raise InvalidInput(
                f"the observable of event {shown(self.name)} must return {len(points)} numbers, one of each "
                f"system, got {shown(value)}"
            ) from error
        return np.asarray(row.cpu().numpy() - self.level)

    def _value(self, points: Tensor, mass: Tensor) -> Any:
        try:
            return self.observable(points, mass)
        except Exception as error:
            # What a function raises inside is its own business; that it cannot be called so is ours.
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise
            raise InvalidInput(f"the observable of event {shown(self.name)} must take (points, mass)") from error

    def describe(self) -> dict[str, Any]:
        """Everything that defines the event, for provenance."""
        many = {"many": True} if self.many else {}
        return many | {
            "name": self.name,
            "level": self.level,
            "direction": self.direction,
            "stop": self.stop,
            "observable": identify(self.observable, f"event {shown(self.name)}"),
        }

    def __repr__(self) -> str:
        way = {1: " upwards", 0: "", -1: " downwards"}[self.direction]
        return f"Event({self.name!r} crosses {self.level:g}{way}{', stops the run' if self.stop else ''})"


@dataclass(frozen=True, repr=False)
class Crossing(OneLine):
    """An event that happened: its name, the time, and the direction of the crossing."""

    name: str
    time: float
    direction: int
    system: int | None = None
    """Which system of an ensemble it happened in."""

    def __post_init__(self) -> None:
        instance(self.name, "name", str, "a text")
        object.__setattr__(self, "time", number(self.time, "time"))
        object.__setattr__(self, "direction", integer(self.direction, "direction", least=-1, most=1))
        if self.system is not None:
            object.__setattr__(self, "system", integer(self.system, "system", least=0))

    def fields(self) -> list[Any]:
        """The arguments that make it again, as plain data."""
        plain = [self.name, self.time, self.direction]
        return plain if self.system is None else [*plain, self.system]


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


def _takes_two(observable: Observable) -> bool:
    """Whether a function can be called with two arguments, as far as it says."""
    try:
        inspect.signature(observable).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # a compiled function does not say
        return True
    return True
