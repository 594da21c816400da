"""`metastable forecast`: what the theory expects of one head, before any simulation."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np

    from metastable.drawing import Lines
    from metastable.theory import Forecast

CURVE = 161
"""Times at which the curves of the figure are drawn."""


def forecast(
    weights: Annotated[
        str | None,
        typer.Argument(help="A .npz, .json or .toml file with V and B (or Q, K, V and O); flags overrule it."),
    ] = None,
    V: Annotated[str | None, typer.Option("--V", help="diag(1,2), I, 2 I, [[1,.5],[0,1]] or a .npy file.")] = None,
    B: Annotated[str | None, typer.Option("--B", help="As --V.")] = None,
    beta: Annotated[float, typer.Option(help="Inverse temperature.")] = 100.0,
    n: Annotated[int, typer.Option(help="Number of tokens.")] = 600,
    d: Annotated[int | None, typer.Option(help="Dimension, where I does not say it.")] = None,
    tokens: Annotated[
        str, typer.Option(help="uniform, equispaced (d = 2), fibonacci (d = 3), or a .npy file.")
    ] = "uniform",
    seed: Annotated[int, typer.Option(help="Seed of random tokens.")] = 0,
    times: Annotated[
        str | None, typer.Option(help="Times of the curves, as 0,1,2; default: eight up to the crossing.")
    ] = None,
    out: Annotated[str | None, typer.Option(help="Folder for forecast.json and the figure of the curves.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print machine-readable JSON.")] = False,
) -> None:
    """Forecast rates, phases and the distance to the limit for one attention head.

    Example: metastable forecast --V "diag(1,2)" --B "diag(4,1)" --beta 100 --n 600
    """
    import numpy as np

    from metastable.readers import parse_numbers, read_tokens, read_weights
    from metastable.theory import forecast as predict

    head = read_weights(weights, V, B, d)
    rho, deterministic = read_tokens(tokens, n, head.d, seed)
    result = predict(head, beta, rho, deterministic=deterministic, seed=seed)
    grid = np.array(parse_numbers(times, "times")) if times is not None else default_times(result)
    record = result.to_dict(grid)
    written = [] if out is None else store(result, record, out)
    if as_json:
        typer.echo(json.dumps(record))
        return
    show(result, record)
    for file in written:
        typer.echo(f"wrote {file}")


def store(result: Forecast, record: dict[str, Any], out: str) -> list[str]:
    """Write forecast.json and, where there is a curve, its figure; the files."""
    from metastable.drawing import draw
    from metastable.solve.storage import writing

    file = os.path.join(out, "forecast.json")
    with writing(out):
        os.makedirs(out, exist_ok=True)
        with open(file, "w") as stream:
            json.dump(record, stream, indent=1)
        drawn = figure(result)
        return [file] if drawn is None else [file, *map(str, draw(drawn, os.path.join(out, "forecast")))]


def figure(result: Forecast) -> Lines | None:
    """Curve, zero temperature, safe curve and a-priori bound; claimed range shaded, times of the phases marked.

    None where M has no limit map and there is no curve.
    """
    import numpy as np

    from metastable.drawing import Band, Lines, Series

    if result.spectrum.kind in ("rotation", "jordan", "identity"):
        return None
    times, until = result.times, result.valid_until
    moments = {
        "concentration": times.concentration,
        "crossing": times.crossing,
        "exit": times.exit,
        "clustering": times.clustering,
        "safe": times.safe,
    }
    seen = sorted(t for t in moments.values() if 0 < t < np.inf)
    end = 1.15 * max([until, min(seen[-1], 3 * max(until, times.concentration)) if seen else 1.0, 1e-9])
    t = np.linspace(0, end, CURVE)
    curve = np.asarray(result.curve(t))
    inside = np.where(np.asarray(result.in_range(t)), curve, np.nan)
    safe = np.where(t <= times.safe, np.asarray(result.safe_curve(t)), np.nan)
    bound = np.asarray(result.priori_bound(t))
    series = [
        Series(t, inside, "forecast, within 15%", colour=0),
        Series(t, curve, "forecast, beyond its range", "dotted", colour=0),
        Series(t, np.asarray(result.zero_temperature_curve(t)), "zero temperature", "dashed", colour=7),
        Series(t, safe, "safe curve, no proof", "dashed", colour=2),
        Series(t, np.where(bound < 2, bound, np.nan), "a-priori bound, proven (where below 2)", "steps", colour=6),
    ]
    return Lines(
        f"Forecast, β = {result.beta:g}, {result.rho0.n} tokens",
        "time t",
        "W₂(ρ_t, Π#ρ₀), chordal",
        series,
        log_y=True,
        y_floor=float(np.nanmin(np.maximum(curve, 1e-3))) / 2,
        bands=[Band(0.0, until, "claimed range")] if until > 0 else [],
        moments={when: name for name, when in moments.items() if 0 < when <= end},
    )


def default_times(result: Forecast) -> np.ndarray | None:
    """Eight times up to the crossing (at most six local e-folds); None when there is no curve."""
    import numpy as np

    if result.spectrum.kind in ("rotation", "jordan"):
        return None
    crossing = result.times.crossing
    end = min(crossing, 6 / result.c_local) if np.isfinite(crossing) else 4.0
    return np.linspace(0.0, end, 8)


def show(result: Forecast, record: dict[str, Any]) -> None:
    """The forecast on a terminal."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=f"forecast, β = {result.beta:g}, {result.rho0!r}", title_style="bold")
    for name, justify in (("quantity", "left"), ("value", "right"), ("meaning", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for row in result.table():
        table.add_row(*row)
    console.print(table)
    if "curves" in record:
        curves = record["curves"]
        columns = Table(title="W2 to the limit (chordal)", title_style="bold")
        for name in ("t", "predicted", "in range", "zero temperature", "safe", "a-priori bound"):
            columns.add_column(name, justify="right")
        for t, predicted, fits, zero, safe, bound in zip(
            *(curves[key] for key in ("t", "predicted", "in_range", "zero_temperature", "safe", "priori_bound")),
            strict=True,
        ):
            marks = "yes" if fits else "no"
            columns.add_row(f"{t:.4g}", f"{predicted:.4g}", marks, f"{zero:.4g}", f"{safe:.4g}", f"{bound:.4g}")
        console.print(columns)
    for sentence in result.assumptions:
        console.print(sentence, highlight=False)
    for sentence in result.warnings:
        console.print(f"[yellow]warning:[/yellow] {sentence}", highlight=False)
