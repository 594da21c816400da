"""The command line: one file per command, registered here; errors become one sentence and a non-zero exit."""

from __future__ import annotations

import sys
from importlib import import_module

import typer

from metastable._version import __version__
from metastable.errors import MetastableError

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

app = typer.Typer(
    name="metastable",
    help="Transformer tokens as particles on a sphere: simulate, forecast, verify, audit, monitor.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _version(
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
) -> None:
    if version:
        typer.echo(f"metastable {__version__}")
        raise typer.Exit


for _name in ("demo", "simulate", "forecast", "verify", "audit", "bench"):
    app.command(_name)(getattr(import_module(f"metastable.cli.{_name}"), _name))
app.add_typer(import_module("metastable.cli.monitor").monitor, name="monitor")


def main() -> None:
    """Entry point: a known error is one sentence on standard error and exit code 2."""
    try:
        app()
    except MetastableError as error:
        _leave(str(error))
    except (MemoryError, RuntimeError) as error:
        # torch reports a failed allocation as a plain RuntimeError.
        if not isinstance(error, MemoryError) and not any(
            word in str(error) for word in ("memory", "Storage size", "allocate")
        ):
            raise
        _leave("out of memory; use fewer tokens or frames, or dtype float32")
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:
            typer.echo("metastable: interrupted; the same command goes on from the last checkpoint", err=True)
        raise


def _leave(sentence: str) -> None:
    typer.echo(f"metastable: {sentence}", err=True)
    sys.exit(2)
