"""`metastable verify`: the claims of a paper, tested by experiment."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from metastable.papers import Verdict

WIDTH = 140
"""Columns of a table that goes into a pipe, which is not a terminal of 80 columns."""


def verify(
    paper: Annotated[str, typer.Argument(help="Which paper; --list shows its claims.")] = "concentration",
    quick: Annotated[
        bool, typer.Option("--quick", help="Small experiments: under two minutes on two cores.")
    ] = False,
    claim: Annotated[
        list[str] | None, typer.Option("--claim", help="Only this claim; may be given several times.")
    ] = None,
    list_claims: Annotated[bool, typer.Option("--list", help="List the claims and stop.")] = False,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 2,
    out: Annotated[
        str | None, typer.Option(help="Folder for results; default metastable-out/verify-PAPER.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of all random tokens.")] = 0,
) -> None:
    """Run the claims of a paper as experiments; print a verdict for each and write a report.

    Example: metastable verify concentration --quick

    Finished claims are kept in OUT/claims: after an interruption the same command goes on. Exit code 1 when a claim
    fails, or when none could be decided.
    """
    if list_claims:
        _list(paper, as_json)
        return
    folder = out or f"metastable-out/verify-{paper}"
    verdicts, page = run_and_report(paper, folder, quick=quick, claims=claim, jobs=jobs, seed=seed, quiet=as_json)
    if as_json:
        record = {
            "paper": paper,
            "quick": quick,
            "seed": seed,
            "report": page,
            "holds": not any(v.fails for v in verdicts) and any(v.holds for v in verdicts),
            "verdicts": [v.to_dict() for v in verdicts],
        }
        typer.echo(json.dumps(record))
    else:
        show(verdicts)
        typer.echo(f"report: {page}")
    leave(verdicts)


def run_and_report(
    paper: str,
    folder: str,
    *,
    quick: bool,
    claims: list[str] | None = None,
    jobs: int = 2,
    seed: int = 0,
    quiet: bool = False,
) -> tuple[list[Verdict], str]:
    """Run the claims with progress on standard error, write the report; the verdicts and the page's path."""
    from metastable.papers import verify, write_report

    verdicts = verify(paper, quick=quick, out=folder, claims=claims, jobs=jobs, progress=not quiet, seed=seed)
    if not quiet:
        typer.echo("drawing the report ...", err=True)
    return verdicts, str(write_report(verdicts, folder, paper=paper, quick=quick, seed=seed))


def show(verdicts: list[Verdict]) -> None:
    """The verdict table."""
    from rich.table import Table

    from metastable.drawing.palette import TERMINAL_VERDICTS

    console = _console()
    table = Table(title="Verdicts", title_style="bold", show_lines=False)
    table.add_column("claim", no_wrap=True)
    table.add_column("quantity")
    for name in ("expected", "measured", "tolerance"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("s", justify="right")
    for v in verdicts:
        error = f" ± {v.uncertainty:.1g}" if v.uncertainty else ""
        colour = TERMINAL_VERDICTS[v.verdict]
        table.add_row(
            v.claim,
            v.unit,
            f"{v.sign}{v.expected:.4g}",
            f"{v.measured:.4g}{error}",
            f"{v.tolerance:.2g}",
            f"[{colour}]{v.verdict}[/]",
            "stored" if v.resumed else f"{v.seconds:.1f}",
        )
    console.print(table)
    for v in verdicts:
        if not v.holds:
            line, colour = f"{v.claim}: {v.verdict}. {v.note}", TERMINAL_VERDICTS[v.verdict]
            console.print(line, style=colour, highlight=False, markup=False)
    counted = {name: sum(v.verdict == name for v in verdicts) for name in TERMINAL_VERDICTS}
    console.print(", ".join(f"{count} {name}" for name, count in counted.items()), highlight=False)


def leave(verdicts: list[Verdict]) -> None:
    """Exit code 1 when a claim fails, when an experiment stopped with an error, or when none could be decided."""
    if any(v.fails or v.stopped for v in verdicts) or not any(v.holds for v in verdicts):
        raise typer.Exit(1)


def _list(paper: str, as_json: bool) -> None:
    from rich.table import Table

    from metastable.papers import PAPERS, claims_of

    claims = claims_of(paper)
    if as_json:
        names = [{"claim": c.name, "theme": c.theme, "source": c.source, "statement": c.statement} for c in claims]
        typer.echo(json.dumps({"paper": paper, "arxiv": PAPERS[paper].arxiv, "claims": names}))
        return
    console = _console()
    table = Table(title=f"{PAPERS[paper].title} (arXiv:{PAPERS[paper].arxiv})", title_style="bold", show_lines=True)
    for name in ("claim", "statement", "source"):
        table.add_column(name)
    for c in claims:
        table.add_row(c.name, c.statement, c.source)
    console.print(table)


def _console() -> Console:
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=WIDTH)
