"""How fast is `attend`? Side by side with dense numpy, dense torch, torch SDPA and KeOps, in one process.

    python benchmarks/attend.py            # d from 2 to 768, n from 100 to 1e5 where feasible; growth
    python benchmarks/attend.py --quick    # n <= 1e4, two betas
    python benchmarks/attend.py --peers    # only the peers; --scaling: only growth

First the peers: CPU time as multiples of attend's, and the largest error of every method on sampled rows against
sums in extended precision. Then the methods with a tolerance, n = 1e4 to 1e6: CPU time, growth, the direct kernel
at n = 1e5 (a fiftieth of its rows, times fifty) as a multiple of their time at the largest n, and their error
against the direct kernel on sampled rows. Repetitions are interleaved (each round runs every contestant once) and
medians are reported, of CPU time of the process and of wall time. One thread, so that CPU times are comparable:
threads that wait in a barrier spin. numpy's BLAS is not told; OPENBLAS_NUM_THREADS=1 does that. A contestant that
would need more than the memory or time limit is left out.
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
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from metastable.attention import Attended, attend
from metastable.sphere import uniform

RESULTS = Path(__file__).parent / "results"
BETA = 8.0
PEERS = ("dense numpy", "dense torch", "torch SDPA", "pykeops")
OURS = ("attend", "attend blocks", "attend rtol=1e-10", "attend float32")
GENERAL = [[1.0, 0.3, 0.1], [0.0, 1.0, -0.2], [0.2, 0.0, 0.9]]
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


def measure(
    contestants: dict[str, Callable[[], object]], rounds: int, results: dict[str, Any] | None = None
) -> dict[str, dict[str, float]]:
    """Median CPU and wall seconds of each contestant over interleaved rounds, after one round to warm up.

    What the contestants return is left in `results`.
    """
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, run in contestants.items():
            cpu, wall = time.process_time(), time.perf_counter()
            result = run()
            spent = time.process_time() - cpu, time.perf_counter() - wall
            if number:
                times[name].append(spent)
            elif results is not None:
                results[name] = result
    return {
        name: {"cpu": statistics.median(t[0] for t in spent), "wall": statistics.median(t[1] for t in spent)}
        for name, spent in times.items()
    }


def dense_numpy(x: np.ndarray, m: np.ndarray) -> np.ndarray:
    scores = BETA * (x @ x.T)
    weight = np.exp(scores - scores.max(axis=1, keepdims=True)) * m
    return (weight @ x) / weight.sum(axis=1, keepdims=True)


def dense_torch(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    scores = BETA * (x @ x.T)
    scores -= scores.amax(dim=1, keepdim=True)
    weight = scores.exp_().mul_(m)
    return (weight @ x) / weight.sum(dim=1, keepdim=True)


def sdpa(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    """torch.nn.functional.scaled_dot_product_attention in its 4-D (flash) form, masses in one more column."""
    q = torch.cat([BETA * x, torch.ones_like(x[:, :1])], dim=1)[None, None]
    k = torch.cat([x, torch.log(m)[:, None]], dim=1)[None, None]
    v = torch.nn.functional.pad(x, (0, 1))[None, None]
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)[0, 0, :, :-1]


def keops() -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None:
    """KeOps' reduction, or None and a sentence where it is not installed or cannot compile."""
    try:
        from pykeops.torch import LazyTensor

        def run(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
            q, k = LazyTensor(BETA * x[:, None, :]), LazyTensor(x[None, :, :])
            scores = (q * k).sum(-1) + LazyTensor(torch.log(m)[None, :, None])
            return scores.sumsoftmaxweight(LazyTensor(x[None, :, :]), axis=1)

        few = uniform(10, 2, seed=0)
        run(few, torch.full((10,), 0.1, dtype=torch.float64))
    except Exception as error:  # KeOps fails in many ways where it cannot compile
        console.print(f"pykeops is left out: {type(error).__name__}; pip install pykeops, with a C++ compiler.")
        return None
    return run


def extended(x: np.ndarray, m: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Attended means of some rows in extended precision."""
    y = x.astype(np.longdouble)
    scores = BETA * np.stack([(y[i] * y).sum(axis=1) for i in rows])
    weight = np.exp(scores - scores.max(axis=1, keepdims=True)) * m
    return np.stack([(w[:, None] * y).sum(axis=0) / w.sum() for w in weight])


def mean_of(result: Any) -> np.ndarray:
    return np.asarray(result.mean if isinstance(result, Attended) else result, dtype=np.float64)


def _sizes(d: int, quick: bool) -> tuple[int, ...]:
    """Numbers of tokens: few of them where the dimension is that of an encoder."""
    if d > 8:
        return (200, 1_000) if quick else (100, 200, 500, 1_000, 2_000, 10_000)
    return (1_000, 10_000) if quick and d <= 3 else (1_000,) if quick else (1_000, 10_000, 100_000)


def against_peers(quick: bool, dimensions: list[int], sizes: list[int] | None) -> list[dict[str, Any]]:
    peer = keops()
    rows: list[dict[str, Any]] = []
    for d in dimensions:
        for n in sizes or _sizes(d, quick):
            x = uniform(n, d, seed=0)
            m = torch.full((n,), 1.0 / n, dtype=torch.float64)
            array, weights, single = x.numpy(), m.numpy(), x.float()
            runs: dict[str, Callable[[], object]] = {"attend": lambda x=x, m=m: attend(x, x, m, BETA)}
            if d > 8:
                runs["attend blocks"] = lambda x=x, m=m: attend(x, x, m, BETA, kernel="blocks")
            if d <= 3 and n >= 10_000:
                runs["attend rtol=1e-10"] = lambda x=x, m=m: attend(x, x, m, BETA, rtol=1e-10)
            runs["attend float32"] = lambda x=single, m=m: attend(x, x, m, BETA)
            if n <= 10_000:
                runs["dense numpy"] = lambda a=array, w=weights: dense_numpy(a, w)
                runs["dense torch"] = lambda x=x, m=m: dense_torch(x, m)
            runs["torch SDPA"] = lambda x=x, m=m: sdpa(x, m)
            if peer is not None and d <= 8 and n <= 10_000:
                runs["pykeops"] = lambda x=x, m=m: peer(x, m)
            results: dict[str, Any] = {}
            found = measure(runs, 1 if n * n * d > (5e8 if quick else 5e9) else (7 if n > 1000 else 31), results)
            some = np.arange(0, n, n // 10)
            exact = extended(array, weights, some)
            errors = {
                name: float(np.linalg.norm(mean_of(result)[some] - exact, axis=1).max())
                for name, result in results.items()
            }
            kernel = results["attend"].kernel
            row = {"d": d, "n": n, "kernel": kernel, "seconds": found, "errors": errors, "machine": machine()}
            rows.append(row)
            console.print(f"d = {d}, n = {n}: attend {found['attend']['cpu']:.3g} s of CPU", style="dim")
    return rows


def show(rows: list[dict[str, Any]], clock: str) -> None:
    table = Table(title=f"attend, float64, beta = {BETA:g}: {clock} time, and others as multiples of it")
    others = [*OURS[1:], *PEERS]
    for column in ("d", "n", "kernel", "attend [ms]", "Gpair/s", *others):
        table.add_column(column, justify="right")
    for row in rows:
        seconds, n = row["seconds"], row["n"]
        ours = seconds["attend"][clock]
        ratios = [f"{seconds[p][clock] / ours:.2g}x" if p in seconds else "-" for p in others]
        speed = f"{n * n / ours / 1e9:.2f}"
        table.add_row(str(row["d"]), str(n), str(row["kernel"]), f"{1e3 * ours:.2f}", speed, *ratios)
    console.print(table)


def show_errors(rows: list[dict[str, Any]]) -> None:
    table = Table(title="largest error of the mean on ten rows, against sums in extended precision")
    for column in ("d", "n", *OURS, *PEERS):
        table.add_column(column, justify="right")
    for row in rows:
        shown = [f"{row['errors'][name]:.0e}" if name in row["errors"] else "-" for name in (*OURS, *PEERS)]
        table.add_row(str(row["d"]), str(row["n"]), *shown)
    console.print(table)


def cases(quick: bool) -> list[tuple[int, str, float, float]]:
    betas = (1.0, 256.0) if quick else (1.0, 16.0, 64.0, 256.0, 4096.0)
    circle = [(2, matrix, rtol, beta) for rtol in (1e-10, 1e-5) for matrix in ("I", "B") for beta in betas]
    return circle + [(3, "I", rtol, beta) for rtol in (1e-10, 1e-5) for beta in betas[: 1 if quick else 4]]


def scaling(quick: bool) -> list[dict[str, Any]]:
    """Cost, growth and true error (sampled rows against all pairs) of the methods with a tolerance."""
    rows: list[dict[str, Any]] = []
    table = Table(title="attend(rtol=), queries x or x B: CPU time, growth and the largest error on sampled rows")
    for column in (
        "d", "queries", "rtol", "beta", "n = 1e4 [ms]", "1e5 [ms]", "1e6 [ms]", "growth", "exponent",
        "direct at 1e5 [ms]", "direct / last", "error", "stated", "kernels",
    ):  # fmt: skip
        table.add_column(column, justify="right")
    for d, matrix, rtol, beta in cases(quick):
        sizes = (10_000, 100_000) if d == 3 and quick else (10_000, 100_000, 1_000_000)
        tokens = {n: uniform(n, d, seed=1) for n in sizes}
        to_queries = torch.eye(d, dtype=torch.float64)
        if matrix == "B":
            to_queries = torch.tensor(GENERAL, dtype=torch.float64)[:d, :d]
        queries = {n: x @ to_queries if matrix == "B" else x for n, x in tokens.items()}
        runs: dict[str, Callable[[], object]] = {
            str(n): lambda q=queries[n], x=tokens[n], b=beta, r=rtol: attend(q, x, beta=b, rtol=r) for n in sizes
        }
        runs["direct"] = lambda q=queries[100_000][::50], x=tokens[100_000], b=beta: attend(q, x, beta=b)
        results: dict[str, Any] = {}
        found = measure(runs, 3 if d == 2 else 1, results)
        spent, direct = [found[str(n)]["cpu"] for n in sizes], 50.0 * found["direct"]["cpu"]
        worst, stated, kernels = 0.0, 0.0, []
        for n in sizes:
            result = results[str(n)]
            some = torch.arange(0, n, n // 20)
            exact = attend(queries[n][some], tokens[n], beta=beta)
            worst = max(worst, float((result.mean[some] - exact.mean).norm(dim=1).max()))
            stated = max(stated, result.error or 0.0)
            kernels.append(result.kernel)
        growth = spent[-1] / spent[0]
        exponent = math.log(growth) / math.log(sizes[-1] / sizes[0])
        row = {"d": d, "queries": matrix, "rtol": rtol, "beta": beta, "n": sizes, "cpu": spent, "growth": growth}
        row |= {"exponent": exponent, "direct_at_1e5": direct, "ratio": direct / spent[-1]}
        rows.append({**row, "error": worst, "stated": stated, "kernels": kernels})
        shown = [f"{1e3 * s:.1f}" for s in spent] + ["-"] * (3 - len(spent))
        table.add_row(
            str(d), "x B" if matrix == "B" else "x", f"{rtol:.0e}", f"{beta:g}", *shown, f"{growth:.0f}x",
            f"{exponent:.2f}", f"{1e3 * direct:.0f}", f"{direct / spent[-1]:.0f}x", f"{worst:.0e}",
            f"{stated:.0e}", " ".join(dict.fromkeys(kernels)),
        )  # fmt: skip
        console.print(f"d = {d}, {matrix}, rtol = {rtol:.0e}, beta = {beta:g}: {shown[-1]} ms", style="dim")
    console.print(table)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument(
        "--d", type=int, nargs="+", default=[2, 3, 8, 32, 64, 384, 768], help="dimensions against the peers"
    )
    parser.add_argument("--n", type=int, nargs="+", help="numbers of tokens against the peers")
    parser.add_argument("--peers", action="store_true", help="the peers alone")
    parser.add_argument("--scaling", action="store_true", help="the methods with a tolerance alone")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch and of metastable")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON file")
    arguments = parser.parse_args()
    threads = torch.get_num_threads()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "attend.json"
    result: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    if not arguments.scaling:
        measured = against_peers(arguments.quick, arguments.d, arguments.n)
        show(measured, "cpu")
        show(measured, "wall")
        show_errors(measured)
        # What was measured before, of other cells, stays.
        rows = {(row["d"], row["n"]): row for row in [*result.get("rows", []), *measured]}
        result["rows"] = [rows[cell] for cell in sorted(rows)]
    if not arguments.peers:
        result["growth"] = scaling(arguments.quick)
    torch.set_num_threads(threads)
    file.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
