"""`Stepper`: one integration method, what it declares, and what it must do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from metastable.flows.flow import Flow
from metastable.solve.problem import Problem, State, Step

DEFAULT_STEP = 0.01
"""Step of the methods that do not choose their own, if none is asked for: a hundredth of the time in which a token
moves by its own length when |V| = 1."""


class Stepper(ABC):
    """One integration method of stated order. A subclass gives `name`, `order` and `advance`."""

    name: ClassVar[str]
    order: ClassVar[int]
    exact: ClassVar[bool] = False
    """Whether there is no error but rounding: "auto" takes such a method wherever it does not refuse the flow."""
    stochastic: ClassVar[bool] = False
    """Whether it is for flows with noise; all others are refused such flows."""
    caches: ClassVar[tuple[str, ...]] = ()
    """Attributes that are only memory, and no part of what tells this stepper from others."""

    def refusal(self, flow: Flow) -> str | None:
        """Why this method cannot solve the flow, as a sentence; None if it can."""
        return None

    def step_size(self, asked: float | None, t: float, events: bool) -> float | None:
        """The step of a run up to time t, from the one that was asked for; None if the method chooses."""
        return asked or DEFAULT_STEP

    def begin(self, problem: Problem, state: State) -> State:
        """Prepare the state at the start of a stretch on which the field is continuous."""
        return state

    @abstractmethod
    def advance(self, problem: Problem, state: State, limit: float) -> Step:
        """One accepted step that does not pass `limit`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(order {self.order})"
