"""How fast is `hardmax`? Sorted angles (d = 2) and kd-tree (d <= 8) against tiles of all scores, in one process.

python benchmarks/hardmax.py [--quick]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from attend import RESULTS, machine, measure
from metastable.attention.hardmax import hardmax
from metastable.attention.hardmax.tiles import hardmax_tiled
from metastable.sphere import uniform


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="n = 2e4 instead of 1e5")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON file")
    arguments = parser.parse_args()
    n = 20_000 if arguments.quick else 100_000
    table = Table(title=f"hardmax, n = {n}, float64, CPU time")
    for column in ("d", "hardmax [ms]", "tiled [ms]", "ratio", "rows that differ"):
        table.add_column(column, justify="right")
    rows = []
    some = slice(0, n // 10)  # all rows cost the same by tiles: a tenth of them says what all cost
    for d in (2, 3, 5, 8):
        x = uniform(n, d, seed=0)
        q = x @ torch.randn(d, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        m = torch.full((n,), 1.0 / n, dtype=torch.float64)
        slack = 8.0 * torch.finfo(torch.float64).eps * torch.linalg.vector_norm(q, dim=1)
        found = measure(
            {
                "hardmax": lambda q=q, x=x, m=m: hardmax(q, x, x, m),
                "tiled": lambda q=q, x=x, m=m, s=slack: hardmax_tiled(q[some], x, x, m, s[some]),
            },
            1 if d > 3 else 3,
        )
        fast, tiled = found["hardmax"]["cpu"], 10.0 * found["tiled"]["cpu"]
        off = (hardmax(q, x, x, m)[0][some] - hardmax_tiled(q[some], x, x, m, slack[some])[0]).abs().amax(dim=1)
        rows.append({"d": d, "n": n, "hardmax": fast, "tiled": tiled, "differ": int((off > 1e-12).sum())})
        table.add_row(
            str(d), f"{1e3 * fast:.1f}", f"{1e3 * tiled:.0f}", f"{tiled / fast:.1f}x", str(rows[-1]["differ"])
        )
    Console().print(table)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "hardmax.json").write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
