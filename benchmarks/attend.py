"""How fast is `attend`? Side by side with dense numpy, dense torch, torch SDPA and KeOps, in one process.

    python benchmarks/attend.py            # d in {2, 3, 8, 64, 384}, n in {1e3, 1e4, 1e5 where feasible}
    python benchmarks/attend.py --quick    # n <= 1e4, two minutes on two cores
    python benchmarks/attend.py --scaling  # the methods with a tolerance, n = 1e4 to 1e6, with errors and exponents

Repetitions are interleaved (each round runs every contestant once) and medians are reported, of CPU time of the
process and of wall time. Ratios are peer / attend: above one, attend is faster. On a busy machine OMP_NUM_THREADS=1
makes CPU times comparable, because threads that wait in a barrier spin. A contestant that would need more
than the memory or time limit is left out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from metastable.attention import attend
from metastable.sphere import uniform

RESULTS = Path(__file__).parent / "results"
BETA = 8.0
console = Console(width=150)


def machine() -> dict[str, object]:
    name = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        name = next(
            (l.split(":")[1].strip() for l in cpuinfo.read_text().splitlines() if l.startswith("model name")), name
        )
    return {
        "cpu": name,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def measure(contestants: dict[str, Callable[[], object]], rounds: int) -> dict[str, dict[str, float]]:
    """Median CPU and wall seconds of each contestant over interleaved rounds, after one round to warm up."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, run in contestants.items():
            cpu, wall = time.process_time(), time.perf_counter()
            run()
            spent = time.process_time() - cpu, time.perf_counter() - wall
            if number:
                times[name].append(spent)
    return {
        name: {"cpu": statistics.median(t[0] for t in spent), "wall": statistics.median(t[1] for t in spent)}
        for name, spent in times.items()
    }


def dense_numpy(x: np.ndarray, m: np.ndarray) -> np.ndarray:
    scores = BETA * (x @ x.T)
    weight = np.exp(scores - scores.max(axis=1, keepdims=True)) * m
    return (weight @ x) / weight.sum(axis=1, keepdims=True)


def sdpa(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    """torch.nn.functional.scaled_dot_product_attention in its 4-D (flash) form, masses in one more column."""
    q = torch.cat([BETA * x, torch.ones_like(x[:, :1])], dim=1)[None, None]
    k = torch.cat([x, torch.log(m)[:, None]], dim=1)[None, None]
    v = torch.nn.functional.pad(x, (0, 1))[None, None]
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)[0, 0, :, :-1]


