"""Many small systems at once: 2048 systems of 32 tokens to t = 30 against a loop, batched torch and Euler steps.

    python benchmarks/ensemble.py [--quick] [--out FOLDER]

`solve` of an Ensemble against (a) `solve` of one system after the other, (b) the same steps with the attention of
all systems as dense batched products of torch, (c) the published experiment: Euler steps of 0.1 in batched torch,
then normalised. CPU time of one thread each; (a) is timed on a few systems, (b) and (c) on an eighth of them, which
favours them (their arrays of scores stay in the cache), and all three are scaled. Errors are the largest of any
token at t = 30 against a run at rtol = 1e-12, in the systems that all have solved.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import metastable as ms
from attend import RESULTS, machine
from metastable.flows.drift import Velocities
from metastable.measure import Ensemble

TOKENS, T = 32, 30.0


class DenseTorch(ms.Flow):
    """x' = P_x m_beta(x) of many systems by batched products of torch."""

    d = 2

    def __init__(self, beta: float) -> None:
        self.beta = beta

    def field(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean = torch.softmax(self.beta * torch.bmm(x, x.transpose(1, 2)), dim=2) @ x
        return mean, mean - (mean * x).sum(2, keepdim=True) * x

    def drift(self, t: float, points: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
        return self.field(points[None])[0][0]

    def evaluate_many(self, t: Any, points: torch.Tensor, mass: torch.Tensor, which: Any) -> Velocities:
        mean, velocity = self.field(points)
        spread = (mass * (1 - mean.square().sum(2)).clamp(min=0)).sum(1)
        return Velocities(velocity, 2 + self.beta * spread)


def euler(beta: float, x: torch.Tensor) -> torch.Tensor:
    flow = DenseTorch(beta)
    for _ in range(300):
        x = torch.nn.functional.normalize(x + 0.1 * flow.field(x)[1], dim=2)
    return x


def cpu(call: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.process_time()
    value = call()
    return time.process_time() - begin, value


def measure(beta: float, systems: int, one_by_one: int, few: int) -> dict[str, Any]:
    points = ms.sphere.uniform(systems * TOKENS, 2, seed=0).view(systems, TOKENS, 2)
    many = Ensemble(points)
    flow = ms.SelfAttention(ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2)), beta)
    ms.solve(flow, many[:2], 0.1)  # compiled, as single runs are
    ms.solve(flow, many[0], 0.1)
    ours, path = cpu(lambda: ms.solve(flow, many, T))
    loop, singles = cpu(lambda: torch.stack([ms.solve(flow, many[s], T).end.points for s in range(one_by_one)]))
    dense, same_steps = cpu(lambda: ms.solve(DenseTorch(beta), many[:few], T))
    steps, by_euler = cpu(lambda: euler(beta, points[:few].clone()))
    exact = ms.solve(flow, many[:one_by_one], T, rtol=1e-12, atol=1e-13).end.points

    def error(found: torch.Tensor) -> float:
        return float((found[:one_by_one] - exact).abs().max())

    counts = path.provenance["statistics"]["steps_of_systems"]
    seconds = {"loop": loop * systems / one_by_one, "torch": dense * systems / few, "euler": steps * systems / few}
    return {
        "beta": beta,
        "systems": systems,
        "steps_mean": sum(counts) / systems,
        "steps_most": max(counts),
        "ensemble_s": ours,
        **{f"{name}_s": value for name, value in seconds.items()},
        **{f"{name}_ratio": value / ours for name, value in seconds.items()},
        "ensemble_error": error(path.end.points),
        "loop_error": error(singles),
        "torch_error": error(same_steps.end.points),
        "euler_error": error(by_euler),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="256 systems, two values of beta")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON file")
    options = parser.parse_args()
    systems, one_by_one, few = (256, 3, 64) if options.quick else (2048, 6, 256)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    table = Table(title=f"{systems} systems of {TOKENS} tokens, d = 2, to t = {T:g}; CPU time of one thread")
    columns = ("beta", "steps (most)", "ensemble", "loop", "torch", "Euler 0.1", "error", "of loop", "of Euler")
    for name in columns:
        table.add_column(name, justify="right")
    rows = []
    for beta in (1.0, 9.0) if options.quick else (1.0, 3.0, 9.0):
        row = measure(beta, systems, one_by_one, few)
        rows.append(row)
        table.add_row(
            f"{beta:g}", f"{row['steps_mean']:.0f} ({row['steps_most']})", f"{row['ensemble_s']:.2f} s",
            *(f"{row[f'{name}_s']:.1f} s ({row[f'{name}_ratio']:.1f}x)" for name in ("loop", "torch", "euler")),
            f"{row['ensemble_error']:.1e}", f"{row['loop_error']:.1e}", f"{row['euler_error']:.1e}",
        )  # fmt: skip
    torch.set_num_threads(threads)
    Console(width=140).print(table)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "ensemble.json").write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
