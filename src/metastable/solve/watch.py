"""`Watch`: the observer that looks for events in every step."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from metastable.solve.events import Crossing, Event, crossing
from metastable.solve.observer import Observer, Run
from metastable.solve.problem import Step


class Watch(Observer):
    """Records the crossings of events; an event that stops the run ends it at its crossing."""

    def __init__(
        self, events: Sequence[Event], gaps: tuple[float, ...] | None = None, crossings: Sequence[Crossing] = ()
    ) -> None:
        self.events = tuple(events)
        self.crossings = list(crossings)
        self._known = gaps
        self.gaps: tuple[float, ...] = gaps or ()
        self._mass: Tensor

    def begin(self, run: Run) -> None:
        """Measure the gaps at the start, unless a checkpoint knows them."""
        self._mass = run.mass
        if self._known is None:
            self.gaps = self._measured(run.start.points)

    def step(self, step: Step) -> float | None:
        """Record the crossings inside a step, up to the first that stops the run."""
        gaps = self._measured(step.points)
        found = [
            (event, hit)
            for event, before, after in zip(self.events, self.gaps, gaps, strict=True)
            if (hit := crossing(event, step, before, after, self._mass)) is not None
        ]
        self.gaps = gaps
        for event, hit in sorted(found, key=lambda pair: pair[1].time):
            self.crossings.append(hit)
            if event.stop:
                return hit.time
        return None

    def _measured(self, points: Tensor) -> tuple[float, ...]:
        return tuple(event.gap(points, self._mass) for event in self.events)
