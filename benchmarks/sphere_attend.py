"""Attention on S^2: the cell method against the fused direct kernel, as ratios of CPU time in one interleaved run.

    python benchmarks/sphere_attend.py [--quick] [--out benchmarks/results/sphere_attend.json]

Each row of the table is one family of tokens (uniform, or three clusters of width 0.1 with B != I) at one beta: CPU
seconds of the cell method at n = 1e4 and 1e6, its growth exponent, its time at n = 1e6 over that of the fused
direct kernel at n = 1e5 (timed on a tenth of the rows), the bound it reports, and the error on sampled rows against
the dense float64 kernel.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from metastable import sphere
from metastable.attention.dense import attend_dense
from metastable.attention.fused import attend_fused
from metastable.attention.sphere_cells import attend_sphere_cells

B = torch.tensor([[1.0, 0.3, 0.0], [-0.5, 0.2, 0.7], [0.1, -0.4, -0.6]], dtype=torch.float64)


def tokens(kind: str, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(queries, keys) of a family: uniform with B = I, or three clusters with a B that is not symmetric."""
    keys = sphere.uniform(n, 3, seed=0)
    if kind == "uniform":
        return keys, keys
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
    mass = [torch.full((len(k),), 1.0 / len(k), dtype=torch.float64) for _, k in (small, middle, large)]
    part = middle[0][::10].contiguous()
    times: dict[str, list[float]] = {"cells 1e4": [], "direct 1e5": [], "cells 1e6": []}
    for _ in range(repeats):
        seconds, _ = timed(lambda: attend_sphere_cells(small[0], small[1], small[1], mass[0], beta, rtol))
        times["cells 1e4"].append(seconds)
        seconds, _ = timed(lambda: attend_fused(part, middle[1], middle[1], mass[1], beta))
        times["direct 1e5"].append(10.0 * seconds)
        seconds, answer = timed(lambda: attend_sphere_cells(large[0], large[1], large[1], mass[2], beta, rtol))
        times["cells 1e6"].append(seconds)
    mean, log_z, bound = answer
    median = {name: statistics.median(values) for name, values in times.items()}
    rows = torch.arange(0, 1_000_000, 10_007)
    exact_mean, exact_log_z = attend_dense(large[0][rows], large[1], large[1], mass[2], beta)
    gap = max(float((mean[rows] - exact_mean).norm(dim=1).max()), float((log_z[rows] - exact_log_z).abs().max()))
    return {
        "tokens": kind,
        "beta": beta,
        "rtol": rtol,
        "cpu_seconds": median,
        "growth": median["cells 1e6"] / median["cells 1e4"],
        "exponent": math.log10(median["cells 1e6"] / median["cells 1e4"]) / 2.0,
        "ratio_to_direct_1e5": median["cells 1e6"] / median["direct 1e5"],
        "bound": bound,
        "error_on_sampled_rows": gap,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one repeat, three values of beta")
    parser.add_argument("--repeats", type=int, default=3, help="timings per case, of which the median counts")
    parser.add_argument("--rtol", type=float, default=1e-6)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "sphere_attend.json")
    options = parser.parse_args()
    betas = [1.0, 64.0, 1e4] if options.quick else [1.0, 16.0, 64.0, 256.0, 1024.0, 1e4]
    one_case("uniform", 100.0, options.rtol, 1)  # compiles
    print("tokens        beta  1e4 [s]  1e6 [s] exponent /direct 1e5    bound    error")
    cases = []
    for kind in ("uniform", "clustered"):
        for beta in betas:
            case = one_case(kind, beta, options.rtol, 1 if options.quick else options.repeats)
            cases.append(case)
            seconds = case["cpu_seconds"]
            print(
                f"{kind:10} {beta:7.0f} {seconds['cells 1e4']:8.3f} {seconds['cells 1e6']:8.3f}",
                f"{case['exponent']:8.2f} {case['ratio_to_direct_1e5']:11.3f}",
                f"{case['bound']:8.1e} {case['error_on_sampled_rows']:8.1e}",
                flush=True,
            )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    about = {"machine": platform.machine(), "threads": torch.get_num_threads(), "torch": torch.__version__}
    options.out.write_text(json.dumps({"about": about, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
