"""`metastable bench`: the benchmarks, one after the other in one process."""

from __future__ import annotations

import json
import runpy
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from metastable.errors import InvalidInput, MetastableError, NotDefined, StorageError


def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Which benchmarks; all of them by default.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes: all of it in about two minutes.")] = False,
    out: Annotated[str, typer.Option(help="Folder for the JSON results.")] = "metastable-out/bench",
    listed: Annotated[bool, typer.Option("--list", help="Name the benchmarks and stop.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all results as one JSON object at the end.")
    ] = False,
) -> None:
    """Measure speed side by side against named peers, as ratios, with the error of every method.

    Example: metastable bench attend transport --quick
    """
    scripts = {script.stem: script for script in sorted(benchmark_folder().glob("*.py"))}
    if listed:
        width = max(map(len, scripts))
        for name, script in scripts.items():
            typer.echo(f"{name:{width}s}  {summary(script)}")
        return
    unknown = [name for name in names or () if name not in scripts]
    if unknown:
        raise InvalidInput(f"unknown benchmark {unknown[0]!r}; choose from {', '.join(scripts)}")
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot create the folder {out}: {error.strerror}") from error
    skipped: list[str] = []
    began = time.time()
    for name in names or scripts:
        typer.echo(f"\n{name}: {summary(scripts[name])}", err=as_json)
        try:
            run(scripts[name], ["--out", out, *(["--quick"] if quick else [])], quiet=as_json)
        except NotDefined as error:
            # A benchmark that cannot run on this machine (no GPU, say) is not a failure, unless it was asked for.
            if names:
                raise
            skipped.append(name)
            typer.echo(f"skipped: {error}", err=as_json)
    if as_json:
        fresh = [file for file in sorted(Path(out).glob("*.json")) if file.stat().st_mtime >= began]
        results = {file.stem: json.loads(file.read_text()) for file in fresh}
        typer.echo(json.dumps({"results": results, "skipped": skipped}))
    else:
        typer.echo(f"\nresults in {out}")


def benchmark_folder() -> Path:
    """The scripts: inside the installed package, or beside `src/` in a checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / "benchmarks", package.parents[1] / "benchmarks"):
        if (folder / "attend.py").exists():
            return folder
    raise MetastableError("the benchmarks are not installed; run this from a checkout of the repository")


def summary(script: Path) -> str:
    """First line of a script's docstring."""
    return script.read_text().split('"""')[1].splitlines()[0]


def run(script: Path, arguments: list[str], quiet: bool) -> None:
    """Run one script as if by `python script arguments`, its tables on standard error when `quiet`."""
    argv, stdout, path = sys.argv, sys.stdout, sys.path
    sys.argv, sys.path = [str(script), *arguments], [str(script.parent), *sys.path]
    if quiet:
        sys.stdout = sys.stderr
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv, sys.stdout, sys.path = argv, stdout, path
