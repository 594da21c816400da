"""`metastable verify`: the claims of a paper, tested by experiment."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from metastable.papers import RivalVerdict, Verdict

ALL = "all"
"""The name that stands for every paper, as in `metastable.papers`, which help does not load."""
WIDTH = 140
"""Columns of a table that goes into a pipe, which is not a terminal of 80 columns."""
OURS = "metastable's own estimates"


def verify(
    paper: Annotated[str, typer.Argument(help="Which paper, or all; --list shows the claims.")] = "concentration",
    quick: Annotated[
        bool, typer.Option("--quick", help="Small experiments: on two cores three minutes for all papers.")
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
    """Run the claims of a paper, or of all papers, as experiments; print a verdict for each and write a report.

    Example: metastable verify concentration --quick

    Papers: concentration, perspective, clustering, spectral-selection, multihead, scheduled-heads,
    lost-in-the-middle, common-noise, chaos; or all of them.

    Finished claims are kept in OUT/claims: after an interruption the same command goes on. Exit code 0 only when
    every claim holds and every rival of it fails; claims declared open are excepted.
    """
    if list_claims:
        _list(paper, as_json)
        return
    folder = out or f"metastable-out/verify-{paper}"
    verdicts, page = run_and_report(paper, folder, quick=quick, claims=claim, jobs=jobs, seed=seed, quiet=as_json)
    if as_json:
        from metastable.papers import passed

        record = {
            "paper": paper,
            "quick": quick,
            "seed": seed,
            "report": page,
            "holds": passed(verdicts),
            "verdicts": _with_papers(verdicts) if paper == ALL else [v.to_dict() for v in verdicts],
        }
        typer.echo(json.dumps(record))
    else:
        show(verdicts, paper)
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
    return verdicts, str(write_report(verdicts, folder, paper=paper, quick=quick, seed=seed, jobs=jobs))


def show(verdicts: list[Verdict], paper: str = "concentration") -> None:
    """The verdict tables: the paper's statements first, metastable's own estimates apart; then what is amiss."""
    from rich.table import Table

    from metastable.drawing.palette import TERMINAL_VERDICTS
    from metastable.papers import passed
    from metastable.papers.page import by_paper, groups

    console = _console()
    parts = [(one.name, part) for one, part in by_paper(verdicts)] if paper == ALL else [(paper, verdicts)]
    for whose, group in ((name, group) for name, part in parts for group in groups(part, name)):
        table = Table(title=f"{whose}: {group.title}: {group.count}", title_style="bold", title_justify="left")
        table.add_column("claim", no_wrap=True)
        table.add_column("quantity")
        for name in ("expected", "measured", "tolerance"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("nearest rival")
        table.add_column("verdict", no_wrap=True)
        table.add_column("s", justify="right")
        for v in group.verdicts:
            colour = TERMINAL_VERDICTS[v.standing]
            table.add_row(
                v.claim,
                v.unit,
                f"{v.sign}{v.expected:.4g}",
                _measured(v),
                f"{v.tolerance:.2g}",
                "none" if v.rival is None else f"{v.rival.name}: {_measured(v.rival)} {v.rival.verdict}",
                f"[{colour}]{v.standing}[/]",
                "stored" if v.resumed else f"{v.seconds:.1f}",
            )
        console.print(table)
    for v in verdicts:
        if not v.holds:
            why = v.open if v.standing == "open" else v.note
            line, colour = f"{v.claim}: {v.standing}. {why}", TERMINAL_VERDICTS[v.standing]
            console.print(line, style=colour, highlight=False, markup=False)
        for sentence in v.warnings:
            console.print(f"{v.claim}: warned. {sentence}", highlight=False, markup=False)
    counted = {name: sum(v.standing == name for v in verdicts) for name in TERMINAL_VERDICTS}
    told = ", ".join(f"{count} {name}" for name, count in counted.items())
    console.print(f"{'passed' if passed(verdicts) else 'not passed'}: {told}", highlight=False)


def _with_papers(verdicts: list[Verdict]) -> list[dict[str, Any]]:
    from metastable.papers.page import by_paper

    return [v.to_dict() | {"paper": one.name} for one, part in by_paper(verdicts) for v in part]


def _measured(found: Verdict | RivalVerdict) -> str:
    return f"{found.measured:.4g}" + (f" ± {found.uncertainty:.1g}" if found.uncertainty else "")


def leave(verdicts: list[Verdict]) -> None:
    """Exit code 1 unless every claim holds, those declared open excepted."""
    from metastable.papers import passed

    if not passed(verdicts):
        raise typer.Exit(1)


def _list(paper: str, as_json: bool) -> None:
    from rich.table import Table

    from metastable.papers.paper import papers_of

    chosen = papers_of(paper)
    if as_json:
        listed = [
            {
                "paper": one.name,
                "arxiv": one.arxiv,
                "claim": c.name,
                "theme": c.theme,
                "source": c.source,
                "ours": c.ours,
                "statement": c.words()[0],
                "rivals": dict(c.rivals),
                "open": c.open,
            }
            for one in chosen
            for c in one.claims
        ]
        typer.echo(json.dumps({"paper": paper, "claims": listed}))
        return
    console = _console()
    for one in chosen:
        for title, ours in ((f"{one.title} (arXiv:{one.arxiv})", False), (f"{one.name}: {OURS}", True)):
            claims = [c for c in one.claims if c.ours is ours]
            if not claims:
                continue
            table = Table(title=f"{title}: {len(claims)} claims", title_style="bold", show_lines=True)
            for name in ("claim", "statement", "rivals"):
                table.add_column(name)
            for c in claims:
                table.add_row(c.name, c.words()[0], "; ".join(c.rivals))
            console.print(table)


def _console() -> Console:
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=WIDTH)