def keops() -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None:
    try:
        from pykeops.torch import LazyTensor
    except Exception as error:  # KeOps fails in many ways where it cannot compile
        console.print(
            f"pykeops is left out: {type(error).__name__} on import (pip install pykeops and a C++ compiler)."
        )
        return None

    def run(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        q, k = LazyTensor(BETA * x[:, None, :]), LazyTensor(x[None, :, :])
        scores = (q * k).sum(-1) + LazyTensor(torch.log(m)[None, :, None])
        return scores.sumsoftmaxweight(LazyTensor(x[None, :, :]), axis=1)

    return run


def against_peers(quick: bool, dimensions: list[int]) -> list[dict[str, object]]:
    peer = keops()
    rows: list[dict[str, object]] = []
    for d in dimensions:
        for n in (1_000, 10_000) if quick else (1_000, 10_000, 100_000):
            if n == 100_000 and d > 8:
                continue
            x = uniform(n, d, seed=0)
            m = torch.full((n,), 1.0 / n, dtype=torch.float64)
            array, weights = x.numpy(), m.numpy()
            runs: dict[str, Callable[[], object]] = {"attend": lambda x=x, m=m: attend(x, x, m, BETA)}
            if d > 8:
                runs["attend blocks"] = lambda x=x, m=m: attend(x, x, m, BETA, kernel="blocks")
            if n <= 10_000:
                runs["dense numpy"] = lambda a=array, w=weights: dense_numpy(a, w)
                runs["dense torch"] = lambda x=x, m=m: attend(x, x, m, BETA, kernel="dense")
            runs["torch SDPA"] = lambda x=x, m=m: sdpa(x, m)
            if peer is not None and d <= 8:
                runs["pykeops"] = lambda x=x, m=m: peer(x, m)
            found = measure(runs, 1 if n * n * d > 5e9 else (3 if n > 1000 else 7))
            rows.append({"d": d, "n": n, "kernel": attend(x[:100], x, m, BETA).kernel, "seconds": found})
            console.print(f"d = {d}, n = {n}: attend {found['attend']['cpu']:.3g} s of CPU", style="dim")
    return rows


def show(rows: list[dict[str, object]], clock: str) -> None:
    table = Table(title=f"attend, float64, beta = {BETA:g}: {clock} time, and peers as multiples of it")
    peers = ["dense numpy", "dense torch", "torch SDPA", "pykeops", "attend blocks"]
    for column in ("d", "n", "kernel", "attend [ms]", "Gpair/s", *peers):
        table.add_column(column, justify="right")
    for row in rows:
        seconds: dict[str, dict[str, float]] = row["seconds"]  # type: ignore[assignment]
        ours, n = seconds["attend"][clock], int(row["n"])  # type: ignore[call-overload]
        ratios = [f"{seconds[p][clock] / ours:.2f}x" if p in seconds else "-" for p in peers]
        speed = f"{n * n / ours / 1e9:.2f}"
        table.add_row(str(row["d"]), str(n), str(row["kernel"]), f"{1e3 * ours:.2f}", speed, *ratios)
    console.print(table)


def scaling(quick: bool) -> list[dict[str, object]]:
    """Cost, growth and true error (sampled rows against all pairs) of the methods with a tolerance."""
    sizes = (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000)
    rows: list[dict[str, object]] = []
    table = Table(title="attend(rtol=): CPU time, largest error on sampled rows, growth exponent")
    for column in (
        "d",
        "rtol",
        "beta",
        *(f"n = {n:.0e} [ms]" for n in sizes),
        "exponent",
        "error",
        "stated",
        "kernels",
    ):
        table.add_column(column, justify="right")
    for d in (2, 3):
        for rtol in (1e-10, 1e-5):
            for beta in (1.0, 16.0, 256.0, 4096.0) if d == 2 else (16.0, 256.0):
                spent, worst, stated, kernels = [], 0.0, 0.0, []
                for n in sizes:
                    x = uniform(n, d, seed=1)
                    attend(x[:2000], x, beta=beta, rtol=rtol)
                    found = measure(
                        {"attend": lambda x=x, b=beta, r=rtol: attend(x, x, beta=b, rtol=r)}, 1 if d == 3 else 3
                    )
                    spent.append(found["attend"]["cpu"])
                    result = attend(x, x, beta=beta, rtol=rtol)
                    rows_seen = torch.arange(0, n, n // 20)
                    exact = attend(x[rows_seen], x, beta=beta)
                    worst = max(worst, float((result.mean[rows_seen] - exact.mean).norm(dim=1).max()))
                    stated = max(stated, result.error or 0.0)
                    kernels.append(result.kernel)
                exponent = math.log(spent[-1] / spent[0]) / math.log(sizes[-1] / sizes[0])
                row = {"d": d, "rtol": rtol, "beta": beta, "n": sizes, "cpu": spent, "exponent": exponent}
                rows.append({**row, "error": worst, "stated": stated, "kernels": kernels})
                table.add_row(
                    str(d), f"{rtol:.0e}", f"{beta:g}", *(f"{1e3 * s:.1f}" for s in spent), f"{exponent:.2f}",
                    f"{worst:.0e}", f"{stated:.0e}", " ".join(kernels),
                )  # fmt: skip
    console.print(table)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--d", type=int, nargs="+", default=[2, 3, 8, 64, 384], help="dimensions to run")
    parser.add_argument("--scaling", action="store_true", help="the methods with a tolerance instead of the peers")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON file")
    arguments = parser.parse_args()
    if arguments.scaling:
        name, result = "attend-scaling", scaling(arguments.quick)
    else:
        name, result = "attend", against_peers(arguments.quick, arguments.d)
        show(result, "cpu")
        show(result, "wall")
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"{name}.json").write_text(json.dumps({"machine": machine(), "rows": result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
