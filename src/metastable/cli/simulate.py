"""`metastable simulate`: one run from flags or a TOML file."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from metastable.measure import Measure
    from metastable.solve import Path
    from metastable.solve.simulation import Simulation

CLUSTER_ANGLE = 0.1
"""Angle of the single-linkage clusters in the closing table, the default of `observe.clusters`."""
ROWS = 10
"""Rows of the closing table."""


def simulate(
    config: Annotated[str | None, typer.Argument(help="TOML file; flags overrule it.")] = None,
    V: Annotated[str | None, typer.Option("--V", help="diag(1,2), I, 2 I, [[1,.5],[0,1]] or a .npy file.")] = None,
    B: Annotated[str | None, typer.Option("--B", help="As --V.")] = None,
    flow: Annotated[
        str | None,
        typer.Option(help="self-attention, unnormalized, zero-temperature, hardmax or euclidean."),
    ] = None,
    beta: Annotated[float | None, typer.Option(help="Inverse temperature.")] = None,
    n: Annotated[int | None, typer.Option(help="Number of tokens.")] = None,
    tokens: Annotated[
        str | None, typer.Option(help="uniform, equispaced, fibonacci, von-mises-fisher, or a .npy file.")
    ] = None,
    t: Annotated[float | None, typer.Option(help="Final time.")] = None,
    frames: Annotated[int | None, typer.Option(help="Number of saved times.")] = None,
    method: Annotated[str | None, typer.Option(help="auto, adaptive, rk4, euler or exact.")] = None,
    step: Annotated[float | None, typer.Option(help="Step of rk4 and euler (1/L for L layers).")] = None,
    kernel: Annotated[str | None, typer.Option(help="Attention kernel; auto picks.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float64 or float32.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of random tokens.")] = None,
    out: Annotated[str | None, typer.Option(help="Folder for the path and the figure.")] = None,
    overwrite: Annotated[
        bool | None, typer.Option("--overwrite", help="Replace another run in OUT once this one is complete.")
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the complete configuration and stop.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a machine-readable summary.")] = False,
) -> None:
    """Simulate one attention flow; write its path and a figure of the tokens at several times.

    Example: metastable simulate --V "diag(1,2)" --B "diag(4,1)" --beta 100 --n 600 --t 22

    The run streams to OUT/path.zarr with checkpoints: after an interruption the same command goes on.
    """
    from metastable.solve.simulation import read_config

    from_file = tokens is not None and "." in tokens
    settings = read_config(
        config,
        {
            "weights": {"V": V, "B": B},
            "flow": {"kind": flow, "beta": beta, "kernel": kernel},
            "tokens": {
                "law": "file" if from_file else tokens,
                "file": tokens if from_file else None,
                "n": n,
                "seed": seed,
            },
            "run": {
                "t": t,
                "frames": frames,
                "method": method,
                "step": step,
                "dtype": dtype,
                "device": device,
            },
            "output": {"out": out, "overwrite": overwrite},
        },
    )
    if print_config:
        typer.echo(settings.to_toml(), nl=False)
        return
    began = time.perf_counter()
    path, figures = run(settings, progress=sys.stderr.isatty() and not as_json)
    seconds = time.perf_counter() - began
    if as_json:
        typer.echo(json.dumps(summary(path, settings) | {"figures": figures}))
        return
    show(path, settings, figures, seconds)


def run(settings: Simulation, progress: bool) -> tuple[Path, list[str]]:
    """Solve, store and draw."""
    path = settings.run(progress)
    if not path.end.sphere:
        return path, []
    from metastable.drawing import snapshots
    from metastable.solve.storage import writing

    folder = settings.output.out
    with writing(folder):
        drawn = snapshots(path, os.path.join(folder, "tokens"), title=title(settings, path.end.n))
    return path, [str(name) for name in drawn]


def title(settings: Simulation, n: int) -> str:
    """One line over the figure."""
    kind = settings.flow.kind.replace("-", " ")
    beta = f", β = {settings.flow.beta:g}" if settings.flow.kind not in ("zero-temperature", "hardmax") else ""
    return f"{kind}, V = {settings.weights.V}, B = {settings.weights.B}{beta}, n = {n}"


def observed(rho: Measure) -> dict[str, float]:
    """The observables of the closing table."""
    from metastable import observe

    if not rho.sphere:
        return {"largest |x|": float(rho.points.norm(dim=1).max()), "spread": float(rho.points.std(0).norm())}
    return {
        "|mean|": observe.order_parameter(rho),
        "effective rank": observe.effective_rank(rho),
        f"clusters ({CLUSTER_ANGLE} rad)": observe.cluster_count(rho, CLUSTER_ANGLE),
    }


def summary(path: Path, settings: Simulation) -> dict[str, Any]:
    """The run as plain data."""
    return {
        "config": settings.to_dict(),
        "store": path.store,
        "end_time": path.end_time,
        "statistics": path.provenance["statistics"],
        "end": observed(path.end),
    }


def show(path: Path, settings: Simulation, figures: list[str], seconds: float) -> None:
    """The closing table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=title(settings, path.end.n), title_style="bold")
    table.add_column("t", justify="right")
    indices = sorted({round(i * (len(path) - 1) / (ROWS - 1)) for i in range(ROWS)})
    rows = [(float(path.times[i]), observed(path.measure(i))) for i in indices]
    for name in rows[0][1]:
        table.add_column(name, justify="right")
    for moment, values in rows:
        table.add_row(f"{moment:.4g}", *(f"{v:.6g}" if isinstance(v, float) else str(v) for v in values.values()))
    console.print(table)
    work = path.provenance["statistics"]
    console.print(
        f"{work['accepted_steps']} steps, {work['evaluations']} evaluations of the field, {seconds:.1f} s in all"
    )
    for file in (*figures, path.store):
        console.print(f"wrote {file}", highlight=False, soft_wrap=True)
