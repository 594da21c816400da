"""`march`: the one loop over time steps; whatever metastable integrates step by step goes through it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar, runtime_checkable


@runtime_checkable
class InTime(Protocol):
    """A state that knows its time."""

    @property
    def t(self) -> float:
        """The time reached."""
        ...


S = TypeVar("S", bound=InTime)


def march(
    advance: Callable[[S, float], S],
    state: S,
    targets: Iterable[float],
    enter: Callable[[S, float], S] | None = None,
) -> Iterator[S]:
    """Yield the state after every step, from `state` through all of the increasing `targets`.

    advance(state, target) makes one accepted step that ends at `target` or before it; enter(state, target) prepares
    the state for the stretch that ends there. Whoever iterates decides what to keep, and may stop at any state.

    >>> from types import SimpleNamespace as At
    >>> [s.t for s in march(lambda s, end: At(t=min(s.t + 2, end)), At(t=0), [3, 4])]
    [2, 3, 4]
    """
    for target in targets:
        if state.t >= target:
            continue
        if enter is not None:
            state = enter(state, target)
        while state.t < target:
            state = advance(state, target)
            yield state
