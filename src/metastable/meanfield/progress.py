"""Progress of a refinement, which is one run after the other: whoever is told sees every one begin at t = 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from metastable.arguments import shown
from metastable.errors import InvalidInput
from metastable.solve.progress import takes_two

Tell = Callable[[float, int], Any]
"""Is told the time reached and the number of steps, after every step of every run."""


@contextmanager
def told(progress: Any, t: float) -> Iterator[Tell | None]:
    """Whom to tell of runs to t: a bar on standard error for True, gone when all is over, or a function."""
    if progress is None or isinstance(progress, int | np.bool_):
        if not progress:
            yield None
            return
        bar = _Bar(t)
        try:
            yield bar
        finally:
            bar.stop()
    elif not isinstance(progress, type) and callable(progress) and takes_two(progress):
        yield progress
    else:
        raise InvalidInput(f"progress must be True, False or a function of (t, steps), got {shown(progress)}")


class _Bar:
    """A bar that says which run this is; each has more nodes or smaller steps than the one before."""

    def __init__(self, t: float) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("mean field, run {task.fields[run]}"),
            BarColumn(),
            TextColumn("t = {task.completed:.4g} of {task.total:g}, {task.fields[steps]} steps"),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=t or 1.0, run=1, steps=0)
        self._run, self._reached = 1, 0.0
        self._bar.start()

    def __call__(self, t: float, steps: int) -> None:
        """Move it."""
        self._run += t < self._reached
        self._reached = t
        self._bar.update(self._task, completed=t, run=self._run, steps=steps)

    def stop(self) -> None:
        """Take it away."""
        self._bar.stop()
