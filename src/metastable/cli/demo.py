"""`metastable demo`: the main paper's claims in under two minutes, with a report to look at."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from metastable.cli.verify import leave, run_and_report, show


def demo(
    out: Annotated[str, typer.Option(help="Folder for results.")] = "metastable-out/demo",
    jobs: Annotated[int, typer.Option(help="Processes.")] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of all random tokens.")] = 0,
) -> None:
    """Test the claims on concentration at low temperature (arXiv:2605.10931), quickly, and write a report.

    Example: metastable demo

    The same as `metastable verify concentration --quick`; the last line is the path of the report.
    """
    verdicts, page = run_and_report("concentration", out, quick=True, jobs=jobs, seed=seed, quiet=as_json)
    if as_json:
        from metastable.papers import passed

        record = {"report": page, "holds": passed(verdicts), "verdicts": [v.to_dict() for v in verdicts]}
        typer.echo(json.dumps(record))
    else:
        show(verdicts)
        typer.echo(page)
    leave(verdicts)
