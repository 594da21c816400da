"""Attention on S^2: the kernel that `attend` chooses, against the fused direct kernel, as ratios of CPU time.

    python benchmarks/sphere_attend.py [--quick] [--rtol 1e-6 1e-10] [--out FOLDER]

Each row of the table is one family of tokens (uniform; uniform with a matrix B; three clusters of width 0.1 with
that B) at one beta and rtol: CPU seconds of `attend` with its choice of the kernel at n = 1e4 and 1e6, interleaved
with the direct kernel at n = 1e5 (timed on a tenth of the rows), their growth exponent and ratio, the bound it
reports at n = 1e6, the error on sampled rows against the dense float64 kernel, and the kernels that ran. The file
has wall time at n = 1e6, too: OMP_NUM_THREADS says how many threads.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from attend import machine
from metastable import sphere
from metastable.attention import KERNELS, Operands, attend

B = torch.tensor([[1.0, 0.3, 0.0], [-0.5, 0.2, 0.7], [0.1, -0.4, -0.6]], dtype=torch.float64)


def tokens(kind: str, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(queries, keys) of a family: uniform with B = I; uniform, or three clusters, with a B far from a rotation."""
    keys = sphere.uniform(n, 3, seed=0)
    if kind == "uniform":
        return keys, keys
    if kind == "uniform B":
        return keys @ B, keys
    centres = sphere.uniform(3, 3, seed=1)
    noise = torch.randn(n, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    keys = sphere.normalize(centres[torch.arange(n) % 3] + 0.1 * noise)
    return keys @ B, keys


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of all threads, and what the work returned."""
    start = time.process_time()
    answer = work()
    return time.process_time() - start, answer


def one_case(kind: str, beta: float, rtol: float, repeats: int) -> dict[str, Any]:
    small, middle, large = (tokens(kind, n) for n in (10_000, 100_000, 1_000_000))
    mass = torch.full((100_000,), 1e-5, dtype=torch.float64)
    part = middle[0][::10].contiguous()
    times: dict[str, list[float]] = {"1e4": [], "direct 1e5": [], "1e6": []}
    wall = []
    for _ in range(repeats):
        seconds, few = timed(lambda: attend(small[0], small[1], beta=beta, rtol=rtol))
        times["1e4"].append(seconds)
        seconds, _ = timed(lambda: KERNELS["fused"](Operands(part, middle[1], middle[1], mass, beta)))
        times["direct 1e5"].append(10.0 * seconds)
        start = time.perf_counter()
        seconds, many = timed(lambda: attend(large[0], large[1], beta=beta, rtol=rtol))
        wall.append(time.perf_counter() - start)
        times["1e6"].append(seconds)
    median = {name: statistics.median(values) for name, values in times.items()}
    everyone, gap = torch.full((1_000_000,), 1e-6, dtype=torch.float64), 0.0
    for row in range(0, 1_000_000, 50_021):
        exact = KERNELS["dense"](Operands(large[0][row : row + 1], large[1], large[1], everyone, beta))
        mean, log_z = exact.mean, exact.log_partition
        gap = max(gap, float((many.mean[row] - mean).norm()), float((many.log_partition[row] - log_z).abs().max()))
    return {
        "tokens": kind,
        "beta": beta,
        "rtol": rtol,
        "kernel_1e4": few.kernel,
        "kernel_1e6": many.kernel,
        "cpu_seconds": median,
        "wall_seconds_1e6": statistics.median(wall),
        "growth": median["1e6"] / median["1e4"],
        "exponent": math.log10(median["1e6"] / median["1e4"]) / 2.0,
        "ratio_to_direct_1e5": median["1e6"] / median["direct 1e5"],
        "bound": many.error,
        "error_on_sampled_rows": gap,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one repeat, one beta and rtol")
    parser.add_argument("--repeats", type=int, default=3, help="timings per case, of which the median counts")
    parser.add_argument("--rtol", type=float, nargs="+", default=[1e-6, 1e-10])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    betas = [64.0] if options.quick else [1.0, 16.0, 64.0, 256.0, 1024.0, 1e4]
    tolerances = options.rtol[:1] if options.quick else options.rtol
    for kind in ("uniform", "clustered"):  # compiles
        one_case(kind, 100.0, 1e-6, 1)
    print("tokens        beta  rtol  1e4 [s]  1e6 [s] exponent /direct 1e5    bound    error  kernels")
    cases = []
    for rtol in tolerances:
        for kind in ("uniform", "uniform B", "clustered"):
            for beta in betas:
                case = one_case(kind, beta, rtol, 1 if options.quick else options.repeats)
                cases.append(case)
                seconds = case["cpu_seconds"]
                print(
                    f"{kind:10} {beta:7.0f} {rtol:5.0e} {seconds['1e4']:8.3f} {seconds['1e6']:8.3f}",
                    f"{case['exponent']:8.2f} {case['ratio_to_direct_1e5']:11.3f}",
                    f"{case['bound'] or 0.0:8.1e} {case['error_on_sampled_rows']:8.1e}",
                    f" {case['kernel_1e4']}, {case['kernel_1e6']}",
                    flush=True,
                )
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "sphere_attend.json").write_text(
        json.dumps({"about": machine(), "cases": cases}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
