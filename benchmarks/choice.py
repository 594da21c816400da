"""Which kernel `attend` chooses for some thousand tokens on the circle and on S^2, beside the fastest there is.

    python benchmarks/choice.py            # n = 500 to 4000: a minute
    python benchmarks/choice.py --quick    # n = 1000 alone

Tokens fill the sphere, half of it, or lie in three clusters; queries are those of `whole_run`'s B. CPU time of the
chosen kernel, with the choice itself, as a multiple of the least of all kernels that meet the tolerance.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import metastable as ms
from metastable.attention.operands import Operands
from metastable.attention.select import KERNELS, select

RTOL = 1e-9
CANDIDATES = ("fused", "nearby", "circle", "sphere_grid")
ROUNDS = 7
"""Rounds in which all kernels take turns; the fastest of each counts."""


def tokens(layout: str, n: int, d: int) -> torch.Tensor:
    x = ms.sphere.uniform(n, d, seed=1)
    if layout == "half":
        x[:, 0] = x[:, 0].abs() + 0.2
    elif layout == "clusters":
        x = ms.sphere.uniform(3, d, seed=2)[torch.arange(n) % 3] + 0.02 * x
    return x / x.norm(dim=1, keepdim=True)


def measure(layout: str, n: int, d: int, beta: float) -> dict[str, Any]:
    x = tokens(layout, n, d)
    B = torch.eye(d, dtype=torch.float64) + 0.3 * torch.ones(d, d, dtype=torch.float64).triu(1)
    queries, mass = x @ B, torch.full((n,), 1 / n, dtype=torch.float64)

    def fresh() -> Operands:
        return Operands(queries, x, x, mass, beta)

    calls: dict[str, Callable[[], Any]] = {}
    for name in CANDIDATES:
        kernel, asked = KERNELS[name], fresh()
        if kernel.fits(asked, RTOL) and (kernel.least_rtol is None or kernel.cost(asked, RTOL) < float("inf")):
            calls[name] = lambda kernel=kernel: kernel.compute(fresh(), RTOL)
    chosen = select(fresh(), RTOL)

    def choose() -> Any:
        asked = fresh()
        return select(asked, RTOL).compute(asked, RTOL)

    calls["choice"] = choose
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            least[name] = min(least[name], time.process_time() - begin)
    spent = least.pop("choice")
    return {
        "d": d, "n": n, "beta": beta, "layout": layout, "chosen": chosen.name, "seconds": spent,
        "kernels": least, "over_best": spent / min(least.values()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="n = 1000 alone")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the JSON")
    options = parser.parse_args()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    sizes = (1000,) if options.quick else (500, 1000, 2000, 4000)
    layouts, betas = ("sphere", "half", "clusters"), (1.0, 16.0, 64.0, 1000.0)
    rows = [
        measure(layout, n, d, beta)
        for d, n, beta, layout in itertools.product((2, 3), sizes, betas, layouts)
    ]  # fmt: skip
    torch.set_num_threads(threads)
    table = Table(title=f"the kernel chosen at rtol {RTOL:g}: CPU time, and as a multiple of the fastest")
    for column in ("d", "n", "beta", "layout", "chosen", "ms", "of the fastest", *CANDIDATES):
        table.add_column(column, justify="right")
    for row in rows:
        cells = [f"{1e3 * row['kernels'][name]:.2f}" if name in row["kernels"] else "-" for name in CANDIDATES]
        place = (str(row["d"]), f"{row['n']:,}", f"{row['beta']:g}", row["layout"], row["chosen"])
        table.add_row(*place, f"{1e3 * row['seconds']:.2f}", f"{row['over_best']:.2f}", *cells)
    Console(width=150).print(table)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "choice.json").write_text(json.dumps({"rtol": RTOL, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
