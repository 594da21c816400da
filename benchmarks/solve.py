"""One adaptive step against its attentions: what the solver's own arithmetic costs at n = 10^6.

    python benchmarks/solve.py [--quick] [--out FOLDER]

A step of the embedded pair evaluates the field six times. The table compares the CPU time of whole steps with that
of six calls of `attend` on the same tokens, with the same kernel and tolerance, run alternately.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

import metastable as ms
from metastable.attention.attend import attend_unchecked
from metastable.solve.adaptive import Adaptive
from metastable.solve.problem import Problem, State


def cpu(call):
    begin = time.process_time()
    value = call()
    return time.process_time() - begin, value


def measure(n: int, d: int, beta: float, rtol: float | None, repeats: int) -> dict[str, object]:
    w = ms.AttentionWeights(
        V=torch.diag(torch.linspace(2.0, 1.0, d)), B=torch.eye(d) + 0.3 * torch.ones(d, d).triu(1)
    )
    flow = ms.SelfAttention(w, beta, rtol=rtol)
    rho = ms.Measure(ms.sphere.uniform(n, d, seed=0))
    problem, stepper = Problem(flow, rho.mass, 1e-8, 1e-10, None, 1.0), Adaptive()
    state = stepper.advance(problem, stepper.begin(problem, State(0.0, rho.points)), 10.0).end
    steps, attends, kernel = [], [], ""
    for _ in range(repeats):
        evaluations = problem.evaluations
        seconds, step = cpu(lambda state=state: stepper.advance(problem, state, 10.0))
        steps.append(6 * seconds / (problem.evaluations - evaluations))
        state = step.end
        queries = w.queries(state.points)
        seconds, attended = cpu(
            lambda q=queries, x=state.points: attend_unchecked(q, x, x, rho.mass, beta, rtol=rtol)
        )
        attends.append(6 * seconds)
        kernel = attended.kernel
    return {
        "n": n,
        "d": d,
        "beta": beta,
        "rtol": rtol,
        "kernel": kernel,
        "step_s": median(steps),
        "attends_s": median(attends),
        "ratio": median(steps) / median(attends),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="n = 10^5 instead of 10^6")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the JSON")
    options = parser.parse_args()
    large, repeats = (10**5, 3) if options.quick else (10**6, 5)
    cases = [(large, 2, beta, 1e-10) for beta in (1.0, 64.0, 256.0)] + [(large // 100, 3, 64.0, None)]
    table = Table(title="CPU time of one adaptive step against its six attentions")
    for name in ("n", "d", "beta", "rtol", "kernel", "step, ms", "six attends, ms", "step / attends"):
        table.add_column(name, justify="right")
    rows = []
    for case in cases:
        row = measure(*case, repeats)
        rows.append(row)
        table.add_row(
            f"{row['n']:,}", str(row["d"]), f"{row['beta']:g}", str(row["rtol"]), str(row["kernel"]),
            f"{1e3 * row['step_s']:.1f}", f"{1e3 * row['attends_s']:.1f}", f"{row['ratio']:.2f}",
        )  # fmt: skip
    Console().print(table)
    options.out.mkdir(parents=True, exist_ok=True)
    machine = {"cores": os.cpu_count(), "metastable": ms.__version__}
    (options.out / "solve.json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
