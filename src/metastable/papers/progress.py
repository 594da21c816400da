"""The progress bar of `verify`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from metastable.drawing.palette import TERMINAL_VERDICTS
from metastable.papers.verdict import Verdict


@contextmanager
def progress_bar(show: bool, total: int) -> Iterator[Callable[[Verdict], None]]:
    """Yields a function to call with every verdict; draws on stderr when `show`, so that stdout stays clean."""
    if not show:
        yield lambda verdict: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=2) as progress:
        task = progress.add_task("claims", total=total)

        def advance(verdict: Verdict) -> None:
            colour = TERMINAL_VERDICTS[verdict.standing]
            age = "stored" if verdict.resumed else f"{verdict.seconds:.1f} s"
            progress.console.print(f"[{colour}]{verdict.standing:>12}[/] {verdict.claim} [dim]({age})[/]")
            progress.advance(task)

        yield advance
