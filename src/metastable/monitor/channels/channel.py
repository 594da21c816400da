"""What a channel is: a law of in-distribution texts, learnt from traces, that says how unusual another trace is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Integer

from metastable.monitor.trace import Trace


@dataclass(frozen=True, eq=False)
class Evidence:
    """How unusual every text of a trace is (larger: more), at which place, and the share of every token."""

    values: Float[np.ndarray, "b"]
    place: Integer[np.ndarray, "b"]
    """The place p that says so most loudly; -1 where the channel knows no places."""
    tokens: Float[np.ndarray, "b k"] | Callable[[], Float[np.ndarray, "b k"]] | None = None
    """A weight for every token of the trace, or how to find it; None where the channel knows no tokens."""

    def weights(self) -> Float[np.ndarray, "b k"] | None:
        """The weight of every token, if the channel knows tokens."""
        return self._weights

    @cached_property
    def _weights(self) -> Float[np.ndarray, "b k"] | None:
        """Found once, though every text that alarms asks for it."""
        return self.tokens() if callable(self.tokens) else self.tokens


@runtime_checkable
class Channel(Protocol):
    """A fitted channel."""

    def evidence(self, trace: Trace) -> Evidence:
        """How unusual the texts of a trace are."""
