"""Which embedded pair for which tolerance, and is the tolerance met? Evaluations and achieved errors of small runs.

    python benchmarks/pairs.py [--quick] [--out FOLDER]

Runs with V = B = I and with V and B of other kinds, d = 2 to 64, beta = 1 to 1000, rtol = 1e-3 to 1e-12. For every
tolerance: the evaluations of dop853 as multiples of those of adaptive (geometric mean, and how many runs are below
one), the achieved error as a multiple of rtol (median and largest) against SciPy's DOP853 at 1e-13, and evaluations
as multiples of SciPy's DOP853 at the same achieved error, read off SciPy's own runs by interpolation. An achieved
error is divided by how far the flow itself carries two starts from each other, if that is more than one. The second
table has the largest error of dop853 at any of twenty times of a run, which is what a larger share of the tolerance
for a step would multiply. The third has all comparisons at the same achieved error, and what they can tell apart:
SciPy at tolerances in between, read off the same curve of its own runs.

A single run says little about evaluations at its error: a step more or less, an error that happens to cancel, and
SciPy differs from its own curve by a sixth. The fourth table takes runs at every third of a decade, and for each
problem a parabola through log(evaluations) over log(error); what two parabolas differ by where both have errors, in
the mean over the logarithm of the error, is one ratio for a problem. SciPy's odd tolerances against its even ones
are what that can tell apart.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy.integrate import solve_ivp

import metastable as ms

TOLERANCES = [1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10, 1e-12]
PAIRS = ("adaptive", "dop853")
BETWEEN = [3e-4, 3e-5, 3e-6, 3e-7, 3e-8, 1e-9, 1e-11]
"""Tolerances at which SciPy is compared with itself."""
THIRDS = [10 ** (-3 - third / 3) for third in range(28)]
"""Tolerances of the runs through which curves are laid."""
LEAST_RUNS = 6
"""Runs of a curve at least: twice the coefficients of a parabola."""
LOOKS = 20
"""Times at which a run is looked at."""
LEAST = 1e-13
"""Errors below this are those of the reference."""


def problem(kind: str, n: int, d: int, beta: float, seed: int) -> tuple[ms.SelfAttention, ms.Measure]:
    g = torch.Generator().manual_seed(seed)
    V, B = torch.eye(d, dtype=torch.float64), torch.eye(d, dtype=torch.float64)
    if kind == "diagonal":
        V = torch.diag(torch.linspace(2.0, 1.0, d, dtype=torch.float64))
        B = B + 1.2 / max(d, 4) * torch.ones_like(B).triu(1)
    elif kind == "random":
        V, B = torch.randn(d, d, generator=g).double() / d**0.5, B + torch.randn(d, d, generator=g) / (4 * d) ** 0.5
    elif kind == "repulsive":
        V = -V
    return ms.SelfAttention(ms.AttentionWeights(V=V, B=B), beta, rtol=None), ms.Measure(
        ms.sphere.uniform(n, d, seed=g)
    )


def by_scipy(
    flow: ms.SelfAttention, rho: ms.Measure, t: float, rtol: float, looked: bool = False
) -> tuple[np.ndarray, int]:
    """Tokens at t, or at LOOKS times of which the last is t, and evaluations, of which looking takes some."""
    shape = tuple(rho.points.shape)

    def field(time: float, y: np.ndarray) -> np.ndarray:
        points = torch.from_numpy(y.reshape(shape).copy())
        return flow.velocity(time, points, rho.mass).numpy().ravel()

    start, times = rho.points.numpy().ravel(), looks(t) if looked else looks(t)[-1:]
    run = solve_ivp(
        field, (0, t), start, method="DOP853", rtol=rtol, atol=rtol / 100, t_eval=times if looked else None
    )
    return run.y.T[-len(times) :].reshape(len(times), *shape), run.nfev


def looks(t: float) -> np.ndarray:
    return np.linspace(0, t, LOOKS + 1)[1:]


def distance(a: object, b: object) -> float:
    return float(np.linalg.norm(np.asarray(a) - np.asarray(b), axis=-1).max())


def at_error(curve: list[tuple[float, int]], error: float) -> float | None:
    """Evaluations at which a curve of (error, evaluations) reaches an error; None outside of it."""
    below, above = [p for p in curve if p[0] <= error], [p for p in curve if p[0] > error]
    if not below or not above:
        return None
    low, high = max(below), min(above)
    part = math.log(error / low[0]) / math.log(high[0] / low[0])
    return low[1] ** (1 - part) * high[1] ** part


def between_curves(ours: list[tuple[float, int]], peer: list[tuple[float, int]]) -> float | None:
    """exp of the mean of log(evaluations) - log(evaluations of the peer) over the logarithms of common errors."""
    logs = [np.log([run for run in curve if run[0] > 20 * LEAST] or [(1, 1)]) for curve in (ours, peer)]
    first, last = max(part[:, 0].min() for part in logs), min(part[:, 0].max() for part in logs)
    if min(map(len, logs)) < LEAST_RUNS or first >= last:
        return None
    fits = [np.polynomial.Polynomial.fit(part[:, 0], part[:, 1], 2) for part in logs]
    primitive = (fits[0].convert() - fits[1].convert()).integ()
    return math.exp((primitive(last) - primitive(first)) / (last - first))


def measure(kind: str, n: int, d: int, beta: float, t: float, seed: int) -> dict[str, object]:
    flow, rho = problem(kind, n, d, beta, seed)
    reference, _ = by_scipy(flow, rho, t, LEAST, looked=True)
    noise = torch.randn(n, d, generator=torch.Generator().manual_seed(seed)).double() / d**0.5
    beside = ms.Measure(rho.points + 1e-6 * noise, rho.mass)
    moved, apart = by_scipy(flow, beside, t, 1e-10, looked=True)[0], distance(beside.points, rho.points)
    carried, on_the_way = distance(moved[-1], reference[-1]) / apart, distance(moved, reference) / apart
    over_run = []
    ours: dict[str, list[tuple[float, int]]] = {pair: [] for pair in PAIRS}
    peer = []
    for rtol in TOLERANCES:
        end, evaluations = by_scipy(flow, rho, t, rtol)
        peer.append((max(distance(end[-1], reference[-1]), LEAST), evaluations))
        for pair in PAIRS:
            path = ms.solve(flow, rho, t, times=looks(t), method=pair, rtol=rtol, atol=rtol / 100)
            error = max(distance(path.end.points, reference[-1]), LEAST)
            if pair == "dop853":
                over_run.append(distance(path.points, reference) / max(on_the_way, 1.0))
            ours[pair].append((error, path.provenance["statistics"]["evaluations"]))
    itself = []
    for rtol in BETWEEN:
        end, evaluations = by_scipy(flow, rho, t, rtol)
        itself.append((distance(end[-1], reference[-1]), evaluations))
    thirds: dict[str, list[tuple[float, int]]] = {"scipy": [], "dop853": []}
    for rtol in THIRDS:
        end, evaluations = by_scipy(flow, rho, t, rtol)
        thirds["scipy"].append((max(distance(end[-1], reference[-1]), LEAST), evaluations))
        path = ms.solve(flow, rho, t, method="dop853", rtol=rtol, atol=rtol / 100)
        error = max(distance(path.end.points, reference[-1]), LEAST)
        thirds["dop853"].append((error, path.provenance["statistics"]["evaluations"]))
    return {
        "kind": kind, "n": n, "d": d, "beta": beta, "t": t, "carried": carried, "scipy": peer, **ours,
        "over_run": over_run, "thirds": thirds,
        "between_curves": between_curves(thirds["dop853"], thirds["scipy"]),
        "scipy_between_curves": between_curves(thirds["scipy"][::2], thirds["scipy"][1::2]),
        "scipy_itself": [
            evaluations / e
            for error, evaluations in itself
            if error > 20 * LEAST and (e := at_error(peer, error)) is not None
        ],
        "at_equal_error": {
            pair: [at_error(peer, error) if error > 20 * LEAST else None for error, _ in ours[pair]]
            for pair in PAIRS
        },
    }  # fmt: skip


def ratios(title: str, rows: dict[str, list[float]]) -> Table:
    table = Table(title=title)
    for column in ("", "cells", "mean", "median", "9 of 10 below", "95 of 100 below", "largest", "above 1"):
        table.add_column(column, justify="right")
    for name, found in rows.items():
        quantiles = (f"{q:.2f}" for q in np.quantile(found, [0.5, 0.9, 0.95, 1.0]))
        above = f"{sum(ratio > 1 for ratio in found)}"
        table.add_row(name, str(len(found)), f"{geometric_mean(found):.2f}", *quantiles, above)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the JSON")
    options = parser.parse_args()
    console = Console(width=140)
    cases = [
        (kind, 20, d, beta, 5.0)
        for kind in ("identity", "diagonal", "random", "repulsive")
        for d in (2, 4, 64)
        for beta in (1.0, 30.0, 1000.0)
    ]
    rows = [
        measure(*case, options.seed + number) for number, case in enumerate(cases[:: 4 if options.quick else 1])
    ]
    table = Table(title=f"{len(rows)} runs: evaluations, and achieved errors as multiples of rtol")
    for column in (
        "rtol", "dop853 / adaptive", "below 1", "adaptive: error", "largest", "dop853: error", "largest",
        "adaptive / SciPy", "dop853 / SciPy", "largest",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    for index, rtol in enumerate(TOLERANCES):
        ratio = [row["dop853"][index][1] / row["adaptive"][index][1] for row in rows]
        errors = {p: [row[p][index][0] / rtol / max(row["carried"], 1.0) for row in rows] for p in PAIRS}
        equal = {
            p: [row[p][index][1] / e for row in rows if (e := row["at_equal_error"][p][index]) is not None]
            for p in PAIRS
        }
        table.add_row(
            f"{rtol:.0e}", f"{geometric_mean(ratio):.2f}", f"{sum(r < 1 for r in ratio)} of {len(ratio)}",
            *(f"{f(errors[p]):.1g}" for p in PAIRS for f in (median, max)),
            *(f"{geometric_mean(equal[p]):.2f}" if equal[p] else "-" for p in PAIRS),
            f"{max(equal['dop853']):.2f}" if equal["dop853"] else "-",
        )  # fmt: skip
    console.print(table)
    table = Table(title="dop853: largest error at twenty times of a run as a multiple of rtol, by runs")
    for column in ("rtol", "median", "9 of 10 below", "largest"):
        table.add_column(column, justify="right")
    for index, rtol in enumerate(TOLERANCES):
        found = np.quantile([row["over_run"][index] / rtol for row in rows], [0.5, 0.9, 1.0])
        table.add_row(f"{rtol:.0e}", *(f"{q:.1g}" for q in found))
    console.print(table)
    ours = [
        row["dop853"][index][1] / e for row in rows for index, e in enumerate(row["at_equal_error"]["dop853"]) if e
    ]
    itself = [ratio for row in rows for ratio in row["scipy_itself"]]
    title = "evaluations as multiples of SciPy's at the same achieved error"
    console.print(ratios(f"{title}, at all tolerances", {"dop853": ours, "SciPy itself": itself}))
    curves = {
        name: [row[key] for row in rows if row[key] is not None]
        for name, key in (("dop853", "between_curves"), ("SciPy itself", "scipy_between_curves"))
    }
    console.print(ratios(f"{title}, by curves through the runs of a problem", curves))
    options.out.mkdir(parents=True, exist_ok=True)
    result = {"tolerances": TOLERANCES, "rows": rows, "metastable": ms.__version__}
    (options.out / "pairs.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
