"""How close the direct kernel comes to this machine: pairs per second against its own FMA and exp rates.

    python benchmarks/limits.py [--quick] [--out FOLDER]

The rates are measured in the same run, on one thread: multiply-adds by polynomials on an array that stays in the
cache (a matrix product beside it), exponentials by torch's vectorised exp. One pair of tokens costs one exponential
(11 multiply-adds in float64, 6 in float32), d multiply-adds for its score and d + 1 for its sums; the last column
is that arithmetic as a part of the multiply-adds that the core can do. Additions and shifts are not counted: they
have ports of their own on most cores.
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
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from metastable import __version__, sphere
from metastable.attention import KERNELS, Operands

EXP_MULTIPLY_ADDS = {torch.float64: 11, torch.float32: 6}


def rate(call, work, repeats):
    """Work per second of CPU time, the median of several runs."""
    call()
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        call()
        seconds.append(time.process_time() - begin)
    return work / median(seconds)


DEGREE = 64


@numba.njit(fastmath={"contract"}, nogil=True)
def polynomial(x, coefficient, out):
    """Horner's scheme for four polynomials of every number, so that no multiply-add waits for another one."""
    for i in range(len(x)):
        y = x[i]
        a, b, c, d = y, -y, y + y, y - coefficient
        for _ in range(DEGREE // 4):
            a, b, c, d = a * y + coefficient, b * y + coefficient, c * y + coefficient, d * y + coefficient
        out[i] = a + b + c + d


def limits(dtype, repeats):
    """Multiply-adds per second at best, those of a matrix product, exponentials per second."""
    size = 768
    a, b = (torch.rand(size, size, dtype=dtype) for _ in range(2))
    product = rate(lambda: a @ b, size**3, repeats)
    numbers = torch.rand(2048, dtype=dtype).numpy()
    room, coefficient = np.empty_like(numbers), numbers[0]

    def powers():
        for _ in range(500):
            polynomial(numbers, coefficient, room)

    fma = rate(powers, 500 * DEGREE * len(numbers), repeats)
    x = torch.linspace(-20.0, 0.0, 4096, dtype=dtype)
    out = torch.empty_like(x)

    def exponentials():
        for _ in range(500):
            torch.exp(x, out=out)

    return fma, product, rate(exponentials, 500 * len(x), repeats)


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
    for name in (
        "d",
        "precision",
        "Gpair/s",
        "torch exp, G/s",
        "times it",
        "matrix product, GFMA/s",
        "peak, GFMA/s",
        "of it",
    ):
        table.add_column(name, justify="right")
    rows = []
    for dtype in (torch.float64, torch.float32):
        fma, product, exp = limits(dtype, repeats)
        for d in (2, 3, 8):
            x = sphere.uniform(n, d).to(dtype)
            mass = torch.full((n,), 1 / n, dtype=dtype)
            pairs = rate(lambda x=x, mass=mass: KERNELS["fused"](Operands(x, x, x, mass, 8.0)), n * n, repeats)
            used = pairs * (2 * d + 1 + EXP_MULTIPLY_ADDS[dtype])
            precision = str(dtype).removeprefix("torch.")
            rows.append(
                {
                    "d": d,
                    "dtype": precision,
                    "pairs": pairs,
                    "exp": exp,
                    "product": product,
                    "fma": fma,
                    "fma_used": used / fma,
                }
            )
            table.add_row(
                str(d), precision, f"{pairs / 1e9:.2f}", f"{exp / 1e9:.2f}", f"{pairs / exp:.1f}x",
                f"{product / 1e9:.1f}", f"{fma / 1e9:.1f}", f"{used / fma:.0%}",
            )  # fmt: skip
    torch.set_num_threads(threads)
    numba.set_num_threads(numba_threads)
    Console(width=110).print(table)
    options.out.mkdir(parents=True, exist_ok=True)
    machine = {"processor": platform.machine(), "cores": os.cpu_count(), "metastable": __version__}
    (options.out / "limits.json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
