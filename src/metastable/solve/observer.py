"""`Observer`: whoever looks at a run: recorder, events, checkpoints, progress, and those from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import instance, number
from metastable.errors import InvalidInput
from metastable.flows.flow import Flow
from metastable.solve.path import Path
from metastable.solve.problem import State, Step


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """What is known of a run before its first step."""

    flow: Flow
    mass: Float[Tensor, "*b n"]
    start: State
    """Where the run begins: at t = 0, or where an interrupted run goes on."""
    t: float
    """The final time."""
    times: tuple[float, ...]
    """The times at which tokens are kept."""
    method: str

    def __post_init__(self) -> None:
        instance(self.flow, "flow", Flow, "a Flow such as SelfAttention")
        instance(self.mass, "mass", Tensor, "a tensor")
        instance(self.start, "start", State, "a State")
        number(self.t, "t")
        instance(self.method, "method", str, "a name")

    def __repr__(self) -> str:
        n, d = self.start.points.shape
        span = f"t = {self.start.t:g} .. {self.t:g}"
        return f"Run({type(self.flow).__name__}, {n} tokens in R^{d}, {span}, method {self.method!r})"


@runtime_checkable
class Observer(Protocol):
    """Sees a run: `begin` once, `step` after every accepted step, `end` once. Subclasses give what they need.

    A step knows its `start` and `end` (each with time `t` and tokens `points`) and the tokens in between,
    `step.at(times)`, until the next step is made. Tensors are the integrator's own: copy what is kept, change none.
    """

    def begin(self, run: Run) -> None:
        """The run is about to begin."""
        return None

    def step(self, step: Step) -> float | bool | None:
        """A step was made; return True to end the run with it, or a time inside it to end the run there."""
        return None

    def end(self, path: Path | None) -> None:
        """The run is over; None if it broke off (an error, Ctrl-C)."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Audience:
    """The observers of one run, in the order in which they see a step; who ends the run cuts it for the rest."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = tuple(observers)
        self.ended_by: Observer | None = None
        self._begun: list[Observer] = []

    def begin(self, run: Run) -> None:
        """Tell all that the run begins."""
        for observer in self.observers:
            self._begun.append(observer)
            observer.begin(run)

    def show(self, step: Step) -> Step:
        """Show a step to all; the step itself, or what is left of it when one of them ends the run."""
        for observer in self.observers:
            answer = observer.step(step)
            if answer is not None and answer is not False and (stop := _stop(answer, step, observer)) is not None:
                step = step.cut(stop)
                self.ended_by = observer
        return step

    def end(self, path: Path | None) -> Exception | None:
        """Tell all who saw the run begin that it is over; the first error that one of them made of it."""
        first: Exception | None = None
        for observer in self._begun:
            try:
                observer.end(path)
            except Exception as error:
                first = first or error
        return first


def observers_of(given: Any) -> tuple[Observer, ...]:
    """The observers from outside, in order."""
    if isinstance(given, Observer | str) or not isinstance(given, Sequence):
        raise InvalidInput(f"observers must be a sequence of Observer, got {type(given).__name__}")
    for observer in given:
        if isinstance(observer, type) or not isinstance(observer, Observer):
            kind = f"the class {observer.__name__}" if isinstance(observer, type) else type(observer).__name__
            raise InvalidInput(f"an observer must have the methods begin, step and end of an Observer, got {kind}")
    return tuple(given)


def _stop(answer: Any, step: Step, observer: Observer) -> float | None:
    """The time at which an observer ends the run, if its answer says so."""
    single = isinstance(answer, Tensor | np.ndarray | np.generic) and np.prod(answer.shape) == 1
    value = answer.item() if single else answer
    if isinstance(value, bool):
        return step.t if value else None
    who = type(observer).__name__
    if not isinstance(value, int | float):
        raise InvalidInput(f"{who}.step must return None, True or a time, got {type(answer).__name__}")
    if not step.start.t <= value <= step.t:
        raise InvalidInput(
            f"{who}.step must end the run inside the step from {step.start.t:g} to {step.t:g}, got {value}"
        )
    return float(value)
