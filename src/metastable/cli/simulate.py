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
    from metastable.solve import Observer, Path
    from metastable.solve.simulation import Simulation

KERNEL_NAMES = (
    "auto",
    "blocks",
    "circle",
    "circle_gpu",
    "dense",
    "flash_bf16",
    "flash_fp16",
    "fused",
    "gpu_float64",
    "nearby",
    "products",
    "sdpa",
    "sphere",
    "sphere_grid",
    "triton",
)
"""The names of `attention.select.KERNELS`, written out because importing it takes longer than showing the help."""
LONG = 10.0
"""Estimated seconds from which a run is announced with its cost."""
CLUSTER_ANGLE = 0.1
"""Angle of the single-linkage clusters in the closing table, the default of `observe.clusters`."""
ROWS = 10
"""Rows of the closing table."""


def simulate(
    config: Annotated[str | None, typer.Argument(help="TOML file; flags overrule it.")] = None,
    V: Annotated[
        str | None,
        typer.Option("--V", help="diag(1,2), I, 2 I, [[1,.5],[0,1]] or a .npy file.", show_default="diag(1, 2)"),
    ] = None,
    B: Annotated[str | None, typer.Option("--B", help="As --V.", show_default="diag(4, 1)")] = None,
    flow: Annotated[
        str | None,
        typer.Option(
            help="self-attention, unnormalized, zero-temperature, hardmax or euclidean.",
            show_default="self-attention",
        ),
    ] = None,
    beta: Annotated[float | None, typer.Option(help="Inverse temperature.", show_default="100")] = None,
    n: Annotated[
        str | None, typer.Option(metavar="N", help="Number of tokens, such as 600 or 1e6.", show_default="600")
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            help="uniform, equispaced, fibonacci, von-mises-fisher, or a .npy file.", show_default="uniform"
        ),
    ] = None,
    t: Annotated[float | None, typer.Option(help="Final time.", show_default="22")] = None,
    frames: Annotated[int | None, typer.Option(help="Number of saved times.", show_default="45")] = None,
    method: Annotated[
        str | None,
        typer.Option(help="auto, adaptive, dop853, rk4, euler, exact or switching.", show_default="auto"),
    ] = None,
    step: Annotated[
        float | None, typer.Option(help="Step of rk4 and euler (1/L for L layers).", show_default="0.01")
    ] = None,
    rtol: Annotated[
        float | None, typer.Option(help="Relative tolerance of the run, per token.", show_default="1e-8")
    ] = None,
    atol: Annotated[
        float | None, typer.Option(help="Absolute tolerance of the run, per token.", show_default="1e-10")
    ] = None,
    attention_rtol: Annotated[
        str | None,
        typer.Option(
            help="Error of attention: auto (a hundredth of the run's tolerance), none (all digits), or a number.",
            show_default="auto",
        ),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option(help=f"Attention kernel: {', '.join(KERNEL_NAMES)}.", show_default="auto")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="float64 or float32.", show_default="float64")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.", show_default="cpu")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of random tokens.", show_default="0")] = None,
    out: Annotated[
        str | None, typer.Option(help="Folder for the path and the figure.", show_default="metastable-out/simulate")
    ] = None,
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
    from metastable.readers import parse_count
    from metastable.solve.progress import LogLines, ProgressBar
    from metastable.solve.simulation import read_config

    from_file = tokens is not None and "." in tokens
    settings = read_config(
        config,
        {
            "weights": {"V": V, "B": B},
            "flow": {"kind": flow, "beta": beta, "kernel": kernel, "rtol": tolerance(attention_rtol)},
            "tokens": {
                "law": "file" if from_file else tokens,
                "file": tokens if from_file else None,
                "n": None if n is None else parse_count(n, "n"),
                "seed": seed,
            },
            "run": {
                "t": t,
                "frames": frames,
                "method": method,
                "rtol": rtol,
                "atol": atol,
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
    if (cost := settings.cost()) is not None and cost.seconds > LONG:
        typer.echo(str(cost), err=True)
    began = time.perf_counter()
    progress = ProgressBar() if sys.stderr.isatty() and not as_json else LogLines()
    path, figures = run(settings, progress)
    seconds = time.perf_counter() - began
    if as_json:
        began_at = {"complete_before": progress.begun_at is None, "resumed_at": progress.begun_at or None}
        typer.echo(json.dumps(summary(path, settings) | began_at | {"figures": figures}))
        return
    show(path, settings, figures, seconds, progress.begun_at)


def tolerance(text: str | None) -> float | str | None:
    """auto, none or a number, as it was written."""
    if text is None or text in ("auto", "none"):
        return text
    from metastable.errors import InvalidInput

    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"attention-rtol must be auto, none or a number, got {text!r}") from None


def run(settings: Simulation, progress: Observer) -> tuple[Path, list[str]]:
    """Solve, store and draw."""
    path = settings.run(progress)
    if not path.end.sphere:
        return path, []
    from metastable.drawing import dominant_axes, snapshots
    from metastable.readers import weights_from
    from metastable.solve.storage import writing
    from metastable.theory import spectrum

    folder = settings.output.out
    marked = dominant_axes(spectrum(weights_from(settings.weights.V, settings.weights.B)))
    with writing(folder):
        stem = os.path.join(folder, "tokens")
        drawn = snapshots(path, stem, title=title(settings, path.end.n), axes=marked)
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


def show(path: Path, settings: Simulation, figures: list[str], seconds: float, begun_at: float | None) -> None:
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
    if begun_at is None:
        console.print("this run was complete before; nothing was computed again", highlight=False)
    elif begun_at > 0:
        console.print(f"this run was interrupted before, and went on from t = {begun_at:.4g}", highlight=False)
    console.print(
        f"{work['accepted_steps']} steps, {work['evaluations']} evaluations of the field, {seconds:.1f} s in all"
    )
    if used := path.provenance.get("attention"):
        error = f", stated error at most {used['largest_error']:.2g}" if used["largest_error"] else ", all digits"
        console.print(f"attention by {', '.join(used['kernels'])}{error}", highlight=False)
    for file in (*figures, path.store):
        console.print(f"wrote {file}", highlight=False, soft_wrap=True)
