"""How close the direct kernel comes to this machine: pairs per second against its own FMA and exp rates.

    python benchmarks/limits.py [--quick] [--out FOLDER]

The rates are measured in the same run, on one thread: multiply-adds by a matrix product that stays in the cache,
exponentials by torch's vectorised exp on an array that stays in the cache. One pair of tokens costs one exponential
(14 multiply-adds or additions in float64, 9 in float32, by polynomial), d multiply-adds for its score and d + 1 for
its sums; the last column is that arithmetic as a part of what the matrix product reaches.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path
from statistics import median

import numba
import torch
from rich.console import Console
from rich.table import Table

from metastable import __version__, sphere
from metastable.attention import KERNELS

EXP_MULTIPLY_ADDS = {torch.float64: 14, torch.float32: 9}


def rate(call, work, repeats):
    """Work per second of CPU time, the median of several runs."""
    call()
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        call()
        seconds.append(time.process_time() - begin)
    return work / median(seconds)


def limits(dtype, repeats):
    size = 768
    a, b = (torch.rand(size, size, dtype=dtype) for _ in range(2))
    fma = rate(lambda: a @ b, size**3, repeats)
    x = torch.linspace(-20.0, 0.0, 4096, dtype=dtype)
    out = torch.empty_like(x)

    def exponentials():
        for _ in range(500):
            torch.exp(x, out=out)

    return fma, rate(exponentials, 500 * len(x), repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats and smaller sizes")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the JSON")
    options = parser.parse_args()
    repeats, n = (3, 4000) if options.quick else (7, 10000)
    threads, numba_threads = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    table = Table(title=f"The fused kernel against this machine, one thread, n = {n}")
    for name in ("d", "precision", "Gpair/s", "torch exp, G/s", "times it", "matrix product, GFMA/s", "of it"):
        table.add_column(name, justify="right")
    rows = []
    for dtype in (torch.float64, torch.float32):
        fma, exp = limits(dtype, repeats)
        for d in (2, 3, 8):
            x = sphere.uniform(n, d).to(dtype)
            mass = torch.full((n,), 1 / n, dtype=dtype)
            pairs = rate(lambda x=x, mass=mass: KERNELS["fused"](x, x, x, mass, 8.0), n * n, repeats)
            used = pairs * (2 * d + 1 + EXP_MULTIPLY_ADDS[dtype])
            precision = str(dtype).removeprefix("torch.")
            rows.append(
                {"d": d, "dtype": precision, "pairs": pairs, "exp": exp, "fma": fma, "fma_used": used / fma}
            )
            table.add_row(
                str(d), precision, f"{pairs / 1e9:.2f}", f"{exp / 1e9:.2f}", f"{pairs / exp:.1f}x",
                f"{fma / 1e9:.1f}", f"{used / fma:.0%}",
            )  # fmt: skip
    torch.set_num_threads(threads)
    numba.set_num_threads(numba_threads)
    Console().print(table)
    options.out.mkdir(parents=True, exist_ok=True)
    machine = {"processor": platform.machine(), "cores": os.cpu_count(), "metastable": __version__}
    (options.out / "limits.json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
