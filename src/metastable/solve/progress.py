"""Progress of a run on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable


@runtime_checkable
class Reporter(Protocol):
    """Called with the time reached and the number of steps."""

    def __call__(self, t: float, steps: int) -> None:
        """Show it."""
        ...


@contextmanager
def reporter(show: bool, t_end: float, label: str) -> Iterator[Reporter]:
    """A progress bar on standard error while the block runs, or a function that does nothing."""
    if not show:
        yield lambda t, steps: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("t = {task.fields[t]:.4g} of {task.fields[t_end]:g}, {task.fields[steps]} steps"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=t_end or 1.0, t=0.0, t_end=t_end, steps=0)
        yield lambda t, steps: bar.update(task, completed=t, t=t, steps=steps)
