"""How many tokens does it take to see the mean field? Deterministic nodes against iid tokens.

Error: root mean square distance between the flow map of the tokens and the exact one, at probes without mass that
are spread by rho_0. It bounds W2(computed rho_t, rho_t) for nodes; for iid tokens it leaves out the sampling error,
so the comparison favours them. iid tokens are run with the fast kernel of the circle (rtol 1e-8) up to 1e6 tokens,
and up to 8000 on S^2, over several seeds; the first row of a table compares at the error that the largest of these
runs reached. The other targets lie beyond: their numbers of iid tokens are extrapolated with the measured
C n^{-1/2}, and their CPU times from the largest run like n on the circle and n^2 on S^2; the table marks these ~.

    python benchmarks/meanfield.py [--quick] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import metastable as ms
from metastable.meanfield import Skewed, nodes, reference_skew
from metastable.papers.concentration.families import sheared

TARGETS = (1e-3, 1e-4, 1e-6)


def images(flow: ms.Flow, rho: ms.Measure, probes: ms.Measure, t: float, tol: float) -> tuple[torch.Tensor, float]:
    """Where the probes go in the field of the tokens, and the CPU seconds it took."""
    joined = ms.Measure(torch.cat([rho.points, probes.points]), torch.cat([rho.mass, 0 * probes.mass]))
    start = time.process_time()
    end = ms.solve(flow, joined, t=t, rtol=tol, atol=tol).end
    return end.points[rho.n :], time.process_time() - start


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found - exact).square().sum(1).mean().sqrt())


def first_size(make: Callable[[int], ms.Measure], sizes: list[int], run: Callable, target: float) -> dict:
    """The first of the sizes whose error is below the target."""
    for n in sizes:
        rho = make(n)
        value, seconds = run(rho, 0.03 * target)
        if value < target:
            return {"tokens": rho.n, "error": value, "cpu_seconds": seconds, "extrapolated": False}
    return {"tokens": None, "error": value, "cpu_seconds": seconds, "extrapolated": False}


def case(
    name: str,
    flow: ms.Flow,
    law,
    t: float,
    kinds: dict,
    sizes: list[int],
    reference: ms.Measure,
    iid_sizes: list[tuple[int, int]],
) -> dict:
    """iid_sizes: pairs (number of tokens, number of seeds)."""
    d = flow.d
    probes = nodes(law, d, 60 if d == 2 else 128, kind="quantile" if d == 2 else "fibonacci")
    exact, _ = images(flow, reference, probes, t, 1e-10)

    def run(rho: ms.Measure, tol: float) -> tuple[float, float]:
        found, seconds = images(flow, rho, probes, t, max(tol, 1e-10))
        return error(found, exact), seconds

    fast = ms.SelfAttention(flow.weights, flow.beta, rtol=1e-8)
    iid = []
    for n, seeds in iid_sizes:
        results = []
        for seed in range(seeds):
            found, seconds = images(fast, ms.Measure(law.sample(n, seed=seed)), probes, t, 1e-6)
            results.append((error(found, exact), seconds))
            print(f"iid n = {n} seed {seed}: error {results[-1][0]:.4g}, {seconds:.3g} s", flush=True)
        iid.append(
            {
                "tokens": n,
                "seeds": seeds,
                "error": math.sqrt(np.mean([e**2 for e, _ in results])),
                "cpu_seconds": float(np.mean([s for _, s in results])),
            }
        )
    # Few tokens see the field of single neighbours and do not follow n^{-1/2} yet: the largest run gives C.
    largest = iid[-1]
    constant = largest["error"] * math.sqrt(largest["tokens"])
    slope = float(np.polyfit(np.log([r["tokens"] for r in iid[-3:]]), np.log([r["error"] for r in iid[-3:]]), 1)[0])
    rows = []
    for target in (largest["error"], *TARGETS):
        measured = target >= largest["error"]
        tokens = largest["tokens"] if measured else (constant / target) ** 2
        growth = (tokens / largest["tokens"]) ** (1 if d == 2 else 2)
        row = {
            "target": target,
            "iid": {
                "tokens": tokens,
                "cpu_seconds": largest["cpu_seconds"] * growth,
                "extrapolated": not measured,
            },
        }
        for kind, make in kinds.items():
            row[kind] = first_size(make, sizes, run, target)
            if row[kind]["tokens"]:
                row[kind]["fewer_tokens"] = tokens / row[kind]["tokens"]
        rows.append(row)
    return {"case": name, "iid_runs": iid, "iid_constant": constant, "iid_slope": slope, "rows": rows}


def table(results: list[dict]) -> str:
    lines = []
    for result in results:
        lines.append(f"\n{result['case']}")
        for r in result["iid_runs"]:
            lines.append(
                f"  iid n = {r['tokens']:>7}: error {r['error']:.3g} (rms of {r['seeds']} seeds), "
                f"{r['cpu_seconds']:.3g} CPU s"
            )
        lines.append(
            f"  iid: slope {result['iid_slope']:.3f} over the last three sizes, C = {result['iid_constant']:.3g}"
        )
        lines.append(f"{'W2 error':>9} {'tokens':<14} {'n':>11} {'CPU s':>10} {'fewer than iid':>15}")
        for row in result["rows"]:
            for kind in (k for k in row if k != "target"):
                entry = row[kind]
                n = "not reached" if entry["tokens"] is None else f"{entry['tokens']:.4g}"
                mark = "~" if entry["extrapolated"] else ""
                fewer = f"{entry['fewer_tokens']:.3g}x" if "fewer_tokens" in entry else ""
                cpu = f"{mark}{entry['cpu_seconds']:.3g}"
                lines.append(f"{row['target']:>9.1e} {kind:<14} {mark + n:>11} {cpu:>10} {fewer:>15}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer iid tokens and seeds, larger errors")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the JSON")
    options = parser.parse_args()
    skew, axis = reference_skew(), [1.0, 0.0]
    circle = case(
        "circle, G(.5), beta = 64, skewed law, t = 2",
        ms.SelfAttention(sheared(0.5), 64.0),
        skew,
        2.0,
        {
            "equispaced": lambda n: nodes(skew, 2, n),
            "quantile": lambda n: nodes(skew, 2, n, kind="quantile"),
            "graded": lambda n: nodes(skew, 2, n, kind="graded", axis=axis, depth=2.0),
        },
        [80, 160, 320] if options.quick else [40, 60, 80, 120, 160, 240, 320, 480, 640],
        nodes(skew, 2, 1200, kind="graded", axis=axis, depth=2.0),
        [(1000, 4), (10_000, 2)] if options.quick else [(1000, 8), (10_000, 6), (100_000, 4), (1_000_000, 2)],
    )
    law = Skewed([1.0, 0.5, 0.2], 0.6)
    sphere = case(
        "S^2, V = diag(2, 1, 1), B = I, beta = 32, skewed law, t = 1",
        ms.SelfAttention(ms.AttentionWeights(V=np.diag([2.0, 1.0, 1.0]), B=np.eye(3)), 32.0),
        law,
        1.0,
        {
            "gauss": lambda n: nodes(law, 3, n),
            "gauss pulled": lambda n: nodes(law, 3, n, generator=np.diag([2.0, 1.0, 1.0]), pull=0.3),
            "fibonacci": lambda n: nodes(law, 3, n, kind="fibonacci"),
        },
        [338, 882] if options.quick else [200, 338, 450, 648, 882, 1250, 1800, 2592],
        nodes(law, 3, 4608, generator=np.diag([2.0, 1.0, 1.0]), pull=0.3),
        [(500, 4), (1000, 2)] if options.quick else [(500, 8), (2000, 6), (8000, 3)],
    )
    results = [circle, sphere]
    print(table(results))
    fewest = max(
        entry.get("fewer_tokens", 0) for entry in results[0]["rows"][2].values() if isinstance(entry, dict)
    )
    seen = max(entry.get("fewer_tokens", 0) for entry in results[0]["rows"][0].values() if isinstance(entry, dict))
    print(
        f"\nMeasured, at the error of {results[0]['iid_runs'][-1]['tokens']} iid tokens: {seen:.3g}x fewer tokens."
    )
    print(f"\nAt W2 error 1e-4 on the circle: ~{fewest:.3g}x fewer tokens than iid, extrapolated (wanted: 100x).")
    options.out.mkdir(parents=True, exist_ok=True)
    record = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "results": results,
    }
    (options.out / "meanfield.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
