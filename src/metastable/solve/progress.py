"""Progress of a run: a bar on the terminal, or a function that is told the time and the steps."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from metastable.arguments import number, shown
from metastable.errors import InvalidInput
from metastable.solve.observer import Observer, Run
from metastable.solve.path import Path
from metastable.solve.problem import Step

EVERY = 30.0
"""Seconds between two lines of a run without a terminal."""


class ProgressBar(Observer):
    """A bar on standard error, gone when the run is over."""

    begun_at: float | None = None
    """The time at which the run began or went on; None while it has not."""

    def begin(self, run: Run) -> None:
        """Draw it."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("t = {task.fields[t]:.4g} of {task.fields[t_end]:g}, {task.fields[steps]} steps"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(type(run.flow).__name__, total=run.t or 1.0, t=0.0, t_end=run.t, steps=0)
        self._bar.start()
        self.begun_at = run.start.t

    def step(self, step: Step) -> None:
        """Move it."""
        self._bar.update(self._task, completed=step.t, t=step.t, steps=step.end.accepted)

    def end(self, path: Path | None) -> None:
        """Take it away."""
        self._bar.stop()


class LogLines(Observer):
    """A line on standard error every `every` seconds, for runs without a terminal: time, steps, what is left."""

    begun_at: float | None = None
    """The time at which the run began or went on; None while it has not."""

    def __init__(self, every: float = EVERY) -> None:
        self.every = number(every, "every", least=0)

    def begin(self, run: Run) -> None:
        """Look at the clock."""
        self._stop, self.begun_at = run.t, run.start.t
        self._start = run.start.t
        self._began = self._told = time.monotonic()

    def step(self, step: Step) -> None:
        """Say how far the run is, if it is time to."""
        now = time.monotonic()
        if now - self._told < self.every or step.t >= self._stop:
            return
        self._told, elapsed = now, now - self._began
        left = elapsed * (self._stop - step.t) / (step.t - self._start)
        sys.stderr.write(
            f"t = {step.t:.4g} of {self._stop:g}, {step.end.accepted} steps in {elapsed:.0f} s, at this pace "
            f"{left:.0f} s left\n"
        )
        sys.stderr.flush()


class Report(Observer):
    """Calls a function with the time reached and the number of steps, after every step."""

    def __init__(self, function: Callable[[float, int], Any]) -> None:
        self.function = function

    def step(self, step: Step) -> None:
        """Call it; what it returns is its own business."""
        self.function(step.t, step.end.accepted)


def progress_observers(progress: Any) -> tuple[Observer, ...]:
    """The observer that `progress` stands for: True, a function of (t, steps), an observer; nobody for False."""
    if progress is None or isinstance(progress, int | np.bool_):
        return (ProgressBar(),) if progress else ()
    if not isinstance(progress, type):
        if isinstance(progress, Observer):
            return (progress,)
        if callable(progress) and takes_two(progress):
            return (Report(progress),)
    raise InvalidInput(
        f"progress must be True, False, a function of (t, steps) or an Observer, got {shown(progress)}"
    )


def takes_two(function: Callable[..., Any]) -> bool:
    """Whether a function can be called with (t, steps); one that does not say how it is called may be."""
    try:
        inspect.signature(function).bind(0.0, 0)
    except TypeError:
        return False
    except ValueError:
        return True
    return True
