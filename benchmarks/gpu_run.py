"""What does a whole run on this GPU cost beside its attentions, and in which precision are they computed?

    python benchmarks/gpu_run.py [--out FOLDER]

A run is divided by its evaluations times the time of one attention at its end, which is measured twice: as calls
one after the other, and as the device alone needs it (ten attentions recorded in a graph of launches). The same run
with the launches of each stage made by the host stands beside it. Tokens are float64; at coarse tolerances their
attention is in float32, and the mean difference of a token to a run with all digits is given.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import metastable as ms
from metastable.attention.attend import attend_unchecked
from metastable.flows import SelfAttention
from metastable.flows.plan import Plan
from metastable.solve import recorded_trial

CASES = (
    (4_096, 64, 16.0, 1e-8, 30.0),
    (10_000, 2, 64.0, 1e-8, 12.0),
    (10_000, 3, 16.0, 1e-8, 12.0),
    (10_000, 3, 8.0, 1e-4, 12.0),
    (100_000, 3, 8.0, 1e-6, 2.0),
    (100_000, 3, 8.0, 1e-4, 2.0),
    (1_000_000, 3, 8.0, 1e-4, 0.1),
)
"""(n, d, beta, rtol, t)."""


def waited(run: Any) -> tuple[float, Any]:
    """Seconds until the device is done, and the result."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = run()
    torch.cuda.synchronize()
    return time.perf_counter() - start, result


def flow_of(d: int, beta: float, rtol: Any = "auto") -> SelfAttention:
    """Weights near the identity, no multiple of it."""
    B = np.eye(d) + 0.3 * np.random.default_rng(0).standard_normal((d, d)) / np.sqrt(d)
    return SelfAttention(ms.AttentionWeights(V=B, B=B), beta, rtol=rtol)


def on_device(flow: SelfAttention, points: torch.Tensor, mass: torch.Tensor) -> float | None:
    """Seconds of the device for one velocity, ten of them in a graph; None where it cannot be recorded."""
    field = flow.launched(points, mass)
    if field is None:
        return None
    field(points)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            field(points)
    graph.replay()
    return min(waited(graph.replay)[0] for _ in range(3)) / 10


def case(n: int, d: int, beta: float, rtol: float, t: float) -> dict[str, Any]:
    """One row of the table."""
    rho = ms.Measure(ms.sphere.uniform(n, d, seed=1)).to(device="cuda")
    flow = flow_of(d, beta)
    row: dict[str, Any] = {"n": n, "d": d, "beta": beta, "rtol": rtol, "t": t}
    most = recorded_trial.MOST_PAIRS
    for name, limit in (("recorded", most), ("host", 0.0)):
        recorded_trial.MOST_PAIRS = limit
        ms.solve(flow, rho, 0.01, rtol=rtol, atol=rtol / 10)
        row[name], path = waited(lambda: ms.solve(flow, rho, t, rtol=rtol, atol=rtol / 10))
        row[f"{name}_evaluations"] = path.provenance["statistics"]["evaluations"]
    recorded_trial.MOST_PAIRS = most
    prepared = flow.for_run(Plan(0.0, t, rtol, rtol / 10))
    w, x, mass = flow.weights_at(0.0, path.end.points), path.end.points, path.mass.to(rho.points)
    parts = w.queries(x), w.keys(x), w.values(x), mass, beta
    call = lambda: attend_unchecked(*parts, rtol=prepared.rtol, rounding=prepared.rounding)  # noqa: E731
    row["kernel"] = call().kernel
    repeats = 30 if n < 1e5 else 3
    row["attention"] = waited(lambda: [call() for _ in range(repeats)])[0] / repeats
    row["device"] = on_device(prepared, x, mass)
    row["run_over_calls"] = row["recorded"] / (row["recorded_evaluations"] * row["attention"])
    row["host_run_over_calls"] = row["host"] / (row["host_evaluations"] * row["attention"])
    if row["device"]:
        row["run_over_device"] = row["recorded"] / (row["recorded_evaluations"] * row["device"])
    if n <= 1e5:
        whole = ms.solve(flow_of(d, beta, rtol=None), rho, t, rtol=rtol, atol=rtol / 10)
        # The mean: a token that starts on a watershed may end on either side of it, whatever the precision.
        row["difference_to_all_digits"] = float((whole.end.points - path.end.points).norm(dim=1).mean())
    print(
        f"n = {n:<8d} d = {d:<3d} rtol {rtol:.0e}  {row['kernel']:12s} run {row['recorded']:8.4f} s "
        f"({row['recorded_evaluations']} evaluations) = {row['run_over_calls']:.2f} x its attentions as calls, "
        f"{row.get('run_over_device', float('nan')):.2f} x as the device needs them; launched by the host "
        f"{row['host_run_over_calls']:.2f} x; difference to all digits "
        f"{row.get('difference_to_all_digits', float('nan')):.1e}",
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--quick", action="store_true", help="up to 10,000 tokens")
    options = parser.parse_args()
    out: Path = options.out
    rows = [case(*which) for which in CASES if not options.quick or which[0] <= 10_000]
    out.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name().lower().replace(" ", "-")
    text = json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}, indent=1)
    (out / f"gpu_run-{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
