"""`Task`: a run before its first step, from a call of `solve` or from the record of an earlier run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jaxtyping import Float
from torch import Tensor

from metastable.errors import InvalidInput
from metastable.flows.flow import Flow
from metastable.flows.identity import identity, unidentified, vouched
from metastable.solve.arguments import jump_times, time_scale
from metastable.solve.events import Event
from metastable.solve.problem import Problem
from metastable.solve.provenance import fingerprint, provenance
from metastable.solve.stepper import Stepper
from metastable.solve.stretches import refuse_endless


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """What is to be solved, how, and what identifies it."""

    flow: Flow
    mass: Float[Tensor, "*b n"]
    stepper: Stepper
    events: tuple[Event, ...]
    parameters: dict[str, Any]
    """Everything that the digits depend on, as plain data."""
    seed: int | None
    key: str | None
    bounded: bool
    """Whether something else than the final time may end the run: max_steps, an event, an observer."""

    @classmethod
    def of(
        cls,
        flow: Flow,
        mass: Tensor,
        stepper: Stepper,
        events: Sequence[Event],
        how: dict[str, Any],
        *,
        seed: int | None = None,
        key: str | None = None,
        bounded: bool = False,
    ) -> Task:
        """A run whose plain parameters are `how`: t0, t, times, rtol, atol, step, max_step, n, d, dtype, tokens."""
        jump_times(flow)
        bounded = bounded or any(event.stop for event in events)
        if not bounded and (shortest := how["step"] or how["max_step"]) is not None:
            refuse_endless(how["t"] - how["t0"], shortest)
        parameters = {
            "flow": flow.describe(),
            "method": stepper.name,
            **how,
            "events": [event.describe() for event in events],
        }
        if own := identity(stepper, stepper.caches):
            parameters["stepper"] = own
        if key is not None:
            parameters = vouched(parameters, key)
        return cls(flow, mass, stepper, tuple(events), parameters, seed, key, bounded)

    def problem(self, evaluations: int = 0) -> Problem:
        """The initial value problem for the stepper."""
        how = self.parameters
        # No step is longer than the time in which the field itself changes: a pulse is not stepped over.
        longest = min(how["max_step"] or math.inf, time_scale(self.flow))
        return Problem(
            self.flow,
            self.mass,
            how["rtol"],
            how["atol"],
            how["step"],
            longest,
            evaluations=evaluations,
            start=how["t0"],
            seed=how.get("seed"),
        )

    @property
    def t(self) -> float:
        """The final time."""
        return float(self.parameters["t"])

    @property
    def times(self) -> list[float]:
        """The times at which tokens are kept."""
        return list(self.parameters["times"])

    @cached_property
    def fingerprint(self) -> str:
        """Two runs with one fingerprint are the same run."""
        return fingerprint(self.parameters)

    def record(self) -> dict[str, Any]:
        """The provenance of the run, but for what it will turn out to cost."""
        vouched_for = {} if self.key is None else {"key": self.key}
        return provenance(self.parameters, self.seed) | vouched_for | {"fingerprint": self.fingerprint}

    def require_identity(self) -> None:
        """Refuse to store a run that could not be told from another one."""
        unread = sorted(set(unidentified(self.parameters))) if self.key is None else []
        if unread:
            first = unread[0] if len(unread[0]) <= 40 else f"{unread[0][:37]}..."
            more = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
            raise InvalidInput(
                f"a stored run must be told from others, and {first}{more} cannot be read; pass key= with a word "
                "that names it, or give the flow a method describe"
            )
