"""`Checkpoints`: the observer that writes a run down while it goes, so that it can go on after an interruption."""

from __future__ import annotations

import time
from collections.abc import Callable

from metastable.solve.checkpoint import Checkpoint
from metastable.solve.observer import Observer
from metastable.solve.path import Path
from metastable.solve.problem import State, Step


class Checkpoints(Observer):
    """Writes a checkpoint when the last one is older than `every` seconds, and when the run breaks off.

    take: makes the checkpoint of a state, from what the observers before this one have seen.
    """

    def __init__(
        self, take: Callable[[State], Checkpoint], write: Callable[[Checkpoint], None], every: float
    ) -> None:
        self.take, self.write, self.every = take, write, every
        self.latest: Checkpoint | None = None
        self._written = time.monotonic()

    def step(self, step: Step) -> None:
        """A safe place between two steps. The end that an observer made is none: the run would go on from it."""
        if step.ended:
            return
        self.latest = self.take(step.end)
        if time.monotonic() - self._written >= self.every:
            self._write(self.latest)

    def end(self, path: Path | None) -> None:
        """Keep what was computed when the run breaks off between two checkpoints."""
        if path is None and self.latest is not None:
            self._write(self.latest)

    def _write(self, point: Checkpoint) -> None:
        self.write(point)
        self._written = time.monotonic()
